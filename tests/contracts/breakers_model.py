"""Random histories of one breaker end in a store as the pure rules say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from angzarr.resilience import breaker_rules as rules
from angzarr.resilience.breaker import (
    Barred,
    BreakerSettings,
    BreakerState,
    Permit,
    Phase,
    Transition,
)
from contracts.histories import run_histories

MS = timedelta(milliseconds=1)
NAME = "crm"

tokens = st.sampled_from(["t1", "t2", "t3"])
calls = st.text("+-sS", max_size=12) | st.sampled_from(["-", "--", "----", "+"])
#: Spans that a history can cross, since each step is judged at the store's own time.
spans = st.integers(5, 40).map(lambda number: number * MS)
kinds = st.builds(
    BreakerSettings,
    window=st.sampled_from([30 * MS, 50 * MS, timedelta(minutes=1)]),
    min_calls=st.integers(1, 6),
    failures_in_a_row=st.integers(1, 5),
    failure_share=st.sampled_from([0.5, 1 / 3, 1.0, 1.0]),
    slow_call=st.just(timedelta(seconds=1)),
    slow_share=st.sampled_from([0.3, 1.0]),
    open_for=spans,
    probes=st.integers(1, 3),
    probe_lease=spans,
    successes_to_close=st.integers(1, 3),
    ramp_up=st.just(timedelta(0)) | spans,
)


class Reply(NamedTuple):
    """What a step of the store returned, and the store's time at which it was judged."""

    now: datetime
    state: BreakerState
    permitted: bool
    wait: timedelta


class Subject(NamedTuple):
    """A store's new breaker called `NAME`."""

    #: Run one step, as `breaker.lua` calls it, with what it takes.
    step: Callable[..., Reply]
    #: What its watch was told.
    told: Sequence[Transition]
    #: What its history says.
    history: Callable[[], Sequence[Transition]]
    #: Set the store's clock back: all that it noted lies so much later.
    set_back: Callable[[timedelta], object]


def batch_of(ended: str) -> rules.CallBatch:
    """Return calls: ``+`` went well, ``-`` ill, ``s`` well and slowly, ``S`` ill and slowly."""
    batch = rules.CallBatch()
    for call in ended:
        batch = batch.with_call(ok=call in "+s", slow=call in "sS")
    return batch


def later(state: BreakerState, span: timedelta) -> BreakerState:
    """Return *state* as if its clock had been set back by *span* since."""

    def moved(moment: datetime | None) -> datetime | None:
        return moment and moment + span

    return replace(
        state,
        tallies=tuple(one._replace(began_at=one.began_at + span) for one in state.tallies),
        probes=tuple(one._replace(ends_at=one.ends_at + span) for one in state.probes),
        ramp_from=moved(state.ramp_from),
        retry_at=moved(state.retry_at),
        ill_since=moved(state.ill_since),
        changed_at=moved(state.changed_at),
    )


def compare_with_rules(
    make: Callable[[BreakerSettings], Subject], *, histories: int = 150, steps: int = 40
) -> None:
    """Run random histories on new breakers and on the rules, side by side."""

    class Histories(RuleBasedStateMachine):
        @initialize(kind=kinds)
        def begin(self, kind: BreakerSettings) -> None:
            self.kind = kind
            self.subject = make(kind)
            self.state = BreakerState()
            self.expected: list[Transition] = []

        def same(self, reply: Reply, state: BreakerState, by: str = "") -> None:
            change = rules.transition(NAME, self.state.phase, state, by)
            self.expected += [change] if change else []
            self.state = state
            assert reply.state == state

        @rule(token=tokens)
        def admit(self, token: str) -> None:
            reply = self.subject.step("admit", token)
            state, answer = rules.admit(self.state, NAME, token, reply.now, self.kind)
            self.same(reply, state)
            if state.phase is Phase.CLOSED:
                assert reply.permitted  # who asks ramps up by itself
            elif isinstance(answer, Permit):
                assert reply.permitted
                assert answer.probe == token
            else:
                assert isinstance(answer, Barred)
                assert not reply.permitted
                assert reply.wait == answer.retry_after

        @rule(ended=calls, eras_ago=st.sampled_from([0, 0, 0, 1]))
        def report(self, ended: str, eras_ago: int) -> None:
            batch, era = batch_of(ended), self.state.era - eras_ago
            reply = self.subject.step("report", era, *batch)
            self.same(reply, rules.report(self.state, era, batch, reply.now, self.kind))

        @rule(token=tokens, ok=st.sampled_from([True, True, False]))
        def probed(self, token: str, ok: bool) -> None:  # noqa: FBT001 - hypothesis gives it so
            reply = self.subject.step("probed", token, int(ok))
            self.same(reply, rules.probed(self.state, token, reply.now, self.kind, ok=ok))

        @rule(token=tokens, waits=st.booleans(), ok=st.sampled_from([True, True, True, False]))
        def probe(self, token: str, waits: bool, ok: bool) -> None:  # noqa: FBT001 - as above
            """Ask and answer at once, or hardly any history closes its breaker."""
            if waits and self.state.phase is Phase.OPEN:
                time.sleep(self.kind.open_for.total_seconds())
            self.admit(token)
            self.probed(token, ok)

        @rule(token=tokens)
        def forgo(self, token: str) -> None:
            self.same(self.subject.step("forgo", token), rules.forgone(self.state, token))

        @rule(by=st.sampled_from(["ann", "bób", ""]), chance=st.integers(0, 3))
        def isolate(self, by: str, chance: int) -> None:
            if not chance:  # seldom, or hardly anything else is tried
                reply = self.subject.step("isolate", by)
                self.same(reply, rules.isolated(self.state, reply.now), by)

        @rule(by=st.sampled_from(["ann", "bób", ""]))
        def reset(self, by: str) -> None:
            reply = self.subject.step("reset", by)
            self.same(reply, rules.reset(self.state, reply.now, self.kind), by)

        @rule()
        def look(self) -> None:
            self.same(self.subject.step("look"), self.state)

        @rule(span=st.integers(1, 25))
        def wait(self, span: int) -> None:
            time.sleep(span / 1000)

        @rule(span=st.sampled_from([5 * MS, timedelta(seconds=1), timedelta(hours=1)]))
        def set_back(self, span: timedelta) -> None:
            self.subject.set_back(span)
            self.state = later(self.state, span)

        @invariant()
        def every_change_was_told_once(self) -> None:
            assert list(self.subject.told) == self.expected

        def teardown(self) -> None:
            assert list(self.subject.history()) == self.expected

    run_histories(Histories, histories, steps)
