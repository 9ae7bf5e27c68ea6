"""The programs that were compiled here: list them, remove them, say why one was built."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from ferro.commands import UsageError
from ferro.report import emit, table, to_json

if TYPE_CHECKING:
    from ferro.runtime.cache import Entry, ProgramCache

# As the cache says it of an entry that it could not use.
DAMAGED = "the entry was damaged or refused by the driver"


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    ls = actions.add_parser("ls", parents=[common], help="list the compiled programs (the default)")
    ls.add_argument("kernel", nargs="?", help="of this kernel only")
    rm = actions.add_parser("rm", parents=[common], help="remove compiled programs")
    rm.add_argument("kernel", nargs="?", help="of this kernel only")
    rm.add_argument("--all", action="store_true", help="of every kernel")
    why = actions.add_parser(
        "why", parents=[common], help="what had changed, build by build, the newest first"
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
    """Every build of a kernel with its reason, newest first as ``entries`` are."""
    found = [explained(entry, entries[number + 1 :]) for number, entry in enumerate(entries)]
    if args.json:
        emit(to_json(found))
    elif not found:
        emit(f"no program of `{args.kernel}` is kept")
    for each in [] if args.json else found:
        emit(f"{each['key'][:12]} built {age(each['built'])}, {each['device']}: {each['reason']}")
    return 0 if found else 1


def explained(entry: Entry, before: list[Entry]) -> dict[str, Any]:
    """One build; ``before`` are those that are older, newest first."""
    from ferro.changes import reason

    words, changes = reason(entry.parts, [other.parts for other in reversed(before)])
    if entry.reason == DAMAGED:
        words, changes = entry.reason, []
    device = entry.parts.get("device", "")
    about = {"key": entry.key, "device": device, "reason": words, "changes": changes}
    return {**vars(entry), **about}


def age(moment: float) -> str:
    """A time as seen from now, such as "5 min ago"."""
    seconds = max(0.0, time.time() - moment)
    for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {name} ago"
    return f"{seconds:.0f} s ago"
