"""Histories: random sequences of steps that a store is put through, beside a model."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from endurance import SOAKING, longer


def run_histories(machine: type[RuleBasedStateMachine], histories: int, steps: int) -> None:
    """Run so many *histories* of so many *steps* at most; raises what a step asserts.

    `make test` runs half as many, `make soak` five times as many, and only `make soak` makes what
    failed smaller. Stores take their time, so there is no deadline.
    """
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=longer(histories // 2, 5 * histories),
            stateful_step_count=steps,
            deadline=None,
            phases=set(Phase) - (set() if SOAKING else {Phase.shrink}),
            suppress_health_check=list(HealthCheck),
        ),
    )
