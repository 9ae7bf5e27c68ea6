"""A picture of a run: how far each target is reached, by device. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.targets import Target

MET, MISSED = "#2f7d4f", "#b8503c"
MOST = 2.0  # bars end here


def draw(found: Mapping[str, list[Target]], path: Path, title: str) -> None:
    """One panel for each device; a bar that passes the line at 1 has met its target.

    Raises ImportError without matplotlib.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = {device: [t for t in targets if t.share] for device, targets in found.items()}
    shown = {device: targets for device, targets in shown.items() if targets}
    tall = 1.2 + 0.32 * sum(len(targets) + 2 for targets in shown.values())
    figure, panels = pyplot.subplots(len(shown), 1, figsize=(9, tall), squeeze=False)
    for panel, (device, targets) in zip(panels[:, 0], shown.items(), strict=True):
        shares = [min(target.share or 0.0, MOST) for target in targets]
        colours = [MET if target.met else MISSED for target in targets]
        bars = panel.barh([target.what for target in targets], shares, color=colours)
        panel.bar_label(bars, [str(target.line()[1]) for target in targets], padding=3, fontsize=8)
        panel.axvline(1.0, color="black", linewidth=1, linestyle="--")
        panel.set_xlim(0, MOST * 1.15)
        panel.set_title(device, loc="left", fontsize=10)
        panel.set_xlabel("of the target (1: just met)")
        panel.tick_params(labelsize=8)
        panel.invert_yaxis()
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
