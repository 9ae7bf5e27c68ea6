"""The token ids of a text, by the vocabulary of a model file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ferro.commands import UsageError, options
from ferro.report import emit, table, to_json

if TYPE_CHECKING:
    from ferro.models.tokenizer import Tokenizer


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    options.model_argument(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--text", help="the text (default: standard input)")
    source.add_argument("--ids", metavar="1,2,3", help="token ids, to be turned into a text")
    parser.add_argument(
        "--no-special",
        action="store_true",
        help="no BOS and EOS, and no control tokens in the text",
    )
    parser.add_argument("--pre", metavar="NAME", help="pre-tokeniser in place of the file's")


def run(args: argparse.Namespace) -> int:
    from ferro.models.gguf import GgufFile
    from ferro.models.tokenizer import Tokenizer

    tokenizer = Tokenizer(GgufFile(options.model(args)).metadata, args.pre)
    if args.ids is not None:
        return show_text(args, tokenizer)
    text = options.standard_input() if args.text is None else args.text
    special = not args.no_special
    ids = tokenizer.encode(text, add_special=special, parse_special=special)
    pieces = [tokenizer.piece(i, special=True) for i in ids]
    if args.json:
        shown = [piece.decode("utf-8", "backslashreplace") for piece in pieces]
        emit(to_json({"ids": ids, "pieces": shown, "count": len(ids)}))
        return 0
    if ids:
        emit(table(["id", "piece"], zip(ids, map(printable, pieces), strict=True)))
    emit(f"{len(ids)} tokens")
    return 0


def show_text(args: argparse.Namespace, tokenizer: Tokenizer) -> int:
    ids = numbers(args.ids, len(tokenizer))
    text = tokenizer.decode(ids, special=not args.no_special)
    emit(to_json({"ids": ids, "text": text}) if args.json else text)
    return 0


def numbers(text: str, count: int) -> list[int]:
    """Token ids with commas between them. Raises UsageError for what is none of ``count``."""
    ids = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        if not (word.isascii() and word.isdigit() and int(word) < count):
            raise UsageError(f"'{word}' is no token id (there are {count} tokens)")
        ids.append(int(word))
    return ids


def printable(piece: bytes) -> str:
    """A piece in quotes; one that is no text by itself as its bytes."""
    try:
        return repr(piece.decode())
    except UnicodeDecodeError:
        return repr(piece)
