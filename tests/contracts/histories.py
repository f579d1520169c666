"""Histories: random sequences of steps that a store is put through, beside a model."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run_histories(machine: type[RuleBasedStateMachine], histories: int, steps: int) -> None:
    """Run so many *histories* of so many *steps* at most; raises what a step asserts.

    Stores take their time, so there is no deadline.
    """
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
