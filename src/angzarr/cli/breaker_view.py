"""Breakers for people and programs: tables, lines, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from rich.table import Table

from angzarr.cli.entry_view import console, safe
from angzarr.printable import printable
from angzarr.resilience.breaker import Phase, State, Transition

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
    at = change.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    what = f"{change.before} to {change.after}, {change.reason}"
    return printable(f"{at}  {change.name}: {what}{judged}{by}")


def counts(state: State) -> tuple[int, int, int]:
    """Return calls, failures and slow calls within the window."""
    return (
        sum(tally.calls for tally in state.tallies),
        sum(tally.failures for tally in state.tallies),
        sum(tally.slow for tally in state.tallies),
    )


def next_probe(state: State, now: datetime) -> str:
    """Return when a call may be tried, in words."""
    if state.phase is Phase.OPEN and state.retry_at is not None:
        left = state.retry_at - now
        return f"in {_span(left)}" if left > timedelta(0) else "with the next call"
    if state.phase is Phase.HALF_OPEN:
        out = [probe for probe in state.probes if probe.ends_at > now]
        return f"{len(out)} under way" if out else "with the next call"
    return "not before a reset" if state.phase is Phase.ISOLATED else ""


def state_json(name: str, state: State) -> dict[str, Any]:
    """Return a breaker as a JSON object."""
    calls, failures, slow = counts(state)
    return {
        "name": name,
        "state": state.phase.value,
        "changed_at": state.changed_at and state.changed_at.isoformat(),
        "reason": state.reason and state.reason.value,
        "calls": calls,
        "failures": failures,
        "slow": slow,
        "failures_in_a_row": state.in_a_row,
        "retry_at": state.retry_at and state.retry_at.isoformat(),
        "probes": len(state.probes),
        "probe_successes": state.successes,
        "ramp_from": state.ramp_from and state.ramp_from.isoformat(),
    }


def transition_json(change: Transition) -> dict[str, Any]:
    """Return a change as a JSON object."""
    return {
        "at": change.at.isoformat(),
        "previous_state": change.before.value,
        "new_state": change.after.value,
        "reason": change.reason.value,
        "request_count": change.counts.requests,
        "failure_count": change.counts.failures,
        "success_count": change.counts.successes,
        "by": change.by or None,
    }


def ago(at: datetime | None, now: datetime) -> str:
    """Return how long before *now* something was, for people."""
    return "" if at is None else f"{_span(max(now - at, timedelta(0)))} ago"


def _span(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    minutes, left = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
