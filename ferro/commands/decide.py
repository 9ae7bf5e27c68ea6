"""Answers typed questions about a state with a decision model, in one pass and without generating.

ferro decide d1.gguf --request card.json       # llama.cpp's /v1/systemone, an array of them too
ferro decide d1.gguf --state "I want my money back." --yesno "Is it a complaint?"
ferro decide d1.gguf --state - --choice "Which team?" billing sales --score "How angry?" calm cross
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ferro.commands import UsageError, encoder_options, options
from ferro.folders import naming
from ferro.report import emit, to_json

BAR = 30


class Asked(argparse.Action):
    """A question: the option that it came by, and its words, in the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        words = [values] if isinstance(values, str) else list(values)
        namespace.asked = [*(namespace.asked or []), (self.dest, words)]


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    options.model_argument(parser)
    group = parser.add_argument_group("a request as the endpoint takes it")
    group.add_argument("--request", metavar="FILE",
                       help="a JSON file of a request, or of an array of them (-: standard input);"
                       " prints JSON")  # fmt: skip
    group = parser.add_argument_group("questions for people (any number of them)")
    group.add_argument("--state", metavar="TEXT", help="what they are about (-: standard input)")
    group.add_argument("--yesno", action=Asked, metavar="QUESTION", help="yes or no")
    group.add_argument("--choice", action=Asked, nargs="+", metavar=("QUESTION", "OPTION"),
                       help="one of several options; KEY=DESCRIPTION describes one")  # fmt: skip
    group.add_argument("--score", action=Asked, nargs="+", metavar=("QUESTION", "LEVEL"),
                       help="one of 2 to 10 levels, the lowest first")  # fmt: skip
    parser.set_defaults(asked=None)
    encoder_options.configure(parser)


def run(args: argparse.Namespace) -> int:
    path = options.model(args)
    bodies, single = given(args)
    check(bodies, single)
    with encoder_options.opened(args, path) as model:
        replies = model.replies(bodies)
    if args.json or args.request is not None:
        emit(to_json(replies[0] if single else replies))
    else:
        emit(shown(bodies[0], replies[0]))
    return 0


def given(args: argparse.Namespace) -> tuple[list[Any], bool]:
    """The requests, and whether it is one that is no array. Raises UsageError, BadDocument,
    OSError."""
    if args.request is not None:
        if args.state is not None or args.asked:
            raise UsageError("--request says it all: no --state and no questions beside it")
        found = document(args.request)
        return (found, False) if isinstance(found, list) else ([found], True)
    if not args.asked or args.state is None:
        raise UsageError("give --request FILE, or --state TEXT and --yesno, --choice or --score")
    state = options.standard_input() if args.state == "-" else args.state
    return [{"state": state, "questions": questions(args.asked)}], True


def document(name: str) -> Any:
    """The JSON of a file, or of standard input. Raises BadDocument, OSError."""
    from ferro.models.documents import BadDocument, parse

    told = "standard input" if name == "-" else name
    with naming(told):
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return parse(data)
    except BadDocument as error:
        raise BadDocument(f"{told} {error}") from None


def questions(asked: Sequence[tuple[str, list[str]]]) -> dict[str, Any]:
    """The questions of a command line, numbered from 1. Raises UsageError."""
    found: dict[str, Any] = {}
    for i, (option, (instructions, *words)) in enumerate(asked, 1):
        question: dict[str, Any] = {"type": "noul", "instructions": instructions}
        if option == "choice":
            pairs = [word.partition("=") for word in words]
            question |= {"type": "choice"}
            question["criteria"] = {key: text or None for key, _, text in pairs}
            if len(question["criteria"]) < len(pairs):
                raise UsageError(f"--choice {instructions!r}: an option comes twice")
        elif option == "score":
            question |= {"type": "score", "criteria": words}
        found[str(i)] = question
    return found


def requests_of(name: str) -> list[Any]:
    """The requests of a file, at least one, all of which make sense. Raises UsageError,
    BadDocument, DecisionError, OSError."""
    found = document(name)
    bodies = found if isinstance(found, list) else [found]
    if not bodies:
        raise UsageError(f"{name} holds no request")
    check(bodies, not isinstance(found, list))
    return bodies


def check(bodies: Sequence[Any], single: bool) -> None:
    """Refuse what makes no sense before a model is loaded. Raises DecisionError."""
    from ferro.models.decisions import requests
    from ferro.models.decisions.errors import DecisionError

    for i, body in enumerate(bodies):
        try:
            requests.read(body)
        except DecisionError as error:
            if single:
                raise
            raise DecisionError(f"request {i}: {error}", error.status, error.kind) from None


# --------------------------------------------------------------------------------- for people


def shown(body: Any, reply: Any) -> str:
    """Questions and answers, with a bar for each option."""
    parts = []
    for id, answer in reply["answers"].items():
        question = body["questions"][id]
        lines = [f"{question['instructions']}  {verdict(answer)}", *bars(question, answer)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def verdict(answer: Any) -> str:
    """An answer in a word."""
    if answer["type"] == "noul":
        return "yes" if answer["noul"] >= 0.5 else "no"
    sure = f"(confidence {answer['confidence']:.0%})"
    if answer["type"] == "choice":
        return f"{answer['choice']} {sure}"
    return f"{answer['score']:.2f} of {len(answer['legend']) - 1} {sure}"


def bars(question: Any, answer: Any) -> Iterator[str]:
    """A line for each option: its name, its share, and a bar on a terminal."""
    if answer["type"] == "noul":
        shares = {"yes": answer["noul"], "no": 1 - answer["noul"]}
    elif answer["type"] == "score":
        shares = {f"{i} {answer['legend'][i]}": p for i, p in answer["probabilities"].items()}
    else:
        shares = answer["probabilities"]
    widest = max(8, shutil.get_terminal_size().columns - BAR - 14)
    names = [printable(name)[:widest] for name in shares]
    width = max(map(len, names))
    for name, share in zip(names, shares.values(), strict=True):
        bar = f"  {'█' * round(BAR * share)}" if sys.stdout.isatty() else ""
        yield f"  {name.ljust(width)}  {share:6.1%}{bar}".rstrip()


def printable(text: str) -> str:
    """A name on one line, without what a terminal would obey."""
    return "".join(each if each.isprintable() else " " for each in text)
