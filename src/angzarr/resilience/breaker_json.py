"""Breakers as JSON, for programs: the command line's `--json` and the HTTP API say the same."""

from __future__ import annotations

from typing import Any

from angzarr.resilience.breaker import State, Transition


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


def counts(state: State) -> tuple[int, int, int]:
    """Return calls, failures and slow calls within the window."""
    return (
        sum(tally.calls for tally in state.tallies),
        sum(tally.failures for tally in state.tallies),
        sum(tally.slow for tally in state.tallies),
    )
