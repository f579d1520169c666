"""The breaker's rules (D5), by example and for any history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.resilience.breaker import (
    PROBE_WAIT,
    SLICES,
    Barred,
    BreakerSettings,
    Phase,
    State,
    admit,
    isolated,
    record,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
D5 = BreakerSettings()


def ended(state: State, calls: str, now: datetime = START, settings: BreakerSettings = D5) -> State:
    """Let calls end at *now*: ``+`` well, ``-`` ill."""
    for call in calls:
        state = record(state, "t", now, settings, ok=call == "+")
    return state


def opened() -> State:
    state = ended(State(), "-" * 10)
    assert state.phase is Phase.OPEN
    return state


def half_open(call: str = "probe") -> State:
    state, refused = admit(opened(), call, START + 60 * SECOND, D5)
    assert refused is None
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
    ],
)
def test_closed_breaker_opens_by_the_thresholds_of_the_spec(calls: str, phase: Phase) -> None:
    assert ended(State(), calls).phase is phase


def test_calls_older_than_the_window_do_not_count() -> None:
    state = ended(State(), "+-" * 4)
    late = START + 61 * SECOND
    assert ended(state, "-", late).phase is Phase.CLOSED
    assert ended(state, "-+" * 5, late).phase is Phase.CLOSED
    assert ended(state, "-+" * 5 + "-", late).phase is Phase.OPEN


def test_open_breaker_refuses_until_its_time_is_up() -> None:
    state, refused = admit(opened(), "t", START + 20 * SECOND, D5)
    assert refused == Barred(retry_after=40 * SECOND)
    assert state.phase is Phase.OPEN
    state, refused = admit(state, "t", START + 60 * SECOND, D5)
    assert refused is None
    assert state.phase is Phase.HALF_OPEN


def test_half_open_lets_one_probe_through() -> None:
    state = half_open("one")
    now = START + 61 * SECOND
    state, refused = admit(state, "two", now, D5)
    assert refused == Barred(retry_after=PROBE_WAIT)
    _, again = admit(state, "one", now, D5)
    assert again is None


def test_probe_whose_worker_died_does_not_block_the_breaker() -> None:
    late = START + 60 * SECOND + D5.probe_lease
    state, refused = admit(half_open("dead"), "next", late, D5)
    assert refused is None
    assert [probe.token for probe in state.probes] == ["next"]
    assert record(state, "dead", late, D5, ok=False) == state


def test_two_successes_close_it_and_forget_the_past() -> None:
    now = START + 61 * SECOND
    state = record(half_open("one"), "one", now, D5, ok=True)
    assert state.phase is Phase.HALF_OPEN
    state, refused = admit(state, "two", now, D5)
    assert refused is None
    assert record(state, "two", now, D5, ok=True) == State()


def test_any_failure_in_half_open_opens_it_again() -> None:
    now = START + 61 * SECOND
    state = record(half_open("one"), "one", now, D5, ok=True)
    state, _ = admit(state, "two", now, D5)
    state = record(state, "two", now, D5, ok=False)
    assert state == State(phase=Phase.OPEN, retry_at=now + D5.open_for)


def test_calls_let_through_before_it_opened_change_nothing() -> None:
    for state in (opened(), half_open("one")):
        assert ended(state, "+-", START + 61 * SECOND) == state


def test_isolated_breaker_stays_open_until_reset() -> None:
    state, refused = admit(isolated(), "t", START + timedelta(days=30), D5)
    assert refused == Barred(retry_after=D5.open_for)
    assert ended(state, "+" * 100) == isolated()


steps = st.lists(
    st.tuples(st.sampled_from(["admit", "good", "bad"]), st.integers(0, 4), st.floats(0, 90)),
    max_size=120,
)
small = BreakerSettings(
    min_calls=3, failures_in_a_row=2, probes=2, probe_lease=timedelta(seconds=20)
)


@given(steps)
def test_any_history_keeps_the_promises(history: list[tuple[str, int, float]]) -> None:
    state, now = State(), START
    for verb, token, passes in history:
        now += timedelta(seconds=passes)
        before = state
        if verb == "admit":
            state, refused = admit(state, str(token), now, small)
            assert (refused is None) or refused.retry_after > timedelta(0)
            if before.phase is Phase.CLOSED:
                assert refused is None
            if refused is None and state.phase is Phase.HALF_OPEN:
                assert str(token) in {probe.token for probe in state.probes}
        else:
            state = record(state, str(token), now, small, ok=verb == "good")
            if verb == "good":
                assert not (before.phase is Phase.CLOSED and state.phase is Phase.OPEN)
        live = [probe for probe in state.probes if probe.ends_at > now]
        assert len(live) <= small.probes
        assert len(state.tallies) <= SLICES + 1
        assert (state.retry_at is not None) == (state.phase is Phase.OPEN)
        if before.phase is Phase.OPEN and state.phase is not Phase.OPEN:
            assert before.retry_at is not None
            assert now >= before.retry_at


@given(steps)
def test_a_breaker_nobody_touches_lets_a_probe_through_in_bounded_time(
    history: list[tuple[str, int, float]],
) -> None:
    state, now = State(), START
    for verb, token, passes in history:
        now += timedelta(seconds=passes)
        if verb == "admit":
            state, _ = admit(state, str(token), now, small)
        else:
            state = record(state, str(token), now, small, ok=verb == "good")
    later = now + max(small.open_for, small.probe_lease)
    _, refused = admit(state, "new", later, small)
    assert refused is None


def test_busy_breaker_stays_small() -> None:
    state = State()
    for n in range(5_000):
        state = record(state, "t", START + n * timedelta(milliseconds=20), D5, ok=True)
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
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="breaker settings: "):
        BreakerSettings(**wrong)  # type: ignore[arg-type]
