"""Report: docs/benchmarks.md, written from what the book keeps and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.book import CHECKOUT
from harness.figure import Aim, Figure

REPORT = CHECKOUT / "docs" / "benchmarks.md"

_HEAD = """\
# Benchmarks

Written by `make bench` and `make bench-peers` from `build/bench.json`: do not edit. Every figure is
measured beside its counterpart in one run (ours, theirs, ours, theirs, …); the value is the median
over the pairs unless the worst run counts, the spread its smallest and largest pair. A ratio is
ours divided by theirs. A figure is shown whether or not it reaches its aim; the load at its start
tells how busy the machine was with other things.
"""


def render(entries: Mapping[str, Any], figures: Iterable[Figure]) -> str:
    """Return the page for *figures*, with their entries.

    An entry is judged by the aim of today, which may be another than when it was measured.
    """
    known = list(figures)
    measured = [figure for figure in known if figure.key in entries]
    parts = [_HEAD, "\n".join(_table(entries, known)), _machines(entries, measured)]
    parts += [_section(figure, entries[figure.key]) for figure in measured]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _table(entries: Mapping[str, Any], figures: list[Figure]) -> Iterator[str]:
    yield "| figure | value | aim | reached | runs | spread |"
    yield "|---|---:|---:|---|---:|---:|"
    for figure in figures:
        if entry := entries.get(figure.key):
            yield _row(figure, entry)
        else:
            yield f"| `{figure.key}` {figure.title} | not measured | {figure.aim} | - | - | - |"


def _row(figure: Figure, entry: Mapping[str, Any]) -> str:
    reached = "yes" if Aim.of(figure.aim).reached(entry["value"]) else "**no**"
    low, high = (number(bound) for bound in entry["spread"])
    value = with_unit(entry["value"], entry["unit"])
    title = f"`{figure.key}` {figure.title}"
    return f"| {title} | {value} | {figure.aim} | {reached} | {entry['runs']} | {low} to {high} |"


def _machines(entries: Mapping[str, Any], figures: list[Figure]) -> str:
    on: dict[str, list[str]] = {}
    for figure in figures:
        machine = entries[figure.key]["detail"].get("machine", "an unknown machine")
        on.setdefault(machine, []).append(f"`{figure.key}`")
    if len(on) == 1:
        return f"Measured on: {next(iter(on))}."
    return "\n".join(f"* {', '.join(keys)}: {machine}" for machine, keys in on.items())


def _section(figure: Figure, entry: Mapping[str, Any]) -> str:
    lines = [f"## {figure.key}", "", figure.how, "", f"Against: {entry['against']}.", ""]
    if plot := entry.get("plot"):
        lines += [f"![{plot['title']}](figures/{plot['file']})", ""]
    lines += [
        f"* {name.replace('_', ' ')}: {_shown(value)}"
        for name, value in entry["detail"].items()
        if name != "machine"
    ]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    return number(value) if isinstance(value, int | float) else str(value)


def with_unit(value: float, unit: str) -> str:
    """Return *value* with its unit; a ratio has none."""
    return number(value) if unit == "ratio" else f"{number(value)} {unit}"


def number(value: float) -> str:
    """Return *value* in three significant digits, thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
