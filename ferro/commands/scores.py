"""The scores of a decision model after every token of a text, for comparison with other engines."""

from __future__ import annotations

import argparse
from pathlib import Path

from ferro.commands import UsageError, encoder_options, options
from ferro.commands.tokenize import numbers
from ferro.report import emit, to_json


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    options.model_argument(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--ids", metavar="1,2,3", help="token ids")
    source.add_argument("--text", help="a text, in which special tokens are read")
    parser.add_argument(
        "--out",
        required=True,
        metavar="FILE.npy",
        help="float32 [tokens, 3], for numpy: as marks of a choice, a score, yes or no",
    )
    encoder_options.configure(parser)


def run(args: argparse.Namespace) -> int:
    import numpy as np

    from ferro.folders import written_atomically

    path, out = options.model(args), Path(args.out)
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: the folder is missing, or this is one")
    with encoder_options.opened(args, path) as model:
        if args.ids is not None:
            ids = numbers(args.ids, len(model.tokenizer))
        else:
            ids = model.tokenizer.encode(args.text, add_special=False)
        rows = model.rows(ids)
    with written_atomically(out) as file:
        np.save(file, rows.astype("<f4", copy=False))
    if args.json:
        emit(to_json({"ids": ids, "shape": rows.shape, "out": out}))
    else:
        emit(f"{out}: float32 {list(rows.shape)}")
    return 0
