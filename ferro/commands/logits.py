"""The logits after every token of a text, for comparison with other engines."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ferro.commands import UsageError, engine_options, options
from ferro.commands.tokenize import numbers
from ferro.report import Progress, emit, to_json

if TYPE_CHECKING:
    from ferro.models.language_model import LanguageModel


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    options.model_argument(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--ids", metavar="1,2,3", help="token ids")
    source.add_argument("--text", help="a text, in which special tokens are read")
    parser.add_argument(
        "--out", required=True, metavar="FILE.npy", help="float32 [tokens, vocabulary], for numpy"
    )
    engine_options.configure(parser)


def run(args: argparse.Namespace) -> int:
    path, out = options.model(args), Path(args.out)
    if not args.out:
        raise UsageError("--out needs the name of a file")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: the folder is missing, or this is one")
    with engine_options.opened(args, path) as model:
        if args.ids is not None:
            ids = numbers(args.ids, len(model.tokenizer))
        else:
            ids = model.tokenizer.encode(args.text)
        shape = write(model, ids, out)
    if args.json:
        emit(to_json({"ids": ids, "shape": shape, "out": out}))
    else:
        emit(f"{out}: float32 {list(shape)}")
    return 0


def write(model: LanguageModel, ids: list[int], out: Path) -> tuple[int, int]:
    """Write the logits, a slice at a time: all together may be large. The shape. Raises BadRequest,
    OSError."""
    from numpy.lib import format as npy

    from ferro.folders import written_atomically
    from ferro.models.completion import check_prompt
    from ferro.models.generation import Stream

    shape = (len(ids), len(model.tokenizer))
    check_prompt(ids, model.context, shape[1])
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with written_atomically(out) as file, Progress(len(ids), "logits", delay=1.0) as progress:
        npy.write_array_header_1_0(file, header)
        for rows in Stream(model).rows(ids):
            file.write(rows.astype("<f4", copy=False).tobytes())
            progress.step(count=len(rows))
    return shape
