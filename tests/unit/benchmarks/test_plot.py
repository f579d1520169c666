from __future__ import annotations

import re

from harness import plot, report
from harness.figure import Figure, Measured

PLOT = {
    "file": "calls.svg", "title": "Calls of it", "x": "seconds", "y": "calls per second",
    "first": -2, "shaded": [0, 2], "shade": "outage", "level": 5, "levelled": [-2, 3],
    "level_name": "published", "lines": {"ours": [5, 5, 0, 0, 4], "theirs": [5, 5, 9, 9, 9]},
}  # fmt: skip


def test_a_plot_has_axes_lines_and_a_legend_by_name(tmp_path):
    path = plot.draw(PLOT, tmp_path)
    said = set(re.findall(r"<text [^>]*>([^<]+)</text>", path.read_text(encoding="utf-8")))
    assert path.name == "calls.svg"
    assert {
        "Calls of it", "seconds", "calls per second", "outage", "published", "ours", "theirs"
    } <= said  # fmt: skip


def test_the_same_numbers_make_the_same_file(tmp_path):
    first, second = plot.draw(PLOT, tmp_path / "a"), plot.draw(PLOT, tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    other = {**PLOT, "lines": {"ours": [5, 5, 0, 1, 4]}}
    assert plot.draw(other, tmp_path / "c").read_bytes() != first.read_bytes()


def test_the_report_shows_the_plot_of_a_figure_that_has_one():
    told = {"title": "t", "unit": "ms", "aim": "≤ 5 ms", "against": "x", "how": "y"}
    only = Figure(key="only", measure=lambda: Measured(values=[1.0]), **told)
    seen = only.entry(Measured(values=[1.0], plot=PLOT))
    assert "![Calls of it](figures/calls.svg)" in report.render({"only": seen}, [only])
    assert "![" not in report.render({"only": only.entry(Measured(values=[1.0]))}, [only])


def test_bars_are_named_and_have_their_numbers(tmp_path):
    bars = {"file": "b.svg", "title": "No-op", "x": "a second", "values": {"ours": 4000, "x": 2}}
    said = re.findall(r"<text [^>]*>([^<]+)</text>", plot.draw_bars(bars, tmp_path).read_text())
    assert {"No-op", "a second", "ours", "x", "4,000"} <= set(said)


def test_curves_are_named_and_their_sizes_are_ticks(tmp_path):
    curves = {f"peer {number}": {1.0: 10.0, 8.0: 20.0} for number in range(12)}
    told = {"file": "c.svg", "title": "Growth", "x": "processes", "y": "rate", "curves": curves}
    said = re.findall(r"<text [^>]*>([^<]+)</text>", plot.draw_curves(told, tmp_path).read_text())
    assert {"Growth", "processes", "rate", "1", "8", *curves} <= set(said)
