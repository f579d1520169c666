from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of
from tests.hand_clock import START, HandClock
from tests.judging import breaker, classifier, evidence_of, fared

from angzarr.analysis.classification.evidence import (
    DOUBT,
    MANY,
    DependencyHealth,
    Fit,
    ReplayProblem,
)
from angzarr.analysis.classification.evidence_collector import FRESH, BreakerLook, EvidenceCollector
from angzarr.analysis.ledger.counts import LATELY, PeerReport
from angzarr.analysis.ledger.filing_plan import Undecided, as_stored
from angzarr.analysis.ledger.operator_actions import Verb, acted
from angzarr.analysis.ledger.transition import failed_again, filed
from angzarr.dead_letters.letter import Distrusted, NoTarget
from angzarr.errors import LedgerUnavailable, StoreUnavailable
from angzarr.resilience.breaker import BreakerProbe, BreakerSettings, BreakerState, Phase, Tally


class FakeControls:
    def __init__(self, **states):
        self.found = states
        self.looks = 0
        self.away = False

    def states(self):
        self.looks += 1
        if self.away:
            raise StoreUnavailable("away")
        return self.found


class FakePeers:
    def __init__(self):
        self.asked = []

    def fared(self, handlers, groups, since):
        self.asked.append((list(handlers), list(groups), since))
        return PeerReport(
            handlers={name: fared(events=3) for name in handlers},
            groups={name: fared(events=7) for name in groups},
        )

    def close(self):
        pass


class Place:
    """A gathering among its fakes."""

    def __init__(self, **states):
        self.clock = HandClock()
        self.controls = FakeControls(**states)
        self.handlers = {"orders.sync": ("crm",), "mail.send": (), "both": ("crm", "ledger")}
        self.look = BreakerLook(
            controls=self.controls,
            names_of=self.handlers.get,
            settings_of=lambda _name: BreakerSettings(),
            clock=self.clock,
        )
        self.peers = FakePeers()
        self.releases = 0
        self.gathering = EvidenceCollector(
            peers=self.peers,
            obstacle=lambda failure: "no queue" if failure.handler == "mail.send" else "",
            clock=self.clock,
            breakers=self.look,
            releases=self.look_at_releases,
            decodes=lambda _letter: Fit(fits=True),
        )

    def look_at_releases(self):
        self.releases += 1
        if self.controls.away:
            raise StoreUnavailable("away")
        return lambda handler, release: (handler, release) == ("orders.sync", "1.0")

    def gather(self, *letters):
        return self.gathering.gather([as_stored(filed(one, START).entry, one) for one in letters])


def test_a_batch_of_a_hundred_asks_everybody_once():
    place = Place(crm=BreakerState())
    found = place.gather(*(letter_of(f"e{number}") for number in range(100)))
    assert len(found) == 100
    assert (len(place.peers.asked), place.controls.looks, place.releases) == (1, 1, 1)
    handlers, _groups, since = place.peers.asked[0]
    assert (handlers, since) == (["orders.sync"], START - LATELY)


def test_breakers_are_looked_at_once_a_second_at_most():
    place = Place(crm=BreakerState())
    for _ in range(5):
        place.gather(letter_of())
    assert place.controls.looks == 1
    place.clock.sleep(FRESH)
    place.gather(letter_of())
    assert place.controls.looks == 2


def test_what_is_gathered_is_that_of_the_letter():
    place = Place(crm=BreakerState(tallies=(Tally(START, 10, 4),)))
    one, other = place.gather(letter_of(), letter_of(handler="mail.send", version="2"))
    assert [str(seen) for seen in one.breakers] == ["crm closed, 4 of 10 calls failed"]
    assert (one.breakers_at, other.breakers) == (START, ())
    assert (one.target_problem, other.target_problem) == ("", "no queue")
    assert (one.newer_release, other.newer_release) == (True, False)
    assert (one.handler_fares.events, one.group_fares.events, one.fit.fits) == (3, 7, True)


def test_calls_before_the_window_say_nothing():
    place = Place(crm=BreakerState(tallies=(Tally(START - timedelta(hours=1), 10, 10),)))
    assert place.gather(letter_of())[0].error_share is None


def test_a_breaker_that_ramps_up_is_seen_to():
    place = Place(crm=BreakerState(ramp_from=START))
    assert place.gather(letter_of())[0].breakers[0].ramping
    place.clock.sleep(timedelta(seconds=31))
    assert not place.gather(letter_of())[0].breakers[0].ramping


@pytest.mark.parametrize(
    ("state", "tried"),
    [
        (BreakerState(phase=Phase.OPEN, retry_at=START), True),
        (BreakerState(phase=Phase.OPEN, retry_at=START + timedelta(seconds=1)), False),
        (BreakerState(phase=Phase.OPEN), False),
        (BreakerState(phase=Phase.HALF_OPEN), True),
        (BreakerState(phase=Phase.HALF_OPEN, probes=(BreakerProbe("t", START),)), True),
        (
            BreakerState(phase=Phase.HALF_OPEN, probes=(BreakerProbe("t", START + timedelta(1)),)),
            False,
        ),
        (BreakerState(phase=Phase.ISOLATED, retry_at=START), False),
        (BreakerState(), False),
    ],
)
def test_a_breaker_whose_time_is_up_is_to_be_tried(state, tried):
    assert Place(crm=state).gather(letter_of())[0].breakers[0].to_be_tried is tried


@pytest.mark.parametrize("handler", ["not.registered", "orders.sync"])
def test_breakers_that_nobody_can_tell_of_are_unknown(handler):
    place = Place()  # no call went through crm lately
    (seen,) = place.gather(letter_of(handler=handler))
    assert seen.breakers is None
    assert seen.dependency is DependencyHealth.UNKNOWN


def test_one_open_breaker_is_enough_to_know():
    place = Place(ledger=BreakerState(phase=Phase.OPEN))
    (seen,) = place.gather(letter_of(handler="both"))
    assert seen.dependency is DependencyHealth.ILL


def test_a_domain_that_is_held_back_bars_replays_and_one_that_is_not_says_nothing():
    place = Place(**{"crm": BreakerState(), "wave:order": BreakerState()})
    place.look.wave_of = lambda _handler: "wave:order"
    assert [one.name for one in place.gather(letter_of())[0].breakers] == ["crm"]
    place.controls.found["wave:order"] = BreakerState(phase=Phase.OPEN)
    place.clock.sleep(FRESH)
    for handler in ("orders.sync", "mail.send"):
        assert place.gather(letter_of(handler=handler))[0].dependency is DependencyHealth.ILL


def test_stores_that_are_away_leave_things_unknown():
    place = Place(crm=BreakerState())
    place.controls.away = True
    (seen,) = place.gather(letter_of())
    assert (seen.breakers, seen.newer_release) == (None, None)
    place.controls.away = False
    place.clock.sleep(FRESH)
    assert place.gather(letter_of())[0].breakers


def test_a_flow_store_that_is_away_is_asked_once_for_a_batch():
    place = Place(crm=BreakerState())
    place.controls.away = True
    place.gather(*(letter_of(f"e{number}") for number in range(100)))
    assert place.controls.looks == 1


def test_a_look_that_takes_long_is_taken_once_for_a_batch_and_before_it():
    place = Place(crm=BreakerState())
    states = place.controls.states

    def slowly():
        place.clock.sleep(3 * FRESH)
        return states()

    place.controls.states = slowly
    outlook = place.gathering.look()
    place.clock.sleep(FRESH)
    letters = [letter_of(f"e{number}", handler=name) for number, name in enumerate(
        ["orders.sync", "both"] * 5)]  # fmt: skip
    found = place.gathering.gather(
        [as_stored(filed(one, START).entry, one) for one in letters], outlook
    )
    assert place.controls.looks == 1
    assert {one.breakers_at for one in found if one.breakers is not None} == {START + 3 * FRESH}


def test_what_is_being_filed_counts_as_well_as_what_the_ledger_has():
    place = Place(crm=BreakerState())
    now = [filed(letter_of(f"e{n}", fingerprint="crm"), START).entry for n in range(3)]
    evidence = place.gathering.gather(
        [Undecided(entry, letter_of(entry.event_id), stored=None) for entry in now]
    )
    assert {one.group_fares for one in evidence} == {fared(events=10, failed=4)}
    assert {one.handler_fares for one in evidence} == {fared(events=6, failed=4)}


def test_what_was_handled_and_fails_again_is_no_longer_handled():
    place = Place(crm=BreakerState())
    was = filed(letter_of(), START).entry
    was = acted(was, Verb.RESOLVE, START, "replay 1 (handled)").entry
    place.peers.fared = lambda *_: PeerReport(
        handlers={"orders.sync": fared(events=3, failed=0, handled=2)}
    )
    again = failed_again(was, letter_of(replay=1), START).entry
    (evidence,) = place.gathering.gather([Undecided(again, letter_of(), stored=was)])
    assert evidence.handler_fares == fared(events=3, failed=1, handled=1)


def test_without_the_ledger_nothing_is_decided():
    place = Place()

    def away(*_asked):
        raise LedgerUnavailable("away")

    place.peers.fared = away
    with pytest.raises(LedgerUnavailable):
        place.gather(letter_of())
    assert place.gathering.gather([]) == []


# -- what it adds up to ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "health"),
    [
        ({"breakers": (breaker(),)}, DependencyHealth.WELL),
        ({"breakers": (breaker(calls=10, failures=1),)}, DependencyHealth.WELL),
        ({"breakers": (breaker(calls=10, failures=4),)}, DependencyHealth.UNKNOWN),
        ({"breakers": (breaker(Phase.HALF_OPEN),)}, DependencyHealth.ILL),
        ({"breakers": (breaker(), breaker(Phase.OPEN, "b"))}, DependencyHealth.ILL),
        ({"breakers": (breaker(ramping=True),)}, DependencyHealth.ILL),
        ({"breakers": (breaker(),), "group_fares": fared(9, DOUBT)}, DependencyHealth.UNKNOWN),
        ({"breakers": (breaker(),), "group_fares": fared(9, DOUBT, 9)}, DependencyHealth.WELL),
        ({"breakers": (breaker(Phase.OPEN, to_be_tried=True),)}, DependencyHealth.UNKNOWN),
        ({"breakers": None}, DependencyHealth.UNKNOWN),
        ({"breakers": ()}, DependencyHealth.UNKNOWN),
        ({"breakers": (), "group_fares": fared(9, 1, 2)}, DependencyHealth.WELL),
        ({"breakers": None, "group_fares": fared(9, 2, 2)}, DependencyHealth.UNKNOWN),
    ],
)
def test_the_health_of_a_dependency_is_that_of_its_breakers_or_of_replays(known, health):
    assert evidence_of(**known).dependency is health


@pytest.mark.parametrize(
    ("fares", "passing"),
    [
        (None, None),
        (fared(1, 1), None),
        (fared(90, MANY), False),
        (fared(90, MANY, 1), None),
        (fared(90, 3, 4), True),
    ],
)
def test_whether_others_pass_is_told_only_where_enough_happened(fares, passing):
    assert evidence_of(handler_fares=fares).others_pass is passing


def test_what_stands_against_a_replay_has_a_kind():
    said = ["", NoTarget("no queue"), Distrusted("forged"), "sealed"]
    kinds = [evidence_of(target_problem=one).problem for one in said]
    assert kinds == [
        ReplayProblem.NONE,
        ReplayProblem.NO_TARGET,
        ReplayProblem.DISTRUSTED,
        ReplayProblem.OTHER,
    ]


@pytest.mark.parametrize(
    ("error_type", "own"),
    [
        ("orders.errors.SoldOut", True),
        ("KeyError", False),
        ("httpx.ReadTimeout", False),
        ("", None),
    ],
)
def test_an_own_error_is_one_of_the_handlers_package(error_type, own):
    assert evidence_of(error_type=error_type).own_error is own


def test_pauses_grow_with_the_age_and_end_before_they_are_useless():
    pauses = classifier().pauses
    looks = [
        pauses.look(evidence_of(now=START + timedelta(seconds=age))).total_seconds()
        for age in (0, 120, 600, 86_400)
    ]
    assert looks == [30, 60, 300, 300]
    ill = evidence_of(breakers=(breaker(Phase.OPEN, retry_at=START + timedelta(seconds=260)),))
    assert pauses.look(ill).total_seconds() == 200
    assert pauses.soon() == timedelta(0)
    assert pauses.replay(2).total_seconds() == 60


def test_an_age_is_counted_from_when_the_ledger_believes_that_it_failed():
    letter = replace(letter_of(), last_attempt_at=START + timedelta(days=3650))
    place = Place()
    place.clock.sleep(timedelta(days=8))
    (evidence,) = place.gather(letter)
    assert evidence.age == timedelta(days=8)
