"""Page: docs/benchmarks.md and its plots, all of it written from what the book keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness import plot, report
from harness.figure import Figure
from peers import section

#: The book's key of what `make bench-peers` found; all others are figures.
PEERS = "peers"


def write(entries: Mapping[str, Any], figures: Iterable[Figure]) -> None:
    """Write the page and draw every plot that it shows."""
    report.REPORT.write_text(render(entries, figures), encoding="utf-8")
    for entry in entries.values():
        if "plot" in entry:
            plot.draw(entry["plot"])
    section.draw(entries.get(PEERS, {}))


def render(entries: Mapping[str, Any], figures: Iterable[Figure]) -> str:
    """The page: the table of *figures*, a section on each, and the one on peers."""
    return f"{report.render(entries, figures)}\n{section.render(entries.get(PEERS, {}))}\n"
