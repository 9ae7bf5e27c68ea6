"""What OpenCL offers on this machine, and what the probes found each device can really do."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ferro.report import Progress, emit, note, table, to_json

if TYPE_CHECKING:
    from ferro.runtime.listing import DeviceInfo

INTERPRETER = "interpreter"


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-probe", action="store_true", help="list only, build nothing")
    parser.add_argument("--details", action="store_true", help="limits and every probe's result")


def run(args: argparse.Namespace) -> int:
    from ferro.runtime.devices import devices, find, missing

    listed = [find(args.device)] if args.device else devices()
    described = []
    with Progress(len(listed), "devices") as progress:
        for info in listed:
            progress.step(f"probing {info.alias} (once per device and driver)", 0)
            described.append(describe(info, not args.no_probe))
            progress.step()
    failures = [d["failure"] for d in described if "failure" in d]
    if args.json:
        emit(to_json({"devices": described, "missing": missing()}))
        return 1 if failures else 0
    emit(table(COLUMNS, [row(d) for d in described]))
    for each in described if args.details else []:
        emit(f"\n{each['alias']}: {each['name']}, {each['platform']} {each['version']}")
        emit(details(each))
    for sentence in [*missing(), *failures]:
        note(sentence)
    return 1 if failures else 0


def describe(info: DeviceInfo, probed: bool) -> dict[str, Any]:
    """The device's facts, with the findings of its probes (made in child processes).

    ``failure`` says why the probes of a device could not be run.
    """
    described: dict[str, Any] = {**vars(info), "identity": info.identity}
    if info.kind == INTERPRETER:
        return {**described, "exact": "yes", "targets": [], "dots": [], "features": []}
    if not probed:
        return described
    from ferro.runtime.errors import DeviceUnusable
    from ferro.runtime.probes import findings, targets

    try:
        found = findings(info)
    except DeviceUnusable as error:
        return {**described, "exact": "not probed", "failure": str(error)}
    return {
        **described,
        "exact": found.exact,
        "targets": [target.name for target in targets(info, found)],
        "dots": list(found.dots),
        "features": sorted(found.features),
        "probes": {name: result or "works" for name, result in found.results.items()},
    }


COLUMNS = ["#", "device", "kind", "name", "driver", "memory", "exact", "targets", "int8 dots"]


def row(described: dict[str, Any]) -> list[object]:
    memory = described["capabilities"].get("memory")
    exact = described.get("exact", "")
    return [
        described["index"],
        described["alias"],
        described["kind"],
        described["name"][:40],
        described["driver"][:24],
        f"{memory / 2**30:.1f} GiB" if memory else None,
        exact if exact in ("yes", "not probed", "") else "no",
        " ".join(described.get("targets", [])),
        " ".join(described.get("dots", [])),
    ]


def details(described: dict[str, Any]) -> str:
    facts = {k: v for k, v in described["capabilities"].items() if k != "extensions"}
    facts |= {"exact": described.get("exact", "not probed")}
    facts |= {f"probe {name}": result for name, result in described.get("probes", {}).items()}
    facts["extensions"] = " ".join(described["capabilities"].get("extensions", []))
    return "\n".join(f"  {name}: {value}" for name, value in facts.items())
