"""Measures prefill and decode of a language model, and checks that its text stays the same; of an
embedding model the vectors of several sequences, of a decision model the answers to requests."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferro import __version__
from ferro.commands import UsageError, decision_bench, encoder_bench, engine_options, options
from ferro.report import Progress, emit, note, table, to_json

if TYPE_CHECKING:
    from ferro.models.language_model import LanguageModel
    from ferro.models.pace import Check, Measurement

USUAL = "512"  # tokens of a prefill


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    options.model_argument(parser)
    parser.add_argument(
        "-p",
        "--prompt-tokens",
        metavar="N[,N...]",
        help="prefill so many tokens from an empty context (default 512; 0: none); of an embedding"
        " model the tokens of each sequence (default 12)",
    )
    parser.add_argument(
        "-n",
        "--tokens",
        default="64",
        metavar="N[,N...]",
        help="decode so many tokens one by one (default 64; 0: none)",
    )
    parser.add_argument(
        "-d",
        "--depth",
        default="0",
        metavar="N[,N...]",
        help="tokens that are there before decoding (default 0)",
    )
    parser.add_argument(
        "--sequences",
        default="16,64",
        metavar="N[,N...]",
        help="of an embedding model: embed so many sequences at once (default 16,64)",
    )
    parser.add_argument(
        "--request",
        metavar="FILE",
        help="of a decision model: answer the request of a JSON file, or an array of them, at once"
        " and one at a time",
    )
    parser.add_argument(
        "-r", "--repetitions", type=int, default=3, metavar="N", help="samples of each (default 3)"
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="instead: the device time, bytes and operations of each kernel, beside what the device"
        " can do; the first -p and -d count, -n does not",
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="with --profile: a trace for ui.perfetto.dev (JSON)"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="with --profile: a roofline plot (needs matplotlib)"
    )
    engine_options.configure(parser)
    parser.epilog = "exit code: 1 if the text was not the same in every repetition"


def run(args: argparse.Namespace) -> int:
    from ferro.models.pace import Pace

    if (args.trace or args.plot) and not args.profile:
        raise UsageError(f"--{'trace' if args.trace else 'plot'} goes with --profile")
    path = options.model(args)
    of = kind(path)
    if args.profile and of != "language":
        raise UsageError(f"--profile is for language models, {path.name} is of the kind `{of}`")
    if args.request is not None and of != "decision":
        raise UsageError(f"--request is for decision models, {path.name} is of the kind `{of}`")
    if of in ("embedding", "decision"):
        return {"embedding": encoder_bench, "decision": decision_bench}[of].run(args, path)
    prefills, decodes = sizes(args)
    if args.profile:
        return profile(args, path, prefills)
    if args.context is None:
        args.context = enough(prefills, decodes)
    started = time.perf_counter()
    with engine_options.opened(args, path) as model:
        loading = time.perf_counter() - started
        fit(model, prefills, decodes)
        pace = Pace(model)
        samples = (len(prefills) + len(decodes)) * (args.repetitions + 1)
        with Progress(samples, "bench") as progress:
            found = pace.run(prefills, decodes, args.repetitions, progress.step)
        check = pace.check()
        if args.json:
            emit(to_json(as_json(args, model, found, check, loading)))
        else:
            emit(f"{path.name} on {model.device.info}, {configuration(args, model)}")
            emit(text(found, check))
    if not check.same:
        note("ferro bench: THE TEXT DIFFERED between repetitions")
    return 0 if check.same else 1


def kind(path: Path) -> str:
    """What the model of a file is for. Raises ModelError."""
    from ferro.models.architectures import kind_of, recognise
    from ferro.models.gguf import GgufFile

    file = GgufFile(path)
    return kind_of(file, recognise(file))


def profile(args: argparse.Namespace, path: Path, prefills: list[int]) -> int:
    """Prefill and decode kernel by kernel. Raises UsageError, OSError."""
    from ferro import profiling
    from ferro.commands import profile_view as view

    if args.plot:
        view.check_plot(Path(args.plot))
    prefill, depth = (prefills or [0])[0], numbers(args.depth, "-d")[0]
    tokens = [(profiling.most_tokens(depth) - max(depth, 1), depth)]
    if args.context is None:
        args.context = enough([prefill], tokens)
    with engine_options.opened(args, path) as model:
        fit(model, [prefill], tokens)
        prefill = min(prefill, model.most_rows)
        with Progress(args.repetitions * (1 + bool(prefill)), "profile") as progress:
            phases = profiling.profile(model, prefill, depth, args.repetitions, progress.step)
        title = f"{path.name} on {model.device.info}, {configuration(args, model)}"
        if args.json:
            emit(to_json({**about(args, model), "phases": [view.as_json(one) for one in phases]}))
        else:
            emit("\n\n".join([title, *map(view.text, phases)]))
    if args.trace:
        view.write_trace(phases, Path(args.trace))
    if args.plot:
        view.write_plot(phases, Path(args.plot), title)
    return 0


def sizes(args: argparse.Namespace) -> tuple[list[int], list[tuple[int, int]]]:
    """Sizes of prefills; tokens and depths of decodes. Raises UsageError."""
    prefills = numbers(USUAL if args.prompt_tokens is None else args.prompt_tokens, "-p")
    depths = numbers(args.depth, "-d")
    decodes = [(n, depth) for n in numbers(args.tokens, "-n") for depth in depths if n]
    prefills = [n for n in prefills if n]
    if not prefills and not decodes:
        raise UsageError("nothing is left to measure: -p and -n are 0")
    if args.repetitions < 1:
        raise UsageError(f"-r takes a number above 0, got {args.repetitions}")
    return prefills, decodes


def numbers(text: str, option: str) -> list[int]:
    """Numbers of at least 0 with commas between them. Raises UsageError."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(f"{option} takes numbers of at least 0, got `{text}`")
    return list(dict.fromkeys(map(int, words)))


def needed(prefills: list[int], decodes: list[tuple[int, int]]) -> int:
    """Tokens of the longest context."""
    return max([*prefills, *(tokens + max(depth, 1) for tokens, depth in decodes)])


def enough(prefills: list[int], decodes: list[tuple[int, int]]) -> int | None:
    """The context to open the model with; None where the usual one does."""
    from ferro.models.language_model import CONTEXT

    most = needed(prefills, decodes)
    return most if most > CONTEXT else None


def fit(model: LanguageModel, prefills: list[int], decodes: list[tuple[int, int]]) -> None:
    """Raises UsageError if the context is too small."""
    most = needed(prefills, decodes)
    if most > model.context:
        raise UsageError(f"{most} tokens are asked for, the context holds {model.context} (--ctx)")


def configuration(args: argparse.Namespace, model: LanguageModel) -> str:
    threads = f", {args.threads} threads" if args.threads else ""
    return f"weights {args.weights}, cache {args.cache}, context {model.context}{threads}"


def as_json(
    args: argparse.Namespace,
    model: LanguageModel,
    found: list[Measurement],
    check: Check,
    loading: float,
) -> dict[str, Any]:
    return {
        **about(args, model),
        "load_seconds": loading,
        "memory": {"device": model.device.memory(), "resident_peak": resident_peak()},
        "prefill": [m.to_json() for m in found if m.kind == "prefill"],
        "decode": [m.to_json() for m in found if m.kind == "decode"],
        "text": check,
    }


def about(args: argparse.Namespace, model: LanguageModel) -> dict[str, Any]:
    """What was measured, and how."""
    return {
        "version": __version__,
        "model": {
            "path": model.file.path,
            "bytes": model.file.nbytes,
            "architecture": model.hyperparameters.architecture,
        },
        "device": {"name": str(model.device.info), "target": model.device.target.name},
        "config": {
            "weights": args.weights,
            "cache": args.cache,
            "context": model.context,
            "threads": args.threads,
            "repetitions": args.repetitions,
        },
    }


def resident_peak() -> int | None:
    """Bytes of memory that this process held at most; None where it cannot be known."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def text(found: list[Measurement], check: Check) -> str:
    """The measurements for people."""
    columns = ["", "tokens", "after", "tok/s", "spread", "others", "samples"]
    rows = [
        [m.kind, m.tokens, m.depth, f"{m.median:.1f}", f"{m.spread:.0%}", others(m), rates(m)]
        for m in found
    ]
    shown = f"{check.prompt!r} goes on {check.text!r}, ids {','.join(map(str, check.ids))}"
    return f"{table(columns, rows)}\n{shown}"


def others(measurement: Measurement) -> str | None:
    """The most that other programs took during a sample."""
    known = [s.others for s in measurement.samples if s.others is not None]
    return f"{max(known):.1%}" if known else None


def rates(measurement: Measurement) -> str:
    return " ".join(f"{sample.rate:.1f}" for sample in measurement.samples)
