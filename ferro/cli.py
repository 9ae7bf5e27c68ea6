"""The `ferro` command: parses arguments, calls a module of `ferro.commands`, maps errors to codes.

Exit codes: 0 done, 1 failed, 2 wrong use or bad input, 3 does not fit in memory.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from ferro import __version__
from ferro.commands import COMMANDS, UsageError

OK, FAILED, USAGE, NO_FIT = 0, 1, 2, 3

EPILOG = """\
exit codes: 0 done, 1 failed, 2 wrong use or bad input, 3 does not fit in memory
environment: FERRO_DEVICE (as --device), FERRO_CACHE_DIR (compiled programs and timings),
FERRO_MODELS_DIR (models that were pulled)
"""


class Parser(argparse.ArgumentParser):
    """An argument parser that says what may have been meant."""

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        stray = re.search(r"unrecognized arguments: (-[^\s=]+)", message)
        close: list[str] = []
        if unknown:
            choices = [word.strip(" '") for word in unknown[2].split(",")]
            close = difflib.get_close_matches(unknown[1], choices, n=1)
            message = f"unknown {self._choice_name(message)} '{unknown[1]}'"
            message += f" (there are: {', '.join(choices)})"
        elif stray:
            known = [option for action in self._actions for option in action.option_strings]
            close = difflib.get_close_matches(stray[1], known, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        self.exit(USAGE, f"{self.prog}: {message}{hint}\n{self.prog} --help shows what there is\n")

    @staticmethod
    def _choice_name(message: str) -> str:
        named = re.match(r"argument ([\w-]+):", message)
        return named[1] if named else "choice"


def common_options() -> Parser:
    """The options that every command takes."""
    # No defaults here: those of an inner parser would overwrite what an outer one has read.
    parser = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    group = parser.add_argument_group("options of every command")
    group.add_argument(
        "--device",
        metavar="NAME",
        help="pocl, intel, rusticl, oclgrind, interpreter, an index or a part of a device's name"
        " (default: FERRO_DEVICE, else the best one)",
    )
    group.add_argument("--threads", type=_positive, metavar="N", help="CPU threads to use")
    group.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for scripts"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return value


def build_parser() -> Parser:
    """The whole command line. Imports every command module, and nothing heavy with it."""
    parser = Parser(
        prog="ferro",
        description="A tile-kernel compiler and inference engine for OpenCL.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ferro {__version__}")
    parser.set_defaults(device=None, threads=None, json=False)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    common = common_options()
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"ferro.commands.{name}")
        child = subparsers.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            parents=[common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(child, common)
        child.set_defaults(run=module.run, parser=child)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    forgive_encodings()
    parser = build_parser()
    args, rest = parser.parse_known_args(argv)
    chosen: argparse.ArgumentParser = getattr(args, "parser", parser)
    if rest:
        chosen.error(f"unrecognized arguments: {' '.join(rest)}")
    if args.command is None:
        parser.print_help()
        return USAGE
    try:
        code: int | None = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        text = str(error)
        gap = "" if text.startswith("\n") else " "
        print(f"ferro {args.command}:{gap}{text}", file=sys.stderr)
    return OK if code is None else code


def forgive_encodings() -> None:
    """What a terminal cannot show, or what is no text of its encoding, is replaced."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def exit_code(error: Exception) -> int | None:
    """The code for an error that a user can act on; None for one that is a bug."""
    if isinstance(error, UsageError | FileNotFoundError | IsADirectoryError | PermissionError):
        return USAGE
    code: int | None = getattr(error, "exit_code", None)
    return code


if __name__ == "__main__":
    sys.exit(main())
