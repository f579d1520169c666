"""Measure figures and write them down: `python benchmarks/run.py --only key,key`.

Without keys it measures all. The exit code says whether the measuring worked, not whether the
aims were reached.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from figures import FIGURES
from harness import book, machine, report
from harness.figure import Aim, Figure, NotMeasured

import page


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for and return the exit code."""
    try:
        chosen = choose(_parser().parse_args(arguments).only)
    except KeyError as error:
        print(f"bench: {error.args[0]}", file=sys.stderr)
        return 2
    failed = [figure.key for figure in chosen if not _measure(figure)]
    if failed:
        print(f"bench: not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def choose(only: str) -> list[Figure]:
    """Return the figures of a comma-separated list, all for an empty one; KeyError if unknown."""
    keys = [key.strip() for key in only.split(",") if key.strip()]
    for key in keys:
        if key not in FIGURES:
            msg = f"there is no figure {key!r}; there are {', '.join(FIGURES)}"
            raise KeyError(msg)
    return [FIGURES[key] for key in keys or FIGURES]


def _measure(figure: Figure) -> bool:
    print(f"{figure.key} (aim {figure.aim}) …", flush=True)
    around = machine.circumstances()
    try:
        entry = figure.entry(figure.measure())
    except NotMeasured as error:
        print(f"bench: {figure.key}: {error}", file=sys.stderr)
        return False
    entry["detail"] |= around
    book.merge({figure.key: entry})
    page.write(book.read(), FIGURES.values())  # now: a run that is cut short has shown this one
    low, high = (report.number(bound) for bound in entry["spread"])
    word = "reached" if Aim.of(figure.aim).reached(entry["value"]) else "not reached"
    value = report.with_unit(entry["value"], figure.unit)
    print(f"{figure.key} = {value} ({low} to {high}, {entry['runs']} runs): {word}", flush=True)
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", metavar="KEY[,KEY…]", help="these figures only")
    return parser


if __name__ == "__main__":
    sys.exit(main())
