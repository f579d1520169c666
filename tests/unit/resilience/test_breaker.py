"""The breaker's rules (D5), by example and for any history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.resilience.breaker import (
    Barred,
    BreakerProbe,
    BreakerSettings,
    BreakerState,
    Counts,
    Permit,
    Phase,
    TransitionReason,
)
from angzarr.resilience.breaker_rules import (
    FIRST_SHARE,
    LONGEST_SPREAD,
    PROBE_WAIT,
    SLICES,
    UNEVEN,
    CallBatch,
    admit,
    chance_of,
    forgone,
    isolated,
    known,
    probed,
    refuses,
    report,
    reset,
    share,
    transition,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
D5 = BreakerSettings()


def batch(calls: str) -> CallBatch:
    """Return calls that ended: ``+`` well, ``-`` ill, ``s`` well and slow, ``S`` ill and slow."""
    made = CallBatch()
    for call in calls:
        made = made.with_call(ok=call in "+s", slow=call in "sS")
    return made


def ended(
    state: BreakerState, calls: str, now: datetime = START, settings: BreakerSettings = D5
) -> BreakerState:
    """Let calls that were let through in this era end at *now*, one by one."""
    for call in calls:
        state = report(state, state.era, batch(call), now, settings)
    return state


def ask(
    state: BreakerState, token: str, now: datetime, settings: BreakerSettings = D5
) -> tuple[BreakerState, Permit | Barred]:
    return admit(state, "crm", token, now, settings)


def opened() -> BreakerState:
    state = ended(BreakerState(), "-" * 10)
    assert state.phase is Phase.OPEN
    return state


def half_open(call: str = "probe") -> BreakerState:
    state, answer = ask(opened(), call, START + 60 * SECOND)
    assert answer == Permit("crm", 2, call)
    return state


def closed_again(now: datetime = START + 61 * SECOND) -> BreakerState:
    state = half_open("one")
    for token in ("one", "two"):
        state, _ = ask(state, token, now)
        state = probed(state, token, now, D5, ok=True)
    assert state.phase is Phase.CLOSED
    return state


@pytest.mark.parametrize(
    ("calls", "phase"),
    [
        ("-" * 9, Phase.CLOSED),  # below the volume nothing is judged
        ("-" * 10, Phase.OPEN),
        ("+" * 20 + "-" * 4, Phase.CLOSED),
        ("+" * 20 + "-" * 5, Phase.OPEN),  # five in a row
        ("+" * 20 + "----+----", Phase.CLOSED),  # a success sets the count to 0
        ("+-" * 4 + "+", Phase.CLOSED),
        ("+-" * 5, Phase.OPEN),  # half of ten
        ("++-" * 10, Phase.CLOSED),
        ("s" * 30, Phase.CLOSED),  # no call is slow unless it is said what slow is
    ],
)
def test_closed_breaker_opens_by_the_thresholds_of_the_spec(calls: str, phase: Phase) -> None:
    unslow = calls.replace("s", "+")
    assert ended(BreakerState(), unslow).phase is phase


def test_slow_calls_open_it_as_failures_do() -> None:
    assert ended(BreakerState(), "+" * 6 + "s" * 5).phase is Phase.CLOSED
    state = ended(BreakerState(), "+" * 5 + "s" * 5)
    assert state.phase is Phase.OPEN
    assert state.judged == Counts(requests=10, failures=0, successes=10)


@given(st.text("+-sS", max_size=40), st.data())
def test_a_batch_opens_it_if_its_calls_do_one_by_one(calls: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(calls)))
    before = ended(BreakerState(), "+-" * 4)
    at_once = report(before, before.era, batch(calls[cut:]), START, D5)
    one_by_one = ended(before, calls[cut:])
    if at_once.phase is one_by_one.phase is Phase.CLOSED:
        assert at_once == one_by_one
    if at_once.phase is Phase.OPEN:  # judged at its end, a batch opens no healthy breaker
        assert one_by_one.phase is Phase.OPEN


@given(st.text("+-", max_size=30), st.integers(0, 5))
def test_a_batch_knows_its_runs_of_failures(calls: str, before: int) -> None:
    whole = "-" * before + calls
    runs = [len(run) for run in whole.split("+")]
    assert batch(calls).in_a_row(before) == runs[-1]
    assert batch(calls).most_in_a_row(before) == max(runs)


def test_calls_older_than_the_window_do_not_count() -> None:
    state = ended(BreakerState(), "+-" * 4)
    late = START + 61 * SECOND
    assert ended(state, "-", late).phase is Phase.CLOSED
    assert ended(state, "-+" * 4 + "-", late).phase is Phase.CLOSED
    assert ended(state, "-+" * 5, late).phase is Phase.OPEN


def test_open_breaker_refuses_until_its_time_is_up() -> None:
    state, answer = ask(opened(), "t", START + 20 * SECOND)
    assert answer == Barred(retry_after=40 * SECOND, spread=D5.ramp_up)
    assert state.phase is Phase.OPEN
    state, answer = ask(state, "t", START + 60 * SECOND)
    assert isinstance(answer, Permit)
    assert state.phase is Phase.HALF_OPEN


def test_those_who_wait_are_spread_over_the_ramp_up() -> None:
    barred = Barred(retry_after=60 * SECOND, spread=30 * SECOND)
    assert [barred.wait(chance) for chance in (0.0, 0.25, 1.0)] == [
        60 * SECOND, 76.5 * SECOND, 93 * SECOND
    ]  # fmt: skip
    latest = 1.0
    assert Barred(retry_after=60 * SECOND).wait(latest) == 66 * SECOND


@given(st.text(), st.floats(0, 2.9))
def test_who_waited_behind_an_outage_comes_when_the_ramp_up_lets_it_in(
    whose: str, closing: float
) -> None:
    _, barred = ask(opened(), whose, START)
    assert isinstance(barred, Barred)
    comes = START + barred.wait(chance_of(whose))
    closed = closed_again(START + D5.open_for + closing * SECOND)
    if comes >= closed.changed_at:
        assert isinstance(ask(closed, whose, comes)[1], Permit)


def test_the_longer_an_outage_lasts_the_less_often_those_who_wait_ask() -> None:
    state, now, spreads = opened(), START, []
    for _ in range(60):
        now += D5.open_for
        state, permit = ask(state, f"{now}", now)
        assert isinstance(permit, Permit)
        state = probed(state, permit.probe, now, D5, ok=False)
        assert state.ill_since == START
        _, barred = ask(state, "t", now)
        spreads.append(barred.spread)
    assert spreads[:3] == [30 * SECOND, 60 * SECOND, 90 * SECOND]
    assert spreads[-1] == LONGEST_SPREAD
    assert reset(state, now, D5).ill_since is None


def test_half_open_lets_one_probe_through() -> None:
    state = half_open("one")
    now = START + 60 * SECOND
    state, answer = ask(state, "two", now)
    assert answer == Barred(retry_after=PROBE_WAIT, spread=D5.ramp_up)
    _, again = ask(state, "one", now)
    assert again == Permit("crm", 2, "one")


def test_probe_whose_worker_died_does_not_block_the_breaker() -> None:
    late = START + 60 * SECOND + D5.probe_lease
    state, answer = ask(half_open("dead"), "next", late)
    assert isinstance(answer, Permit)
    assert [probe.token for probe in state.probes] == ["next"]
    assert probed(state, "dead", late, D5, ok=False) == state


def test_probe_that_was_not_called_is_free_for_another() -> None:
    now = START + 61 * SECOND
    state, answer = ask(forgone(half_open("one"), "one"), "two", now)
    assert isinstance(answer, Permit)
    assert state.probes == (BreakerProbe("two", now + D5.probe_lease),)


def test_new_calls_are_refused_while_it_is_open_and_while_its_probes_are_out() -> None:
    def refused(state: BreakerState, seconds: float) -> bool:
        return refuses(state, "crm", START + seconds * SECOND, D5)

    assert refused(opened(), 59)
    assert not refused(opened(), 60), "somebody must be able to try it"
    out = half_open("one")
    assert refused(out, 61)
    assert not refused(out, 60 + D5.probe_lease.total_seconds())
    assert not refused(probed(out, "one", START + 61 * SECOND, D5, ok=True), 61), "another may try"
    assert refused(isolated(BreakerState(), START), 10**6)
    assert not refused(BreakerState(), 0)
    assert not refused(closed_again(), 62), "a ramp-up lets some through"


def test_two_successes_close_it_and_forget_the_past() -> None:
    now = START + 61 * SECOND
    state = probed(half_open("one"), "one", now, D5, ok=True)
    assert state.phase is Phase.HALF_OPEN
    state, _ = ask(state, "two", now)
    assert probed(state, "two", now, D5, ok=True) == BreakerState(
        era=3,
        ramp_from=now,
        changed_at=now,
        reason=TransitionReason.THRESHOLD_MET,
        judged=Counts(2, 0, 2),
    )


def test_any_failure_in_half_open_opens_it_again() -> None:
    now = START + 61 * SECOND
    state = probed(half_open("one"), "one", now, D5, ok=True)
    state, _ = ask(state, "two", now)
    state = probed(state, "two", now, D5, ok=False)
    assert state == BreakerState(
        phase=Phase.OPEN, era=3, retry_at=now + D5.open_for, changed_at=now,
        reason=TransitionReason.HALF_OPEN_FAILED, judged=Counts(2, 1, 1), ill_since=START,
    )  # fmt: skip


def test_calls_let_through_before_it_opened_change_nothing() -> None:
    late = START + 61 * SECOND
    for state in (opened(), half_open("one"), closed_again()):
        assert report(state, 0, batch("-" * 50), late, D5) == state


@pytest.mark.parametrize(("passed", "expected"), [(0, 0.1), (15, 0.55), (30, 1.0), (90, 1.0)])
def test_a_closed_breaker_lets_traffic_in_gradually(passed: int, expected: float) -> None:
    state, now = closed_again(START), START + passed * SECOND
    assert share(state, now, D5) == pytest.approx(expected)
    let_through = sum(isinstance(ask(state, f"{n:x}" * 8, now)[1], Permit) for n in range(10_000))
    assert let_through / 10_000 == pytest.approx(expected, abs=0.05)


@given(st.text(min_size=1), st.floats(0, 30))
def test_who_waits_for_its_turn_in_the_ramp_up_gets_it(token: str, passed: float) -> None:
    state, now = closed_again(START), START + passed * SECOND
    _, answer = ask(state, token, now)
    if isinstance(answer, Barred):
        assert timedelta(0) <= answer.retry_after <= D5.ramp_up - (now - START)
        turn = now + answer.retry_after + timedelta(milliseconds=1)
        assert isinstance(ask(state, token, turn)[1], Permit)
    else:
        assert chance_of(token) <= share(state, now, D5)


def test_a_breaker_without_ramp_up_lets_all_through() -> None:
    at_once = BreakerSettings(ramp_up=timedelta(0))
    state = reset(isolated(BreakerState(), START), START, at_once)
    assert all(isinstance(ask(state, f"{n}", START, at_once)[1], Permit) for n in range(100))
    assert FIRST_SHARE < 1


def test_isolated_breaker_stays_open_until_reset() -> None:
    held = isolated(BreakerState(), START)
    state, answer = ask(held, "t", START + timedelta(days=30))
    assert answer == Barred(retry_after=D5.open_for, spread=LONGEST_SPREAD)
    assert ended(state, "+" * 100) == held == isolated(held, START + SECOND)
    state = reset(held, START, D5)
    assert (state.phase, state.reason, state.ramp_from) == (
        Phase.CLOSED,
        TransitionReason.OPERATOR,
        START,
    )


def test_reset_of_a_closed_breaker_forgets_what_it_saw() -> None:
    state = reset(ended(BreakerState(), "-" * 9), START, D5)
    assert state == BreakerState()


def test_every_change_of_phase_is_told_with_what_it_was_judged_by() -> None:
    change = transition("crm", Phase.CLOSED, opened())
    assert change is not None
    assert (change.before, change.after, change.reason, change.era, change.at) == (
        Phase.CLOSED, Phase.OPEN, TransitionReason.THRESHOLD_EXCEEDED, 1, START
    )  # fmt: skip
    assert change.counts == Counts(requests=10, failures=10, successes=0)
    assert transition("crm", Phase.OPEN, opened()) is None


steps = st.lists(
    st.tuples(
        st.sampled_from(["admit", "+", "-", "forgo", "isolate", "reset"]),
        st.integers(0, 4),
        st.floats(0, 90),
    ),
    max_size=120,
)
small = BreakerSettings(
    min_calls=3, failures_in_a_row=2, probes=2, probe_lease=timedelta(seconds=20)
)


def stepped(state: BreakerState, verb: str, token: str, now: datetime) -> BreakerState:
    if verb == "admit":
        return ask(state, token, now, small)[0]
    if verb == "forgo":
        return forgone(state, token)
    if verb == "isolate":
        return isolated(state, now)
    if verb == "reset":
        return reset(state, now, small)
    if any(probe.token == token for probe in state.probes):
        return probed(state, token, now, small, ok=verb == "+")
    return report(state, state.era, batch(verb), now, small)


@given(steps)
def test_any_history_keeps_the_promises(history: list[tuple[str, int, float]]) -> None:
    state, now = BreakerState(), START
    for verb, token, passes in history:
        now += timedelta(seconds=passes)
        before = state
        state = stepped(before, verb, str(token), now)
        _, answer = ask(state, "other", now, small)
        if isinstance(answer, Barred):
            assert answer.retry_after >= timedelta(0)
            assert state.phase is not Phase.CLOSED or state.ramp_from is not None
        if state.phase is not before.phase:
            assert state.era == before.era + 1
            assert transition("crm", before.phase, state) is not None
        live = [probe for probe in state.probes if probe.ends_at > now]
        assert len(live) <= small.probes
        assert not live or state.phase is Phase.HALF_OPEN
        assert len(state.tallies) <= SLICES + 1
        assert (state.retry_at is not None) == (state.phase is Phase.OPEN)
        if before.phase is Phase.OPEN and state.phase is Phase.HALF_OPEN:
            assert before.retry_at is not None
            assert now >= before.retry_at
        if before.phase is Phase.ISOLATED:
            assert state.phase is Phase.ISOLATED or verb == "reset"


@given(steps)
def test_a_breaker_nobody_touches_lets_a_call_through_in_bounded_time(
    history: list[tuple[str, int, float]],
) -> None:
    state, now = BreakerState(), START
    for verb, token, passes in history:
        now += timedelta(seconds=passes)
        if verb != "isolate":
            state = stepped(state, verb, str(token), now)
    later = now + max(small.open_for, small.probe_lease, small.ramp_up)
    assert isinstance(ask(state, "new", later, small)[1], Permit)


# -- a clock that is set back ----------------------------------------------------------------------

EARLIER = START - timedelta(hours=1)


def test_a_breaker_that_opened_in_the_future_may_be_tried() -> None:
    assert known(opened(), "crm", EARLIER, D5) is None
    state, answer = ask(opened(), "t", EARLIER)
    assert isinstance(answer, Permit)
    assert state.phase is Phase.HALF_OPEN


def test_clocks_that_are_a_little_uneven_do_not_end_the_open_time() -> None:
    _, answer = ask(opened(), "t", START - UNEVEN)
    assert answer == Barred(retry_after=D5.open_for + UNEVEN, spread=D5.ramp_up)


def test_a_probe_of_the_future_blocks_nobody() -> None:
    state, answer = ask(half_open("lost"), "next", EARLIER)
    assert answer == Permit("crm", 2, "next")
    assert [probe.token for probe in state.probes] == ["next"]


def test_calls_of_the_future_do_not_count_and_the_window_rolls_on() -> None:
    state = ended(BreakerState(), "+-" * 20)
    for n in range(600):
        state = ended(state, "+", EARLIER + n * SECOND)
        assert len(state.tallies) <= SLICES + 1
    assert sum(tally.calls for tally in state.tallies) <= 62
    assert sum(tally.failures for tally in state.tallies) == 0


def test_a_ramp_up_of_the_future_begins_anew() -> None:
    answers = [ask(closed_again(), f"{n}", EARLIER)[1] for n in range(100)]
    waits = [answer.retry_after for answer in answers if isinstance(answer, Barred)]
    assert timedelta(0) < min(waits) < max(waits) <= D5.ramp_up
    state = ended(closed_again(), "+", EARLIER)
    assert share(state, EARLIER, D5) == pytest.approx(FIRST_SHARE)
    assert share(state, EARLIER + D5.ramp_up, D5) == 1


def test_busy_breaker_stays_small() -> None:
    state = BreakerState()
    for n in range(5_000):
        state = report(state, 0, batch("+"), START + n * timedelta(milliseconds=20), D5)
    assert len(state.tallies) <= SLICES + 1
    assert sum(tally.calls for tally in state.tallies) == pytest.approx(3_000, rel=0.05)


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": timedelta(0)},
        {"probe_lease": -SECOND},
        {"open_for": timedelta(0)},
        {"min_calls": 0},
        {"probes": 0},
        {"successes_to_close": 0},
        {"failures_in_a_row": 0},
        {"failure_share": 0},
        {"failure_share": 1.1},
        {"slow_share": 0},
        {"slow_call": timedelta(0)},
        {"ramp_up": -SECOND},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="breaker settings: "):
        BreakerSettings(**wrong)  # type: ignore[arg-type]
