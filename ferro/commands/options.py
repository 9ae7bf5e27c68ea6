"""Options that several commands share: which model; which kernel, with which sizes, lowered how."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from ferro.commands import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ferro.codegen.program import Config, Target
    from ferro.dsl.kernel import KernelDefinition
    from ferro.measure import Request
    from ferro.runtime.device import Device

MOST_TOKENS = (1 << 31) - 1
MODEL_HELP = "a GGUF file, or the name of a model that was pulled"
KERNEL_HELP = "a kernel (`ferro kernels` lists them), or path/to/file.py:name"


def model_argument(parser: argparse.ArgumentParser) -> None:
    """The model that a command works on."""
    parser.add_argument("model", nargs="?", help=MODEL_HELP)
    parser.add_argument("--model", "--lm", dest="named_model", metavar="MODEL", help="the same")


def model(args: argparse.Namespace) -> Path:
    """The file of the model that was named. Raises UsageError, NoSuchModel, FileNotFoundError."""
    from ferro.models.known import located

    given = [name for name in (args.model, args.named_model) if name is not None]
    if len(given) != 1:
        problem = "name one model only" if given else "name a model"
        raise UsageError(f"{problem}: {MODEL_HELP}")
    return located(given[0])


def check_context(tokens: int | None, option: str) -> None:
    """Raises UsageError for a context that no device can have: positions are 32-bit numbers."""
    if tokens is not None and not 0 < tokens <= MOST_TOKENS:
        raise UsageError(f"{option} takes a number from 1 to {MOST_TOKENS}, got {tokens}")


def standard_input() -> str:
    """What comes in on standard input; "" if that is closed."""
    return sys.stdin.read() if sys.stdin is not None else ""


def launch_options(parser: argparse.ArgumentParser) -> None:
    """Sizes, constexprs, contents and the schedule of one launch."""
    problem_options(parser)
    lowering_options(parser)


def problem_options(parser: argparse.ArgumentParser) -> None:
    """Sizes, constexprs and contents of one launch."""
    group = parser.add_argument_group("the launch")
    group.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="a dimension")
    group.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a constexpr"
    )
    group.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=V[,V...]",
        help="a scalar, or the values that fill a buffer; NAME=random gives an optional buffer",
    )
    group.add_argument("--seed", type=_seed, default=0, help="of the contents (default 0)")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 0 on")
    return int(text)


def lowering_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it is lowered")
    group.add_argument(
        "--target", metavar="NAME", help="simd or simt, or a whole name such as simt-16-dp4a"
    )
    group.add_argument("--lanes", type=int, help="lanes of a vector or work-group")
    group.add_argument("--lane-axis", metavar="A[,B]", help="axis labels to put on lanes")
    group.add_argument("--split", type=int, default=1, help="work-groups that share one walk")
    group.add_argument(
        "--group",
        type=int,
        default=0,
        help="programs of the second axis that run side by side before the first axis goes on",
    )
    group.add_argument("--no-prefetch", action="store_true", help="do not ask for weights ahead")
    group.add_argument("--dot", metavar="NAME", help="int8 dot: vnni512 vnni256 avx2 dp4a emulated")


def pairs(texts: list[str], option: str) -> dict[str, str]:
    """["M=4", "K=32,N=8"] as a dictionary. Raises UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise UsageError(f"{option} takes NAME=VALUE, got `{text}`")
        name, value = name.strip(), value.strip()
        if found.setdefault(name, value) != value:
            raise UsageError(f"{option} gives `{name}` twice: {found[name]} and {value}")
    return found


def integers(texts: list[str], option: str) -> dict[str, int]:
    """Pairs whose values are integers; several may stand in one text ("M=4,K=32")."""
    single = [part for text in texts for part in text.split(",")]
    try:
        return {name: int(value) for name, value in pairs(single, option).items()}
    except ValueError:
        raise UsageError(f"{option} takes integers, got {' '.join(texts)}") from None


def literal(text: str) -> int | float | bool | str:
    """A constexpr's value as it is written in the language."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("'\"")


def constants(
    args: argparse.Namespace, definition: KernelDefinition
) -> tuple[dict[str, Any], dict[str, int]]:
    """The constexprs of meaning and of schedule that --set names, and those that --dim does (an
    extent may be a constexpr). Raises UsageError."""
    dims = integers(args.dim, "--dim")
    meaning: dict[str, Any] = {n: v for n, v in dims.items() if n in definition.meaning}
    schedule: dict[str, int] = {}
    for name, text in pairs(args.set, "--set").items():
        value = literal(text)
        if name in definition.schedule:
            if not isinstance(value, int):
                raise UsageError(f"the schedule constexpr `{name}` is an integer, got `{text}`")
            schedule[name] = value
        elif name in definition.meaning:
            meaning[name] = value
        else:
            there = ", ".join([*definition.meaning, *definition.schedule]) or "none"
            raise UsageError(f"`{definition.name}` has no constexpr `{name}` (there are: {there})")
    return meaning, schedule


def config(args: argparse.Namespace, schedule: dict[str, int]) -> Config | None:
    """The config that the options ask for; None where they ask for nothing."""
    from ferro.codegen.program import DOT_LOWERINGS, Config

    if args.dot is not None and args.dot not in DOT_LOWERINGS:
        raise UsageError(f"there is no dot `{args.dot}` (there are: {', '.join(DOT_LOWERINGS)})")
    axes = tuple(args.lane_axis.split(",")) if args.lane_axis else ()
    made = Config(
        schedule, args.lanes, axes, args.split, args.dot, not args.no_prefetch, args.group
    )
    return None if made == Config() else made


def parse_target(text: str) -> Target:
    """A target by its whole name, such as "simt-16-dp4a-block_read". Raises CallError."""
    from ferro.runtime import calls

    return calls.parse_target(text)


def target(args: argparse.Namespace, device: Device) -> Target | None:
    """The target of --target on ``device``: by kind the device's own; None without the option."""
    from ferro.runtime import calls

    return None if args.target is None else calls.target_named(args.target, device.targets())


def request(args: argparse.Namespace, device: Device) -> Request:
    """The launch that the options describe. Raises UsageError, CatalogueError."""
    from dataclasses import replace

    from ferro.catalogue import find

    definition = find(args.kernel).definition
    chosen = config(args, constants(args, definition)[1])
    return replace(problem(args, definition), config=chosen, target=target(args, device))


def problem(args: argparse.Namespace, definition: KernelDefinition) -> Request:
    """The launch without its schedule. Raises UsageError."""
    from ferro.measure import Request

    meaning, _ = constants(args, definition)
    given = pairs(args.arg, "--arg")
    values = {name: _numbers(name, text) for name, text in given.items() if text != "random"}
    return Request(
        definition=definition,
        sizes={n: v for n, v in integers(args.dim, "--dim").items() if n not in meaning},
        constants=meaning,
        values=values,
        present=frozenset(n for n, p in definition.parameters.items() if p.optional and n in given),
        seed=args.seed,
    )


def _numbers(name: str, text: str) -> list[float]:
    values = [literal(part) for part in text.split(",")]
    if any(isinstance(value, str) for value in values):
        raise UsageError(f"--arg {name} takes numbers, got `{text}`")
    return [value for value in values if not isinstance(value, str)]


def open_device(args: argparse.Namespace) -> Device:
    """The device of --device and --threads; says once what is missing. Raises NoSuchDevice."""
    from ferro.report import note
    from ferro.runtime.devices import missing, open_device

    device = open_device(args.device, threads=args.threads)
    if not args.device and not os.environ.get("FERRO_DEVICE"):
        for sentence in missing():
            note(sentence)
        if device.info.kind == "interpreter":
            note("no OpenCL device serves here: using the interpreter (`ferro doctor` says why)")
    return device
