"""The programs that were compiled here: list them, remove them, say why one was built."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from ferro.commands import UsageError
from ferro.report import emit, table, to_json

if TYPE_CHECKING:
    from ferro.runtime.cache import Entry, ProgramCache


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    ls = actions.add_parser("ls", parents=[common], help="list the compiled programs (the default)")
    ls.add_argument("kernel", nargs="?", help="of this kernel only")
    rm = actions.add_parser("rm", parents=[common], help="remove compiled programs")
    rm.add_argument("kernel", nargs="?", help="of this kernel only")
    rm.add_argument("--all", action="store_true", help="of every kernel")
    why = actions.add_parser(
        "why", parents=[common], help="which key parts changed, build by build"
    )
    why.add_argument("kernel")
    parser.set_defaults(action="ls", kernel=None)


def run(args: argparse.Namespace) -> int:
    from ferro.runtime.cache import ProgramCache

    cache = ProgramCache()
    if args.action == "rm":
        return remove(args, cache)
    if args.action == "why":
        return explain(args, cache.why(args.kernel))
    entries = list(cache.entries(args.kernel))
    if args.json:
        emit(to_json({"folder": cache.folder, "bytes": cache.size(), "entries": entries}))
        return 0
    rows = [[e.kernel, e.key[:12], e.size, age(e.built), age(e.used)] for e in entries]
    if rows:
        emit(table(["kernel", "key", "bytes", "built", "used"], rows))
    emit(f"{len(rows)} programs, {cache.size() / 1e6:.1f} MB in {cache.folder}")
    return 0


def remove(args: argparse.Namespace, cache: ProgramCache) -> int:
    if not args.kernel and not args.all:
        raise UsageError("name a kernel, or say --all")
    count = cache.remove(args.kernel)
    emit(to_json({"removed": count}) if args.json else f"removed {count} programs")
    return 0


def explain(args: argparse.Namespace, entries: list[Entry]) -> int:
    if args.json:
        emit(to_json(entries))
    elif not entries:
        emit(f"no program of `{args.kernel}` is kept")
    for entry in [] if args.json else entries:
        emit(f"{entry.key[:12]} built {age(entry.built)}: {entry.reason}")
    return 0 if entries else 1


def age(moment: float) -> str:
    """A time as seen from now, such as "5 min ago"."""
    seconds = max(0.0, time.time() - moment)
    for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {name} ago"
    return f"{seconds:.0f} s ago"
