"""Plot: an SVG of what a figure saw second by second, drawn from its entry and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.report import REPORT

#: Beside the report, which shows them.
FOLDER = REPORT.parent / "figures"
#: Told apart by those who see no red or green too.
COLOURS = ("#0072b2", "#d55e00", "#009e73")
SHADE, LEVEL = "#bbbbbb", "#555555"


def draw(plot: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Write the plot and return its file; the same numbers make the same file.

    One panel a line, with the same axes, so that none hides another.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    lines: Mapping[str, list[int]] = plot["lines"]
    with mpl.rc_context({"svg.hashsalt": plot["file"], "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 1.2 + 1.6 * len(lines)), layout="constrained")
        panels = figure.subplots(len(lines), sharex=True, sharey=True, squeeze=False)[:, 0]
        for panel, (name, values), colour in zip(panels, lines.items(), COLOURS, strict=False):
            _panel(panel, plot, name, values, colour)
        figure.suptitle(plot["title"])
        figure.supylabel(plot["y"])
        panels[-1].set_xlabel(plot["x"])
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / str(plot["file"])
        figure.savefig(path, metadata={"Date": None})
    return path


def _panel(panel: Any, plot: Mapping[str, Any], name: str, values: list[int], colour: str) -> None:
    first = plot["first"]
    edges = [first + second for second in range(len(values) + 1)]
    panel.axvspan(*plot["shaded"], color=SHADE, alpha=0.4, linewidth=0, label=plot["shade"])
    panel.hlines(
        plot["level"], *plot["levelled"], color=LEVEL, linestyle="--", linewidth=1,
        label=plot["level_name"],
    )  # fmt: skip
    panel.stairs(values, edges, color=colour, fill=True, alpha=0.35)
    panel.stairs(values, edges, color=colour, linewidth=1.2)
    panel.set_title(name, loc="left", fontsize=10, color=colour, fontweight="bold")
    panel.set_xlim(edges[0], edges[-1])
    panel.set_ylim(bottom=0)
    panel.grid(axis="y", alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)
