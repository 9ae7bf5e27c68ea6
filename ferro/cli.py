"""The `ferro` command: parses arguments, calls a module of `ferro.commands`, maps errors to codes.

Exit codes: 0 done, 1 failed, 2 wrong use or bad input, 3 does not fit in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from ferro import __version__
from ferro.commands import COMMANDS, UsageError
from ferro.report import OutputFailed, emit, failure, note, sentence, show, to_json

OK, FAILED, USAGE, NO_FIT, INTERRUPTED = 0, 1, 2, 3, 130

EPILOG = """\
exit codes: 0 done, 1 failed, 2 wrong use or bad input, 3 does not fit in memory
environment: FERRO_DEVICE (as --device), FERRO_CACHE_DIR (compiled programs and timings),
FERRO_MODELS_DIR (models that were pulled)
"""


class CommandLineError(UsageError):
    """Arguments that the parser refuses; ``prog`` is the command that they were for."""

    def __init__(self, message: str, prog: str) -> None:
        super().__init__(message)
        self.prog = prog


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
        raise CommandLineError(
            f"{message}{hint}\n{self.prog} --help shows what there is", self.prog
        )

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
        help="pocl, intel, rusticl, interpreter, an index or a part of a device's name; oclgrind"
        " where the `oclgrind` command runs ferro (default: FERRO_DEVICE, else the best one)",
    )
    group.add_argument("--threads", type=_positive, metavar="N", help="CPU threads to use")
    group.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help='print one JSON value, errors too: {"error": {...}}',
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


def console() -> NoReturn:
    """The process of the command. Where a device was lost it ends at once: the driver's own end,
    with a kernel still running, may crash or never come, and its code would hide the command's."""
    code = main()
    from ferro.runtime.watchdog import any_lost

    if not any_lost():
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    open_standard_streams()
    forgive_encodings()
    words = list(sys.argv[1:] if argv is None else argv)
    prog = " ".join(["ferro", *(word for word in words[:1] if word in COMMANDS)])
    try:
        show("")  # no work for a result that nobody can have
        try:
            code = attempt(words, prog)
        finally:  # of --help too, which leaves by SystemExit
            show("", flush=True)
        return code
    except BrokenPipeError:
        discard_output()
        return OK
    except OutputFailed as error:
        discard_output()
        note(f"{prog}: {error}")
        return FAILED


def attempt(words: list[str], prog: str) -> int:
    """Runs, says what went wrong and gives the exit code. Raises OutputFailed, BrokenPipeError."""
    try:
        return run(words)
    except (BrokenPipeError, OutputFailed):
        raise
    except KeyboardInterrupt:
        return complain(KeyboardInterrupt("interrupted"), INTERRUPTED, prog, words)
    except Exception as error:
        return complain(error, exit_code(error), getattr(error, "prog", prog), words)


def run(words: list[str]) -> int:
    """Parses and runs. Raises whatever the command does."""
    parser = build_parser()
    args, rest = parser.parse_known_args(words)
    chosen: argparse.ArgumentParser = getattr(args, "parser", parser)
    if rest:
        chosen.error(f"unrecognized arguments: {' '.join(rest)}")
    if args.command is None:
        parser.print_help()
        return USAGE
    code: int | None = args.run(args)
    return OK if code is None else code


def complain(error: BaseException, code: int | None, prog: str, words: list[str]) -> int:
    """Says what went wrong: in words on standard error, or as JSON on standard output.

    An error without a code is a bug: it has its traceback on standard error.
    """
    if "--json" in words:
        emit(to_json({"error": failure(error, FAILED if code is None else code)}))
    elif code not in (None, INTERRUPTED):
        text = sentence(error)
        note(f"{prog}:{'' if text.startswith(chr(10)) else ' '}{text}")
    if code is None:
        traceback.print_exception(error)
        return FAILED
    return code


def open_standard_streams() -> None:
    """Opens what the shell closed, but for standard output: nothing comes in, notes are lost."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 (for as long as the process lives)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def discard_output() -> None:
    """Sends what is still to be written to nowhere, so that nothing fails at the end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def forgive_encodings() -> None:
    """What a terminal cannot show, or what is no text of its encoding, is replaced."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def exit_code(error: Exception) -> int | None:
    """The code for an error that a user can act on; None for one that is a bug."""
    if isinstance(error, UsageError | FileNotFoundError | IsADirectoryError | PermissionError):
        return USAGE
    if isinstance(error, MemoryError):
        return NO_FIT
    if isinstance(error, OSError) and error.filename is not None:
        return FAILED
    code: int | None = getattr(error, "exit_code", None)
    return code


if __name__ == "__main__":
    console()
