"""Plot: an SVG of what was measured, drawn from its entry and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.report import REPORT

#: Beside the report, which shows them.
FOLDER = REPORT.parent / "figures"
#: Told apart by those who see no red or green too.
COLOURS = ("#0072b2", "#d55e00", "#009e73")
#: Of more curves than there are colours.
STYLES = ("-", "--")
SHADE, LEVEL = "#bbbbbb", "#555555"


def draw(plot: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Write the plot of a course, second by second; return its file.

    The same numbers make the same file. One panel a line, with the same axes, so that none hides
    another.
    """
    lines: Mapping[str, list[int]] = plot["lines"]
    with _saved(plot["file"], 1.2 + 1.6 * len(lines), folder) as figure:
        panels = figure.subplots(len(lines), sharex=True, sharey=True, squeeze=False)[:, 0]
        for panel, (name, values), colour in zip(panels, lines.items(), COLOURS, strict=False):
            _panel(panel, plot, name, values, colour)
        figure.suptitle(plot["title"])
        figure.supylabel(plot["y"])
        panels[-1].set_xlabel(plot["x"])
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return folder / str(plot["file"])


def draw_bars(plot: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Write one bar for each of the plot's ``values``, the first on top; return its file."""
    values: Mapping[str, float] = plot["values"]
    with _saved(plot["file"], 1.0 + 0.32 * len(values), folder) as figure:
        axes = figure.subplots()
        names = list(values)[::-1]
        bars = axes.barh(names, [values[name] for name in names], color=COLOURS[0])
        axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
        axes.margins(x=0.12)
        axes.set_xlabel(plot["x"])
        axes.set_title(plot["title"])
        axes.spines[["top", "right"]].set_visible(False)
    return folder / str(plot["file"])


def draw_curves(plot: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Write each of the plot's ``curves`` over a logarithmic axis of sizes; return its file."""
    curves: Mapping[str, Mapping[float, float]] = plot["curves"]
    with _saved(plot["file"], 5.0, folder) as figure:
        axes = figure.subplots()
        for number, (name, points) in enumerate(curves.items()):
            style = STYLES[number // 10 % len(STYLES)]
            axes.plot(list(points), list(points.values()), style, marker=".", label=name)
        sizes = sorted({size for points in curves.values() for size in points})
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel(plot["x"])
        axes.set_ylabel(plot["y"])
        axes.set_title(plot["title"])
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return folder / str(plot["file"])


@contextmanager
def _saved(file: str, height: float, folder: Path) -> Iterator[Any]:
    """Lend a figure, which is written at the end."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": file, "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, height), layout="constrained")
        yield figure
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / file, metadata={"Date": None})


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
