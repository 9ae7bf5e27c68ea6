"""What a model file holds, what it will cost in memory, and whether Ferro can run it."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from ferro.commands import options
from ferro.report import emit, note, table, to_json

if TYPE_CHECKING:
    from ferro.models.gguf import GgufFile
    from ferro.models.hyperparameters import Hyperparameters

CONTEXT = 4096
LISTED = 32


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    options.model_argument(parser)
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    parser.add_argument(
        "--context",
        type=int,
        metavar="N",
        help=f"tokens of the KV cache (default {CONTEXT}, or what the model takes)",
    )
    parser.epilog = "exit code: 0 if Ferro can run the model, else 2"


def run(args: argparse.Namespace) -> int:
    from ferro.models.architectures import recognise
    from ferro.models.errors import ModelError
    from ferro.models.gguf import GgufFile

    options.check_context(args.context, "--context")
    file = GgufFile(options.model(args))
    made: Hyperparameters | None = None
    problem = ""
    try:
        made = recognise(file)
    except ModelError as error:
        problem = error.problem
    described = describe(file, made, args.context) | {"supported": made is not None}
    if args.json:
        emit(to_json(described | {"problem": problem or None}))
    else:
        emit(text(described, args.tensors))
    if problem:
        note(f"ferro inspect: {file.path}: {problem}")
    return 2 if problem else 0


def describe(file: GgufFile, made: Hyperparameters | None, context: int | None) -> dict[str, Any]:
    """Everything that is known of a file, as JSON has it."""
    from ferro.models import costs

    tokens = context or min(CONTEXT, made.context if made else CONTEXT)
    memory: dict[str, Any] = {"weights": costs.weights(file), "context": tokens}
    if made is not None:
        memory |= {"kv": costs.kv_cache(made, tokens), "state": costs.state(made)}
    tensors = [
        {"name": t.name, "type": t.kind.name, "shape": list(t.shape), "bytes": t.nbytes}
        for t in file.tensors.values()
    ]
    return {
        "path": str(file.path),
        "version": file.version,
        "bytes": file.nbytes,
        "architecture": plain(file.metadata.get("general.architecture")),
        "hyperparameters": made,
        "memory": memory,
        "types": types(file),
        "metadata": {key: plain(value) for key, value in file.metadata.items()},
        "tensors": tensors,
    }


def types(file: GgufFile) -> dict[str, dict[str, int]]:
    """Tensors, numbers and bytes of each tensor type."""
    found: dict[str, dict[str, int]] = {}
    for info in file.tensors.values():
        counts = found.setdefault(info.kind.name, {"tensors": 0, "numbers": 0, "bytes": 0})
        counts["tensors"] += 1
        counts["numbers"] += info.size
        counts["bytes"] += info.nbytes
    return found


def plain(value: Any) -> Any:
    """A value of metadata as JSON has it; long arrays in words."""
    from ferro.models.gguf_cursor import Texts
    from ferro.models.gguf_metadata import shown

    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if len(value) > LISTED:
        return shown(value)
    return list(value) if isinstance(value, Texts) else [plain(item) for item in value.tolist()]


def text(described: dict[str, Any], tensors: bool) -> str:
    """The description for people."""
    rows = [[key, _short(value)] for key, value in described["metadata"].items()]
    kinds = [
        [name, kind["tensors"], f"{kind['numbers'] / 1e6:.2f}", _mb(kind["bytes"])]
        for name, kind in described["types"].items()
    ]
    pieces = [
        f"{described['path']}: GGUF version {described['version']}, {_mb(described['bytes'])} MB",
        table(["key", "value"], rows),
        table(["type", "tensors", "million numbers", "MB"], kinds),
        table(["in memory", "MB"], [[name, _mb(size)] for name, size in _memory(described)]),
    ]
    if tensors:
        listed = [[t["name"], t["type"], t["shape"], t["bytes"]] for t in described["tensors"]]
        pieces.insert(2, table(["tensor", "type", "shape", "bytes"], listed))
    verdict = "supported" if described["supported"] else "cannot be run"
    return "\n\n".join([*pieces, f"architecture {_short(described['architecture'])}: {verdict}"])


def _memory(described: dict[str, Any]) -> list[tuple[str, int]]:
    memory = described["memory"]
    rows = [(f"weights kept as {form}", size) for form, size in memory["weights"].items()]
    for kind, size in memory.get("kv", {}).items():
        rows.append((f"KV cache in {kind}, {memory['context']} tokens", size))
    return [*rows, ("state of convolutions", memory["state"])] if memory.get("state") else rows


def _short(value: Any, longest: int = 72) -> str:
    line = value if isinstance(value, str) else str(value)
    line = repr(line)[1:-1] if not line.isprintable() else line
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def _mb(size: int) -> str:
    return f"{size / 1e6:.{1 if size >= 10**7 else 3}f}"
