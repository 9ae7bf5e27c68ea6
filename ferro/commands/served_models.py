"""Which models `ferro serve` serves, and how each kind of them is opened."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ferro.commands import UsageError, options

if TYPE_CHECKING:
    from pathlib import Path

# The option that names a kind of model; `--model` and no option take any.
OPTIONS = {"language": "--lm", "embedding": "--model", "decision": "--d1"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{options.MODEL_HELP}, of any "
                        "kind that is served; one of each kind")  # fmt: skip
    parser.add_argument("--lm", dest="language", metavar="MODEL", help="a language model")
    parser.add_argument("--d1", dest="decision", metavar="MODEL", help="a decision model")
    parser.add_argument("--model", dest="any_model", metavar="MODEL",
                        help="an embedding model, or any other")  # fmt: skip


def paths(args: argparse.Namespace) -> dict[str, Path]:
    """The files of the models by kind. Raises UsageError, NoSuchModel, FileNotFoundError,
    ModelError."""
    from ferro.models.known import located

    anything = [*args.models, *filter(None, [args.any_model])]
    given = [("", name) for name in anything]
    for kind, name in (("language", args.language), ("decision", args.decision)):
        given += [(kind, name)] if name else []
    found: dict[str, Path] = {}
    for wanted, name in given:
        path = located(name)
        kind = kind_of(path)
        if kind not in OPTIONS or wanted not in ("", kind):
            where = OPTIONS.get(wanted, "ferro serve")
            raise UsageError(f"{path}: {where} takes no model of the kind `{kind}`")
        if kind in found:
            raise UsageError(f"two {kind} models: {found[kind]} and {path} (one of a kind)")
        found[kind] = path
    if not found:
        raise UsageError(f"name a model: {options.MODEL_HELP}")
    return found


def kind_of(path: Path) -> str:
    """What a model file is for. Raises ModelError, FileNotFoundError."""
    from ferro.models.architectures import kind_of, recognise
    from ferro.models.gguf import GgufFile

    file = GgufFile(path)
    return kind_of(file, recognise(file))


@contextmanager
def opened(args: argparse.Namespace, files: Mapping[str, Path]) -> Iterator[dict[str, Any]]:
    """The models of ``files`` by kind, on the device that was chosen.

    Raises UsageError, NoSuchDevice, ModelError, OutOfMemory.
    """
    from ferro.models.opening import load

    options.check_context(args.context, "--ctx")
    options.check_context(args.batch, "--decision-batch")
    language = {"cache": args.cache, "context": args.context, "slots": args.slots}
    how: dict[str, dict[str, Any]] = {"language": language}
    if args.batch is not None:
        how["decision"] = {"batch": args.batch}
    with ExitStack() as stack:
        device = stack.enter_context(options.open_device(args))
        yield {
            kind: stack.enter_context(load(path, device, weights=args.weights, **how.get(kind, {})))
            for kind, path in files.items()
        }
