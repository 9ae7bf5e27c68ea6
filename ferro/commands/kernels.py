"""Kernels, shipped ones and those of any file: list, show, run against the interpreter, bench."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from ferro.commands import UsageError, options
from ferro.report import emit, note, table, to_json


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    listing = actions.add_parser("list", parents=[common], help="list kernels (the default)")
    listing.add_argument("file", nargs="?", help="those of this file instead of the shipped ones")
    show = actions.add_parser(
        "show", parents=[common], help="the declaration, IR, OpenCL C, assembly"
    )
    show.add_argument("kernel", help=options.KERNEL_HELP)
    show.add_argument("--ir", action="store_true", help="the specialised tile IR")
    show.add_argument("--source", action="store_true", help="the OpenCL C")
    show.add_argument("--asm", action="store_true", help="what Intel's Gen12 compiler makes of it")
    run = actions.add_parser("run", parents=[common], help="run once, compare every bit")
    run.add_argument("kernel", help=options.KERNEL_HELP)
    bench = actions.add_parser(
        "bench", parents=[common], help="measure against the device's limits"
    )
    bench.add_argument("kernel", help=options.KERNEL_HELP)
    bench.add_argument("--seconds", type=float, default=2.0, help="how long to measure (default 2)")
    bench.add_argument(
        "--footprint", type=int, default=512, metavar="MB", help="memory to cycle through"
    )
    for action in (show, run, bench):
        options.launch_options(action)
    parser.set_defaults(action="list", file=None)


def run(args: argparse.Namespace) -> int:
    actions = {"list": list_kernels, "show": show, "run": run_kernel, "bench": bench}
    return actions[args.action](args)


def list_kernels(args: argparse.Namespace) -> int:
    from pathlib import Path

    from ferro.catalogue import load, shipped

    entries = load(Path(args.file)) if args.file else shipped()
    if not entries:
        raise UsageError(
            f"{args.file} has no kernel: a function under @kernel with typed parameters"
        )
    described = [describe(entry) for entry in entries]
    if args.json:
        emit(to_json(described))
        return 0
    rows = [
        [d["file"], d["name"], constexprs(d["meaning"]), constexprs(d["schedule"]), d["summary"]]
        for d in described
    ]
    emit(table(["file", "kernel", "meaning", "schedule", "what it computes"], rows))
    return 0


def describe(entry: Any) -> dict[str, Any]:
    definition = entry.definition

    def plain(parameters: dict[str, Any]) -> dict[str, Any]:
        return {
            name: {"choices": list(p.choices), "default": p.default}
            for name, p in parameters.items()
        }

    return {
        "name": entry.name,
        "file": entry.module,
        "path": str(entry.path),
        "line": definition.line,
        "summary": entry.summary,
        "parameters": {n: p.kind for n, p in definition.parameters.items()},
        "meaning": plain(definition.meaning),
        "schedule": plain(definition.schedule),
    }


def constexprs(described: dict[str, Any]) -> str:
    """ "BM=4 ACT" for parameters with and without a default."""
    return " ".join(
        name if p["default"] is None else f"{name}={p['default']}" for name, p in described.items()
    )


def show(args: argparse.Namespace) -> int:
    from ferro.catalogue import find, find_functions

    text_only = not (args.ir or args.source or args.asm)
    functions = find_functions(args.kernel) if text_only else ()
    entry = functions[0] if len(functions) == 1 else find(args.kernel)
    if text_only:
        described = {**describe(entry), "text": entry.definition.source}
        emit(to_json(described) if args.json else entry.definition.source.rstrip())
        return 0
    shown: dict[str, Any] = {}
    if args.ir:
        shown["ir"] = intermediate(args, entry.definition)
    if args.source:
        shown["source"] = source(args)
    if args.asm:
        shown["asm"] = assembly(args, entry.definition)
    if args.json:
        emit(to_json(shown))
        return 0
    for name, text in shown.items():
        emit(statistics_table(text) if name == "asm" else text.rstrip())
    return 0


def intermediate(args: argparse.Namespace, definition: Any) -> str:
    from ferro.dsl.printer import text

    return text(specialised(args, definition)[0])


def specialised(args: argparse.Namespace, definition: Any) -> tuple[Any, Any]:
    """The kernel's IR and its config, by the options."""
    from ferro.codegen.program import Config
    from ferro.measure import Request

    meaning, schedule = options.constants(args, definition)
    chosen = options.config(args, schedule) or Config()
    given = options.pairs(args.arg, "--arg")
    request = Request(definition, constants=meaning, config=chosen, present=frozenset(given))
    return request.kernel(), chosen


def source(args: argparse.Namespace) -> str:
    from ferro import codegen
    from ferro.catalogue import find

    kernel, chosen = specialised(args, find(args.kernel).definition)
    if args.target and "-" in args.target:
        wanted = options.parse_target(args.target)
    else:
        device = options.open_device(args)
        if device.info.kind == "interpreter":
            raise UsageError(
                "the interpreter has no OpenCL C; name a target: --target simt-16-dp4a"
            )
        wanted = options.target(args, device) or device.target
    return codegen.generate(kernel, wanted, chosen).source


def assembly(args: argparse.Namespace, definition: Any) -> Any:
    from ferro import codegen
    from ferro.codegen import gen12

    kernel, chosen = specialised(args, definition)
    wanted = options.parse_target(args.target or "simt-16-dp4a")
    program = codegen.generate(kernel, wanted, chosen)
    return gen12.statistics(program.source, program.options)


def statistics_table(kernels: Any) -> str:
    rows: list[list[object]] = []
    for k in kernels:
        rows.append([k.name, f"SIMD{k.simd}", k.instructions, k.cycles, k.sends, None, None])
        for loop in k.loops:
            name = "  " * loop.depth + f"loop {loop.label}"
            share = f"{loop.dp4a_share:.0%}"
            rows.append([name, "", loop.instructions, loop.cycles, loop.sends, loop.dp4a, share])
    columns = ["kernel", "width", "instructions", "EU cycles", "sends", "dp4a", "of cycles"]
    memory = [
        f"{k.name}: {k.grf} registers, spill {k.spill} bytes, private {k.private} bytes, "
        f"local {k.local} bytes"
        for k in kernels
    ]
    return "\n".join([table(columns, rows), *memory])


def run_kernel(args: argparse.Namespace) -> int:
    from ferro.measure import compare
    from ferro.runtime.devices import open_device

    with options.open_device(args) as device, open_device("interpreter") as reference:
        request = options.request(args, device)
        result = compare(request, device, reference)
    if not result.equal:
        for sentence in unspecified(request.kernel()):
            note(sentence)
    if args.json:
        emit(to_json({**vars(result), "equal": result.equal}))
        return 0 if result.equal else 1
    emit(f"{result.kernel} on {result.device}")
    emit(f"target {result.target}, config {result.config}, {sizes(result.sizes)}")
    for name, count in result.differing.items():
        emit(f"  {name}: " + (f"{count} elements differ" if count else "equal in every bit"))
    rate = f"{result.gigabytes_per_second:.2f} GB/s"
    emit(f"  {result.seconds * 1e3:.3f} ms ({rate}); interpreter {interpreted(result):.1f} ms")
    return 0 if result.equal else 1


def unspecified(kernel: Any) -> list[str]:
    """Where a kernel reads lanes that hold anything: a likely reason for bits that differ."""
    from ferro.dsl.ir import walk

    loads = [op for op in walk(kernel.body) if op.name == "load"]
    bare = [op for op in loads if op.attrs["masked"] and not op.attrs["other"]]
    places = dict.fromkeys(f"{op.span.file}:{op.span.line}" for op in bare)
    return [
        f"{place}: lanes that the mask switches off hold anything (NaN in the interpreter): "
        "give the load `other=` if they are used"
        for place in places
    ]


def interpreted(result: Any) -> float:
    return float(result.interpreter_seconds * 1e3)


def sizes(found: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in found.items())


def bench(args: argparse.Namespace) -> int:
    from ferro.speed import bench

    with options.open_device(args) as device:
        request = options.request(args, device)
        speed = bench(request, device, args.seconds, args.footprint << 20)
    if args.json:
        emit(to_json(speed))
        return 0
    emit(f"{speed.kernel} on {speed.device}")
    emit(f"target {speed.target}, config {speed.config}, {sizes(speed.sizes)}")
    times = f"median {speed.median * 1e3:.3f} ms, best {speed.best * 1e3:.3f} ms"
    emit(f"{times} over {speed.launches} launches, {speed.copies} sets of arguments")
    emit(table(["kind", "reached", "device's limit", "share"], rate_rows(speed)))
    for sentence in remarks(speed, args.footprint << 20):
        note(sentence)
    return 0


UNITS = {"read": ("memory", "GB/s"), "dot": ("int8", "GOPS"), "f32": ("f32", "GFLOPS")}


def rate_rows(speed: Any) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, rate in speed.rates.items():
        (kind, unit), limit = UNITS[name], speed.limits.get(name)
        share = f"{speed.shares[name]:.0%}" if limit else None
        top = f"{limit / 1e9:.1f} {unit}" if limit else None
        rows.append([kind, f"{rate / 1e9:.1f} {unit}", top, share])
    return rows


def remarks(speed: Any, footprint: int) -> Iterator[str]:
    """What to know before the numbers of a bench are believed."""
    from ferro.neighbours import QUIET, quiet

    if not quiet(speed.others):
        yield (
            f"other programs took up to {speed.others:.0%} of the processors: these are the "
            f"quietest {speed.rounds} of {speed.rounds + speed.dropped} rounds"
        )
    elif speed.dropped:
        count = speed.rounds + speed.dropped
        yield (
            f"{speed.dropped} of {count} rounds do not count: "
            f"other programs took more than {QUIET:.0%} of the processors"
        )
    held = speed.copies * speed.bytes
    if held < footprint and speed.target != "interpreter":
        yield (
            f"{speed.copies} sets of arguments take {held / 1e6:.1f} MB only: "
            "caches may hold them, and the limit was read over as many bytes"
        )
