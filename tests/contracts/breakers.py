"""What breakers must do, kept by one process or by a fleet. Adapters' tests subclass this."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import pytest

from angzarr.resilience.breaker import (
    Barred,
    BreakerControls,
    BreakerRefusal,
    Breakers,
    BreakerSettings,
    Counts,
    Permit,
    Phase,
    Transition,
    TransitionReason,
)
from angzarr.resilience.breaker_guard import check_name, keyed
from polling import PATIENCE, wait_until

#: Open time, lease and ramp-up in tests that let them pass on a real server.
SHORT = timedelta(milliseconds=400)
LONG = timedelta(minutes=10)
AT_ONCE = timedelta(0)
CALLERS = 64

DEFAULTS = BreakerSettings()
#: Opens after three failures in a row, and stays open.
TOUCHY = BreakerSettings(min_calls=3, failures_in_a_row=3, failure_share=1, open_for=LONG)


class Shared(Breakers, BreakerControls, Protocol):
    """Both ports."""


@dataclass
class Diary:
    """A `BreakerWatch` that notes what it is told."""

    changes: list[Transition] = field(default_factory=list)
    refusals: list[BreakerRefusal] = field(default_factory=list)

    def changed(self, transition: Transition, /) -> None:
        self.changes.append(transition)

    def refused(self, refusal: BreakerRefusal, /) -> None:
        self.refusals.append(refusal)


@dataclass
class Fleet:
    """Two processes and what their watches were told; they may be one and the same."""

    here: Shared
    there: Shared
    diaries: Sequence[Diary]

    @property
    def changes(self) -> list[tuple[Phase, Phase]]:
        told = [change for diary in self.diaries for change in diary.changes]
        return [(one.before, one.after) for one in sorted(told, key=lambda one: one.era)]

    @property
    def refusals(self) -> list[BreakerRefusal]:
        return [refusal for diary in self.diaries for refusal in diary.refusals]


MakeFleet = Callable[..., Fleet]


def fresh() -> str:
    return uuid.uuid4().hex


def call(breakers: Breakers, name: str, calls: str, took: timedelta = AT_ONCE) -> None:
    """Make calls that end well (``+``) or ill (``-``); all of them must be let through."""
    for ended in calls:
        permit = breakers.admit(name, fresh())
        assert isinstance(permit, Permit), f"refused: {permit}"
        breakers.record(permit, ok=ended == "+", took=took)


def refused(breakers: Breakers, name: str) -> Barred | None:
    """Return how *breakers* refuse a call, None if they let it through."""
    answer = breakers.admit(name, fresh())
    if isinstance(answer, Barred):
        return answer
    breakers.forgo(answer)
    return None


def new_calls_refused(fleet: Fleet, *, so: bool) -> None:
    """Wait until each process has heard whether new calls would be refused."""
    for breakers in (fleet.here, fleet.there):
        wait_until(lambda asked=breakers: asked.refuses("crm") is so, f"refused: {so}")


def phase(breakers: BreakerControls, name: str) -> Phase:
    return breakers.states()[name].phase


class BreakersContract:
    """Subclasses give `make_fleet` ((settings by name, default) → Fleet) and `let_pass`."""

    @pytest.fixture
    def make_fleet(self) -> MakeFleet:
        raise NotImplementedError

    @pytest.fixture
    def let_pass(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    @pytest.fixture
    def half_open(self, make_fleet, let_pass) -> Callable[..., Fleet]:
        """Return a fleet whose breaker "crm" was open long enough to be tried."""

        def make(**settings: Any) -> Fleet:
            given = {"probe_lease": LONG, "ramp_up": AT_ONCE} | settings
            fleet = make_fleet(
                default=BreakerSettings(min_calls=1, failures_in_a_row=1, open_for=SHORT, **given)
            )
            call(fleet.here, "crm", "-")
            wait_until(lambda: refused(fleet.there, "crm"), "the other process knows")
            let_pass(SHORT)
            return fleet

        return make

    # -- opening ---------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("settings", "healthy", "last"),
        [
            ({"min_calls": 3, "failures_in_a_row": 3, "failure_share": 1}, "--+--", "-"),
            ({"min_calls": 6, "failures_in_a_row": 2}, "-----", "-"),
            ({"min_calls": 4, "failure_share": 0.5, "failures_in_a_row": 99}, "++-+-", "-"),
            ({"min_calls": 6, "failure_share": 0.5, "failures_in_a_row": 99}, "-----", "-"),
        ],
    )
    def test_opens_by_failures_in_a_row_or_share_of_enough_calls(
        self, make_fleet, settings, healthy, last
    ):
        breakers = make_fleet(default=BreakerSettings(**settings)).here
        call(breakers, "crm", healthy)
        assert refused(breakers, "crm") is None
        call(breakers, "crm", last)
        assert refused(breakers, "crm")
        assert phase(breakers, "crm") is Phase.OPEN

    def test_opens_by_slow_calls(self, make_fleet):
        slow = BreakerSettings(min_calls=4, slow_call=timedelta(seconds=2), slow_share=0.5)
        fleet = make_fleet(default=slow)
        call(fleet.here, "crm", "++", took=timedelta(seconds=1.9))
        call(fleet.here, "crm", "+", took=timedelta(seconds=2))
        assert refused(fleet.here, "crm") is None
        call(fleet.here, "crm", "+", took=timedelta(seconds=2))
        assert refused(fleet.here, "crm")
        assert fleet.diaries[0].changes[0].counts == Counts(requests=4, failures=0, successes=4)

    def test_failures_of_all_processes_count_together(self, make_fleet):
        fleet = make_fleet(default=TOUCHY)
        call(fleet.here, "crm", "--")
        call(fleet.there, "crm", "-")
        assert phase(fleet.here, "crm") is Phase.OPEN
        wait_until(lambda: refused(fleet.here, "crm"), "the other process knows")

    def test_calls_older_than_the_window_do_not_count(self, make_fleet, let_pass):
        fleet = make_fleet(default=BreakerSettings(window=SHORT, min_calls=2, failures_in_a_row=9))
        call(fleet.here, "crm", "-")
        let_pass(SHORT)
        call(fleet.here, "crm", "-")
        assert refused(fleet.here, "crm") is None
        call(fleet.here, "crm", "-")
        assert refused(fleet.here, "crm")

    def test_settings_hold_for_their_name_only(self, make_fleet):
        fleet = make_fleet(settings={"touchy": BreakerSettings(min_calls=1, failures_in_a_row=1)})
        for name in ("touchy", "crm"):
            call(fleet.here, name, "-")
        assert refused(fleet.here, "touchy")
        assert refused(fleet.here, "crm") is None

    def test_settings_of_a_name_hold_for_each_of_its_keys(self, make_fleet):
        fleet = make_fleet(settings={"touchy": BreakerSettings(min_calls=1, failures_in_a_row=1)})
        odd = keyed("touchy", "acme: corp\u202e\ud800" + "x" * 1000)
        call(fleet.here, odd, "-")
        assert refused(fleet.here, odd)
        assert refused(fleet.here, keyed("touchy", "other")) is None
        assert phase(fleet.there, odd) is Phase.OPEN

    # -- open ------------------------------------------------------------------------------------

    def test_open_breaker_says_when_to_ask_again(self, make_fleet):
        fleet = make_fleet(default=TOUCHY)
        call(fleet.here, "crm", "---")
        for breakers in (fleet.here, fleet.there):
            barred = wait_until(lambda asked=breakers: refused(asked, "crm"), "it is open")
            assert LONG - timedelta(seconds=PATIENCE) < barred.retry_after <= LONG
            assert barred.spread == TOUCHY.ramp_up
            assert isinstance(breakers.known("crm"), Barred)

    def test_calls_let_through_before_it_opened_change_nothing(self, half_open):
        fleet = half_open(successes_to_close=1)
        early = Permit("crm", 0)
        fleet.here.record(early, ok=False, took=AT_ONCE)
        probe = fleet.here.admit("crm", "probe")
        fleet.there.record(early, ok=False, took=AT_ONCE)
        assert phase(fleet.here, "crm") is Phase.HALF_OPEN
        fleet.here.record(probe, ok=True, took=AT_ONCE)
        for _ in range(3):
            fleet.here.record(early, ok=False, took=AT_ONCE)
        assert phase(fleet.here, "crm") is Phase.CLOSED

    # -- half-open -------------------------------------------------------------------------------

    @pytest.mark.parametrize("probes", [1, 3])
    def test_half_open_gives_exactly_so_many_probes(self, half_open, probes):
        fleet = half_open(probes=probes)
        gate = threading.Barrier(CALLERS)

        def ask(number: int) -> Permit | Barred:
            gate.wait(timeout=60)
            return (fleet.here, fleet.there)[number % 2].admit("crm", f"call {number}")

        with ThreadPoolExecutor(CALLERS) as pool:
            answers = list(pool.map(ask, range(CALLERS)))
        permits = [answer for answer in answers if isinstance(answer, Permit)]
        assert len(permits) == probes
        assert len({permit.probe for permit in permits}) == probes
        assert all(permit.probe for permit in permits)
        waits = [answer.retry_after for answer in answers if isinstance(answer, Barred)]
        assert all(AT_ONCE < wait <= timedelta(seconds=1) for wait in waits)

    def test_probe_that_is_asked_for_again_is_the_same(self, half_open):
        fleet = half_open()
        probe = fleet.here.admit("crm", "mine")
        assert fleet.here.admit("crm", "mine") == probe
        assert fleet.there.admit("crm", "mine") == probe
        assert isinstance(fleet.there.admit("crm", "another"), Barred)

    def test_probe_of_the_dead_is_given_to_another_and_says_nothing_any_more(
        self, half_open, let_pass
    ):
        fleet = half_open(probe_lease=SHORT)
        dead = fleet.here.admit("crm", "dead")
        assert isinstance(fleet.there.admit("crm", "next"), Barred)
        let_pass(SHORT)
        after = fleet.there.admit("crm", "next")
        assert isinstance(after, Permit)
        assert after.probe == "next"
        fleet.here.record(dead, ok=False, took=AT_ONCE)
        assert phase(fleet.here, "crm") is Phase.HALF_OPEN

    def test_probe_that_was_not_called_is_free_for_another(self, half_open):
        fleet = half_open()
        fleet.here.forgo(fleet.here.admit("crm", "one"))
        assert isinstance(fleet.there.admit("crm", "two"), Permit)
        assert isinstance(fleet.here.admit("crm", "three"), Barred)

    def test_what_was_not_called_counts_for_nothing(self, make_fleet):
        fleet = make_fleet(default=TOUCHY)
        call(fleet.here, "crm", "--")
        permit = fleet.here.admit("crm", fresh())
        fleet.here.forgo(permit)
        assert fleet.here.states()["crm"].in_a_row == 2

    @pytest.mark.parametrize("called", [True, False])
    def test_new_calls_are_refused_while_a_probe_is_out(self, half_open, called):
        fleet = half_open(successes_to_close=2)
        new_calls_refused(fleet, so=False)
        probe = fleet.here.admit("crm", fresh())
        new_calls_refused(fleet, so=True)
        if called:
            fleet.here.record(probe, ok=True, took=AT_ONCE)
        else:
            fleet.here.forgo(probe)
        new_calls_refused(fleet, so=False)

    def test_new_calls_are_refused_while_it_is_isolated(self, make_fleet):
        fleet = make_fleet()
        fleet.here.isolate("crm", by="ann@desk")
        new_calls_refused(fleet, so=True)
        assert not fleet.here.refuses("another")
        fleet.here.reset("crm", by="ann@desk")
        new_calls_refused(fleet, so=False)

    def test_enough_successes_close_it(self, half_open):
        fleet = half_open(successes_to_close=2)
        for breakers, expected in ((fleet.here, Phase.HALF_OPEN), (fleet.there, Phase.CLOSED)):
            probe = breakers.admit("crm", fresh())
            breakers.record(probe, ok=True, took=AT_ONCE)
            assert phase(fleet.here, "crm") is expected
        for breakers in (fleet.here, fleet.there):
            wait_until(lambda asked=breakers: asked.known("crm"), "all are let through")
            call(breakers, "crm", "+++")

    @pytest.mark.parametrize("took", [AT_ONCE, timedelta(seconds=2)], ids=["ill", "slow"])
    def test_a_bad_probe_opens_it_again(self, half_open, took):
        fleet = half_open(slow_call=timedelta(seconds=1))
        fleet.here.record(fleet.here.admit("crm", "one"), ok=True, took=AT_ONCE)
        fleet.here.record(fleet.here.admit("crm", "two"), ok=bool(took), took=took)
        assert refused(fleet.here, "crm")
        (change,) = fleet.here.history(1)
        assert (change.reason, change.counts) == (
            TransitionReason.HALF_OPEN_FAILED,
            Counts(2, 1, 1),
        )

    # -- ramp-up ---------------------------------------------------------------------------------

    def test_traffic_is_let_in_gradually(self, half_open):
        fleet = half_open(successes_to_close=1, ramp_up=LONG)
        fleet.here.record(fleet.here.admit("crm", "probe"), ok=True, took=AT_ONCE)
        answers = [fleet.here.admit("crm", fresh()) for _ in range(500)]
        through = [answer for answer in answers if isinstance(answer, Permit)]
        assert 10 < len(through) < 120, "about a tenth"
        assert {permit.probe for permit in through} == {""}
        waits = [answer.retry_after for answer in answers if isinstance(answer, Barred)]
        assert all(AT_ONCE < wait <= LONG for wait in waits)
        assert fleet.here.known("crm") is None

    def test_after_the_ramp_up_all_are_let_through(self, half_open, let_pass):
        fleet = half_open(successes_to_close=1, ramp_up=SHORT)
        fleet.here.record(fleet.here.admit("crm", "probe"), ok=True, took=AT_ONCE)
        let_pass(SHORT)
        for breakers in (fleet.here, fleet.there):
            call(breakers, "crm", "+" * 100)
            assert isinstance(breakers.known("crm"), Permit)

    # -- what people do --------------------------------------------------------------------------

    def test_isolated_breaker_stays_open_until_it_is_reset(self, make_fleet, let_pass):
        soon = BreakerSettings(open_for=SHORT, ramp_up=AT_ONCE)
        fleet = make_fleet(default=soon)
        fleet.here.isolate("crm", by="ann@desk")
        let_pass(2 * SHORT)
        for breakers in (fleet.here, fleet.there):
            assert refused(breakers, "crm").retry_after == soon.open_for
        fleet.there.reset("crm", by="bob")
        for breakers in (fleet.here, fleet.there):
            wait_until(lambda asked=breakers: not refused(asked, "crm"), "it is closed")

    def test_history_says_who_did_what(self, make_fleet):
        fleet = make_fleet(default=BreakerSettings(min_calls=1, failures_in_a_row=1))
        assert list(fleet.here.history(10)) == []
        fleet.here.isolate("crm", by="ann@desk")
        fleet.here.isolate("crm", by="late")
        fleet.there.reset("crm", by="bób")
        fleet.there.reset("crm", by="late")
        call(fleet.here, "mail", "-")
        told = [(one.name, one.after, one.reason, one.by) for one in fleet.here.history(10)]
        assert told == [
            ("crm", Phase.ISOLATED, TransitionReason.OPERATOR, "ann@desk"),
            ("crm", Phase.CLOSED, TransitionReason.OPERATOR, "bób"),
            ("mail", Phase.OPEN, TransitionReason.THRESHOLD_EXCEEDED, ""),
        ]
        assert [one.name for one in fleet.there.history(1)] == ["mail"]
        assert [one for diary in fleet.diaries for one in diary.changes if one.name == "crm"] == (
            list(fleet.here.history(10))[:2]
        )

    def test_reset_forgets_what_a_closed_breaker_saw(self, make_fleet):
        fleet = make_fleet(default=TOUCHY)
        call(fleet.here, "crm", "--")
        fleet.there.reset("crm", by="ann")
        call(fleet.here, "crm", "--")
        assert refused(fleet.here, "crm") is None
        assert fleet.changes == []

    def test_reset_lets_traffic_in_gradually(self, make_fleet):
        fleet = make_fleet(default=BreakerSettings(ramp_up=LONG))
        fleet.here.isolate("crm", by="ann")
        fleet.here.reset("crm", by="ann")
        answers = [fleet.here.admit("crm", fresh()) for _ in range(100)]
        assert sum(isinstance(answer, Barred) for answer in answers) > 0

    def test_states_show_every_breaker(self, make_fleet):
        fleet = make_fleet(settings={"unused": TOUCHY}, default=TOUCHY)
        call(fleet.here, "crm", "-")
        fleet.there.isolate("mail", by="ann")
        states = fleet.there.states()
        assert {name: state.phase for name, state in states.items()} == {
            "unused": Phase.CLOSED, "crm": Phase.CLOSED, "mail": Phase.ISOLATED,
        }  # fmt: skip
        assert sum(tally.failures for tally in states["crm"].tallies) == 1

    def test_phases_are_those_of_the_breakers_in_use(self, make_fleet):
        fleet = make_fleet(default=TOUCHY)
        call(fleet.here, "crm", "---")
        call(fleet.here, "mail", "-")
        assert fleet.here.phases() == {"crm": Phase.OPEN, "mail": Phase.CLOSED}

    # -- watching --------------------------------------------------------------------------------

    def test_a_transition_is_told_once_to_one_process(self, half_open):
        fleet = half_open(successes_to_close=1)
        probes = [site.admit("crm", fresh()) for _ in range(9) for site in fleet_of(fleet)]
        (probe,) = [one for one in probes if isinstance(one, Permit)]
        fleet.there.record(probe, ok=True, took=AT_ONCE)
        fleet.here.isolate("crm", by="ann")
        wait_until(lambda: refused(fleet.there, "crm"), "the other process knows")
        assert fleet.changes == [
            (Phase.CLOSED, Phase.OPEN),
            (Phase.OPEN, Phase.HALF_OPEN),
            (Phase.HALF_OPEN, Phase.CLOSED),
            (Phase.CLOSED, Phase.ISOLATED),
        ]

    def test_many_failures_at_once_open_it_once(self, make_fleet):
        fleet = make_fleet(default=TOUCHY)
        permits = [(site, site.admit("crm", fresh())) for site in fleet_of(fleet)] * (CALLERS // 2)
        gate = threading.Barrier(CALLERS)

        def fail(given: tuple[Breakers, Permit]) -> None:
            gate.wait(timeout=60)
            given[0].record(given[1], ok=False, took=AT_ONCE)

        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(fail, permits))
        assert fleet.changes == [(Phase.CLOSED, Phase.OPEN)]

    def test_refusals_are_told_at_most_once_a_minute(self, make_fleet):
        fleet = make_fleet(default=TOUCHY)
        fleet.here.isolate("crm", by="ann")
        fleet.here.isolate("mail", by="ann")
        for site in fleet_of(fleet):
            wait_until(lambda asked=site: refused(asked, "crm"), "it is open")
            for _ in range(5):
                assert refused(site, "crm")
        assert refused(fleet.there, "mail")
        assert [one.name for one in fleet.refusals] == ["crm", "mail"]
        assert {one.phase for one in fleet.refusals} == {Phase.ISOLATED}
        assert fleet.refusals[0].retry_after == TOUCHY.open_for

    def test_many_refusals_at_once_are_told_once(self, make_fleet):
        fleet = make_fleet(default=TOUCHY)
        fleet.here.isolate("crm", by="ann")
        gate = threading.Barrier(CALLERS)

        def ask(number: int) -> object:
            gate.wait(timeout=60)
            return refused(fleet_of(fleet)[number % 2], "crm")

        with ThreadPoolExecutor(CALLERS) as pool:
            assert all(pool.map(ask, range(CALLERS)))
        assert [one.name for one in fleet.refusals] == ["crm"]

    # -- names -----------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "odd", ["crm.eu-1", "größe", "日本語", "🚀", "{tag}", "*?[a]", "back\\slash%s", "x" * 200]
    )
    def test_any_name_without_space_or_colon_is_a_name(self, make_fleet, odd):
        fleet = make_fleet(default=BreakerSettings(min_calls=1, failures_in_a_row=1))
        name = check_name(odd)
        assert refused(fleet.there, name) is None
        call(fleet.here, name, "-")
        wait_until(lambda: refused(fleet.there, name), "the other process knows")
        assert phase(fleet.there, name) is Phase.OPEN
        assert [one.name for one in fleet.there.history(9)] == [name]

    @pytest.mark.parametrize("token", ["ü 🚀", "a b:c", "'\"\\", "x" * 1000])
    def test_any_token_is_a_token(self, half_open, token):
        fleet = half_open(successes_to_close=1)
        probe = fleet.here.admit("crm", token)
        assert isinstance(probe, Permit)
        fleet.here.record(probe, ok=True, took=AT_ONCE)
        assert phase(fleet.there, "crm") is Phase.CLOSED


def fleet_of(fleet: Fleet) -> tuple[Shared, Shared]:
    return fleet.here, fleet.there
