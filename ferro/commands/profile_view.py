"""A profile for people and for other programs: table, JSON, trace, roofline plot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ferro.commands import UsageError
from ferro.folders import write_atomically, written_atomically
from ferro.profiling import Phase, Row
from ferro.report import table

COLUMNS = (
    "kernel", "sizes", "launches", "ms", "of step", "us each", "MB", "GB/s", "of read", "GOPS",
    "of dot", "GFLOPS", "of f32",
)  # fmt: skip
UNITS = {"read": "GB/s", "dot": "GOPS int8", "f32": "GFLOPS"}
NO_PLOT = "--plot needs matplotlib: pip install 'ferro[plot]'"


def text(phase: Phase) -> str:
    """One phase as a table, with what it does besides launching."""
    after = f" after {phase.depth}" if phase.kind == "decode" else ""
    rows = phase.rows()
    total = sum(row.seconds for row in rows)
    limits = [
        f"{limit / 1e9:.1f} {unit}" for kind, unit in UNITS.items() if (limit := phase.limit(kind))
    ] or ["no limit that was measured"]
    lines = [
        f"{phase.kind}, {phase.tokens} token{'s' * (phase.tokens > 1)}{after}; the device gives "
        f"{', '.join(limits)}",
        table(COLUMNS, [_cells(row, total) for row in rows]),
        f"a pass takes {1e3 * phase.seconds:.2f} ms: {1e3 * phase.busy:.2f} ms in "
        f"{len(phase.launches)} launches, {1e3 * phase.gaps:.2f} ms between them (median "
        f"{1e6 * phase.gap:.1f} us, with events), Python {1e3 * phase.python:.2f} ms",
    ]
    known = [others for others in phase.others if others is not None]
    if known:
        lines.append(f"other programs took up to {max(known):.1%} of the processors meanwhile")
    return "\n".join(lines)


def _cells(row: Row, total: float) -> list[object]:
    cells: list[object] = [
        row.launch.kernel,
        " ".join(f"{name}={size}" for name, size in row.launch.sizes.items()),
        row.count,
        f"{1e3 * row.seconds:.3f}",
        f"{row.seconds / total:.0%}" if total else None,
        f"{1e6 * row.seconds / row.count:.1f}",
        f"{row.launch.bytes / 1e6:.3f}",
    ]
    for kind in UNITS:
        rate, share = row.rates.get(kind), row.shares.get(kind)
        cells.append(f"{rate / 1e9:.3g}" if rate else None)
        cells.append(f"{share:.0%}" if share else None)
    return cells


def as_json(phase: Phase) -> dict[str, Any]:
    """One phase; seconds, bytes, operations, units a second."""
    return {
        "kind": phase.kind,
        "tokens": phase.tokens,
        "depth": phase.depth,
        "seconds": phase.seconds,
        "busy_seconds": phase.busy,
        "gap_seconds": phase.gaps,
        "python_seconds": phase.python,
        "launches": len(phase.launches),
        "others": phase.others,
        "limits": phase.limits,
        "kernels": [
            {**vars(row), "launch": vars(row.launch), "bound": row.bound} for row in phase.rows()
        ],
    }


# ---------------------------------------------------------------------------------- trace and plot


def write_trace(phases: Sequence[Phase], path: Path) -> None:
    """The last pass of every phase as trace events, which chrome://tracing and ui.perfetto.dev
    read. Raises OSError."""
    found = [event for number, phase in enumerate(phases) for event in _events(phase, number)]
    write_atomically(path, json.dumps({"traceEvents": found, "displayTimeUnit": "ms"}).encode())


def _events(phase: Phase, number: int) -> Iterator[dict[str, Any]]:
    name = f"{phase.kind} {phase.tokens} after {phase.depth}"
    yield {"ph": "M", "pid": 0, "tid": number, "name": "thread_name", "args": {"name": name}}
    spans = phase.passes[-1][-1].spans
    began = min((start for start, _ in spans), default=0.0)
    for launch, (start, end) in zip(phase.launches, spans, strict=True):
        yield {
            "ph": "X",
            "pid": 0,
            "tid": number,
            "name": launch.kernel,
            "ts": 1e6 * (start - began),
            "dur": 1e6 * (end - start),
            "args": {**launch.sizes, **launch.amounts()},
        }


PICTURES = ("png", "svg", "pdf")


def check_plot(path: Path) -> None:
    """Raises UsageError where plots cannot be drawn, and for a kind of picture there is not."""
    if path.suffix.lstrip(".").lower() not in PICTURES:
        raise UsageError(f"--plot takes a name that ends in .{', .'.join(PICTURES)}, got {path}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError(NO_PLOT) from None


def write_plot(phases: Sequence[Phase], path: Path, title: str) -> None:
    """The rates of all kernels with products under the roofs that were measured. Raises OSError."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(phases), figsize=(6.5 * len(phases), 5), squeeze=False)
    for panel, phase in zip(panels[0], phases, strict=True):
        _roofs(panel, phase)
        for row in phase.rows():
            _point(panel, row)
        panel.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="G operations/s")
        panel.set_title(f"{phase.kind}, {phase.tokens} after {phase.depth}", loc="left")
        panel.legend(fontsize=7, loc="lower right")
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    with written_atomically(path) as stream:
        figure.savefig(stream, dpi=120, format=path.suffix.lstrip(".").lower())
    pyplot.close(figure)


def _roofs(panel: Any, phase: Phase) -> None:
    read = phase.limit("read") or 1.0
    for kind, colour in (("dot", "C0"), ("f32", "C1")):
        if (top := phase.limit(kind)) is None:
            continue
        edge = top / read
        xs = [min(0.1, edge), edge, max(1e4, 2 * edge)]
        ys = [min(x * read, top) / 1e9 for x in xs]
        panel.plot(xs, ys, colour, linewidth=1, label=f"{UNITS[kind]} and read limit")


def _point(panel: Any, row: Row) -> None:
    for kind, colour in (("dot", "C0"), ("f32", "C1")):
        amount = row.launch.amounts().get(kind)
        if amount and row.launch.bytes:
            at = amount / row.launch.bytes, row.rates[kind] / 1e9
            panel.plot(*at, "o", color=colour, markersize=5)
            panel.annotate(
                row.launch.kernel, at, fontsize=7, xytext=(4, 3), textcoords="offset points"
            )
