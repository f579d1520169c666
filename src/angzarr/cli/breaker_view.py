"""Breakers for people and programs: tables and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from rich.table import Table

from angzarr.ages import ago, span_text
from angzarr.cli.entry_view import console, safe
from angzarr.cli.local_time import moment
from angzarr.printable import printable
from angzarr.resilience.breaker import Phase, State, Transition
from angzarr.resilience.breaker_json import counts

_COLOURS: Final = {
    Phase.CLOSED: "green",
    Phase.OPEN: "bold red",
    Phase.HALF_OPEN: "yellow",
    Phase.ISOLATED: "magenta",
}


def table(states: Mapping[str, State], now: datetime) -> Table:
    """Return a table with one row a breaker."""
    made = Table()
    for column in ("breaker", "state", "since", "why", "calls", "failed", "slow", "next probe"):
        made.add_column(column, justify="right" if column in _NUMBERS else "left")
    for name, state in states.items():
        calls, failures, slow = counts(state)
        made.add_row(
            safe(name),
            safe(state.phase.value.replace("_", "-"), _COLOURS[state.phase]),
            safe(ago(state.changed_at, now)),
            safe(state.reason.value if state.reason else ""),
            str(calls), str(failures), str(slow),
            safe(next_probe(state, now)),
        )  # fmt: skip
    return made


_NUMBERS: Final = frozenset({"calls", "failed", "slow"})


def print_detail(name: str, state: State, changes: Sequence[Transition], now: datetime) -> None:
    """Print a breaker and its transitions."""
    out = console()
    out.print(table({name: state}, now))
    for change in changes:
        out.print(safe(line(change)))


def line(change: Transition) -> str:
    """Return *change* as a line."""
    counts_ = change.counts
    judged = f", {counts_.failures} of {counts_.requests} calls failed" if counts_.requests else ""
    by = f", by {change.by}" if change.by else ""
    what = f"{change.before} to {change.after}, {change.reason}"
    return printable(f"{moment(change.at)}  {change.name}: {what}{judged}{by}")


def next_probe(state: State, now: datetime) -> str:
    """Return when a call may be tried, in words."""
    if state.phase is Phase.OPEN and state.retry_at is not None:
        left = state.retry_at - now
        return f"in {span_text(left)}" if left > timedelta(0) else "with the next call"
    if state.phase is Phase.HALF_OPEN:
        out = [probe for probe in state.probes if probe.ends_at > now]
        return f"{len(out)} under way" if out else "with the next call"
    return "not before a reset" if state.phase is Phase.ISOLATED else ""
