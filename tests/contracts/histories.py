"""Histories: random sequences of steps that a store is put through, beside a model."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from endurance import SOAKING, longer


def run_histories(machine: type[RuleBasedStateMachine], histories: int, steps: int) -> None:
    """Run so many *histories* of so many *steps* at most; raises what a step asserts.

    `make soak` runs five times as many. Stores take their time, so there is no deadline, and what
    failed is made smaller in `make soak` alone.
    """
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=longer(histories, 5 * histories),
            stateful_step_count=steps,
            deadline=None,
            phases=set(Phase) - (set() if SOAKING else {Phase.shrink}),
            suppress_health_check=list(HealthCheck),
        ),
    )
