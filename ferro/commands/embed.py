"""Vectors of texts: a few from the command line, or those of a file of any size."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ferro.commands import UsageError, options, text_files
from ferro.folders import naming
from ferro.report import Progress, emit, note, to_json

if TYPE_CHECKING:
    from ferro.commands.text_files import Record
    from ferro.commands.vector_files import Floats
    from ferro.models.embedding_model import EmbeddingModel
    from ferro.models.tasks import Task

Ids = tuple[int, ...]
AT_ONCE = 1024  # records between two writes
MEGA = 1 << 20
REPORTED = 20  # bad records that are told of one by one


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    options.model_argument(parser)
    group = parser.add_argument_group("what is embedded")
    group.add_argument("--text", action="append", metavar="TEXT", help="a text; may be repeated")
    group.add_argument("--ids", metavar="1,2,3", help="token ids, BOS and EOS among them")
    group.add_argument("--in", dest="source", metavar="FILE", help="texts of a file (-: stdin)")
    group.add_argument("--format", choices=text_files.FORMATS,
                       help="of --in (default: what its name tells, else a text a line)"
                       )  # fmt: skip
    group.add_argument("--column", metavar="NAME", help="the column or field of the texts")
    group.add_argument("--title-column", metavar="NAME", help="that of documents' titles")
    group.add_argument("--task", metavar="NAME",
                       help="what for: query, document, ...; puts the model's prefix in front"
                       )  # fmt: skip
    group.add_argument("--title", help="the title of documents (--task document)")
    group = parser.add_argument_group("what comes out")
    group.add_argument("--out", metavar="FILE",
                       help=".npy, .json, .jsonl or .parquet (default: JSON on standard output)"
                       )  # fmt: skip
    group.add_argument("--dimensions", type=int, metavar="N",
                       help="numbers of a vector (default: all; 768, 512, 256 and 128 are trained)"
                       )  # fmt: skip
    group.add_argument("--no-normalise", action="store_true", help="vectors of any length")
    group.add_argument("--no-resume", action="store_true",
                       help="begin anew where a run was cut off")  # fmt: skip
    group.add_argument("--stats", action="store_true", help="tell counts and rates")
    group = parser.add_argument_group("how the model runs")
    group.add_argument("--weights", choices=("q4", "q8", "f32"), default="q4",
                       help="as of `ferro generate` (default q4)")  # fmt: skip
    group.add_argument("--ctx", dest="context", type=int, metavar="N",
                       help="tokens of a text (default 8192, or what the model takes)"
                       )  # fmt: skip
    group.add_argument("--batch", type=int, default=512, metavar="N",
                       help="tokens of a pass (default 512)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from ferro.models import tasks
    from ferro.models.embedding_model import EmbeddingModel

    check(args)
    path = options.model(args)
    how = {"weights": args.weights, "context": args.context, "batch": args.batch}
    with options.open_device(args) as device, EmbeddingModel.open(path, device, **how) as model:
        width = model.out if args.dimensions is None else args.dimensions
        if not 1 <= width <= model.out:
            raise UsageError(f"--dimensions takes a number from 1 to {model.out}, got {width}")
        task = tasks.task(model.hyperparameters.architecture, args.task)
        if args.ids is not None and task is not tasks.NONE:
            raise UsageError("--task goes in front of texts, not of --ids")
        task.text("", args.title)
        work = Work(model, task, width, not args.no_normalise)
        with text_files.opened(args.source) if args.source else nullcontext() as source:
            code = to_file(args, work, source) if args.out else to_stdout(args, work, source)
    if args.stats:
        note(str(work.stats))
    return code


def check(args: argparse.Namespace) -> None:
    """Raises UsageError."""
    if sum(each is not None for each in (args.text, args.ids, args.source)) != 1:
        raise UsageError("give one of --text, --ids and --in")
    if args.source is None and (args.format or args.column or args.title_column):
        raise UsageError("--format, --column and --title-column go with --in")
    options.check_context(args.context, "--ctx")
    options.check_context(args.batch, "--batch")
    if args.out is not None:
        from ferro.commands.vector_files import WRITERS

        out = Path(args.out)
        if out.suffix.lower() not in WRITERS:
            raise UsageError(f"--out {out}: its name must end with one of {', '.join(WRITERS)}")
        if out.is_dir() or not out.absolute().parent.is_dir():
            raise UsageError(f"--out {out}: the folder is missing, or this is one")


@dataclass
class Stats:
    """Counts of a run. ``seconds`` is what the model took."""

    texts: int = 0
    tokens: int = 0
    bad: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        rates = ""
        if self.seconds:
            texts, tokens = self.texts / self.seconds, self.tokens / self.seconds
            rates = f" in {self.seconds:.2f} s ({texts:.1f} texts/s, {tokens:.0f} tokens/s)"
        bad = f", {self.bad} bad" if self.bad else ""
        return f"{self.texts} texts, {self.tokens} tokens{rates}{bad}"


@dataclass
class Work:
    """What makes vectors of records."""

    model: EmbeddingModel
    task: Task
    width: int
    normalise: bool
    stats: Stats = field(default_factory=Stats)

    def ids(self, record: Record, title: str | None) -> Ids | str:
        """The tokens of a record, or what is wrong with it."""
        if record.wrong:
            return record.wrong
        from ferro.models.sequences import sequence

        title = record.title or title
        ids = sequence(self.model.encode, record.text, self.task, title).tokens
        if len(ids) > self.model.context:
            return f"too long: {len(ids)} tokens (at most {self.model.context})"
        return ids

    def vectors(self, ids: Sequence[Ids]) -> Floats:
        """float32 [n, width], NaN where the model gave what is no number. Raises what
        ``EmbeddingModel.embed_ids`` does."""
        import numpy as np

        from ferro.models.vectors import finished

        began = time.perf_counter()
        found = self.model.embed_ids(ids)
        broken = ~np.isfinite(found).all(axis=1)
        found[broken] = 0
        found = finished(found, self.width, self.normalise)
        found[broken] = np.nan
        self.stats.seconds += time.perf_counter() - began
        self.stats.texts += len(ids)
        self.stats.tokens += sum(map(len, ids))
        return found

    def done(self, first: int, given: Sequence[Ids | str]) -> Done:
        """Records in a row, by their tokens or what is wrong with them; bad ones are told of."""
        import numpy as np

        vectors = np.full((len(given), self.width), np.nan, np.float32)
        good = [i for i, each in enumerate(given) if not isinstance(each, str)]
        if good:
            vectors[good] = self.vectors([each for each in given if not isinstance(each, str)])
        for i, each in enumerate(given):
            if isinstance(each, str):
                tell_bad(self.stats, first + i, each)
            elif np.isnan(vectors[i, 0]):
                tell_bad(self.stats, first + i, "the model gave what is no number")
        return Done(first, vectors)


@dataclass(frozen=True)
class Done:
    """Some records in a row: the number of the first one, and a vector for each (NaN for bad
    ones)."""

    first: int
    vectors: Floats


def embedded(
    args: argparse.Namespace, work: Work, source: BinaryIO | None, skip: int
) -> Iterator[Done]:
    """All records from number ``skip`` on, some at a time; bad ones are told of."""
    if source is None and args.ids is not None:
        from ferro.commands.tokenize import numbers

        yield work.done(0, [tuple(numbers(args.ids, work.model.hyperparameters.vocabulary))])
        return
    first = skip
    records = itertools.islice(read(args, source), skip, None)
    # texts become tokens one by one: as many long ones would not fit into memory
    while tokens := [work.ids(each, args.title) for each in itertools.islice(records, AT_ONCE)]:
        yield work.done(first, tokens)
        first += len(tokens)


def read(args: argparse.Namespace, source: BinaryIO | None) -> Iterator[Record]:
    """Raises OSError, UsageError."""
    if source is None:
        yield from (text_files.Record(text) for text in args.text)
        return
    columns = text_files.Columns(args.column, args.title_column)
    reader = text_files.FORMATS[args.format or text_files.format_of(args.source)]
    with naming("standard input" if args.source == "-" else args.source):
        yield from reader(source, columns)


def tell_bad(stats: Stats, number: int, wrong: str) -> None:
    stats.bad += 1
    if stats.bad <= REPORTED:
        note(f"record {number + 1}: {wrong}")
    if stats.bad == REPORTED:
        note("further bad records are counted only")


def to_stdout(args: argparse.Namespace, work: Work, source: BinaryIO | None) -> int:
    """One JSON value."""
    from ferro.commands.vector_files import missing, shown

    found = []
    for done in embedded(args, work, source, 0):
        for i, vector in enumerate(done.vectors):
            found.append(shown(done.first + i, None if missing(vector) else vector))
    about: dict[str, Any] = {"model": work.model.file.path.stem, "dimensions": work.width}
    emit(to_json({**about, "data": found, "stats": asdict(work.stats)}))
    return outcome(len(found), work.stats.bad)


def to_file(args: argparse.Namespace, work: Work, source: BinaryIO | None) -> int:
    from ferro.commands.vector_files import Partial

    out = Path(args.out)
    with Partial(out, work.width, about(args, work)) as kept:
        skip = kept.next_record
        if skip:
            note(f"going on behind the {skip} records that are done")
        with Progress(size(args) // MEGA, "embedding MB", delay=1.0) as progress:
            for done in embedded(args, work, source, skip):
                numbers = list(range(done.first, done.first + len(done.vectors)))
                kept.add(numbers, done.vectors)
                show(progress, work.stats, source)
        rows, missing = kept.rows, kept.missing  # those of a run that was cut off too
        kept.finish(work.width)
    if args.json:
        emit(to_json({"out": out, "shape": [rows, work.width], "stats": asdict(work.stats)}))
    else:
        emit(f"{out}: {rows} vectors of {work.width}{bad(missing)}")
    return outcome(rows, missing)


def about(args: argparse.Namespace, work: Work) -> dict[str, Any]:
    """What the vectors depend on; nothing else is like what cannot be read twice."""
    from ferro.commands.vector_files import Source

    if args.no_resume or args.source in (None, "-"):
        return {"begun": time.time_ns()}
    columns = [args.format, args.column, args.title_column]
    kept = [work.task.name, args.title, work.width, work.normalise, args.weights, args.context]
    read = [asdict(Source.of(each)) for each in (str(work.model.file.path), args.source)]
    return {"files": read, "columns": columns, "kept": kept}


def size(args: argparse.Namespace) -> int:
    """Bytes that will be read, as far as that is known."""
    return Path(args.source).stat().st_size if args.source not in (None, "-") else 0


def show(progress: Progress, stats: Stats, source: BinaryIO | None) -> None:
    place = source.tell() // MEGA if source is not None and source.seekable() else 0
    rate = stats.texts / stats.seconds if stats.seconds else 0.0
    spent, share = time.monotonic() - progress.started, place / progress.total
    left = f", {spent / share - spent:.0f} s left" if share else ""
    progress.step(f"{stats.texts} texts, {rate:.0f}/s{left}", place - progress.done)


def bad(missing: int) -> str:
    return f" ({missing} bad records have none)" if missing else ""


def outcome(rows: int, missing: int) -> int:
    """Bad records fail a run only where there was nothing else."""
    return 2 if missing and missing == rows else 0
