from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.memory.facts import MemoryFactLog, MemoryFactOutbox
from angzarr.errors import StoreUnavailable
from angzarr.facts.fact import Fact
from angzarr.facts.fact_text import fact_text
from angzarr.facts.relay import (
    ASKED_EVERY,
    BATCH,
    FIRST_LOOK,
    FIRST_WAIT,
    LAST_LOOK,
    LONGEST_WAIT,
    STUCK_AFTER,
    FactRelay,
)

AT = datetime(2026, 5, 4, tzinfo=UTC)
STEPS = ["put", "turn", "die before", "die after", "away", "other"]


def lines(prefix: str, count: int) -> list[str]:
    return [
        fact_text(Fact(id=f"{prefix}{number}", type="lifecycle", subtype="handled", at=AT))
        for number in range(count)
    ]


class Sink:
    """A place that keeps each id once, and is away while `away`."""

    def __init__(self) -> None:
        self.log = MemoryFactLog()
        self.away = False

    def write(self, facts, /):
        if self.away:
            raise StoreUnavailable("the database of facts is away")
        self.log.append(facts)

    def ids(self) -> list[str]:
        return [fact.id for fact in self.log.read()]


class Duty:
    ours, ended = True, False

    def is_ours(self):
        return self.ours

    def end(self):
        self.ended = True


class Setup:
    def __init__(self, most: int = 10_000) -> None:
        self.now = 1000.0
        self.outbox, self.sink, self.duty = MemoryFactOutbox(most=most), Sink(), Duty()
        self.relay = FactRelay(
            outbox=self.outbox,
            sink=self.sink,
            duty=self.duty,
            chance=lambda: 0.5,
            monotonic=lambda: self.now,
        )

    def turns(self, count: int) -> list[timedelta]:
        waits = []
        for _ in range(count):
            waits.append(self.relay.turn())
            self.now += waits[-1].total_seconds()
        return waits


@pytest.fixture
def setup():
    return Setup()


def test_facts_are_moved_in_order_and_removed_behind_it(setup):
    setup.outbox.put(lines("f", BATCH + 3))
    assert setup.turns(3) == [timedelta(0), FIRST_LOOK, 2 * FIRST_LOOK]
    assert setup.sink.ids() == [f"f{number}" for number in range(BATCH + 3)]
    assert setup.outbox.read(1) == []
    assert setup.relay.counts.moved == BATCH + 3


def test_an_idle_relay_looks_less_often_and_wakes_with_the_first_fact(setup):
    assert setup.turns(8)[-1] == LAST_LOOK
    setup.outbox.put(lines("f", 1))
    assert setup.turns(1) == [FIRST_LOOK]


def test_a_sink_that_is_away_loses_nothing_and_is_told_once_a_minute(setup, caplog):
    setup.outbox.put(lines("f", 5))
    setup.sink.away = True
    with caplog.at_level(logging.WARNING, "angzarr.facts"):
        waits = setup.turns(9)
    assert waits[0] == FIRST_WAIT
    assert waits[-1] == LONGEST_WAIT
    assert caplog.text.count("facts_delayed") == 1
    setup.sink.away = False
    assert setup.turns(1) == [FIRST_LOOK]
    assert len(setup.sink.ids()) == 5


def test_a_relay_that_is_stuck_says_so_to_probes_until_it_moves_again(setup):
    setup.outbox.put(lines("f", 5))
    setup.turns(1)
    setup.outbox.put(lines("g", 5))
    setup.sink.away = True
    setup.turns(1)
    assert setup.relay.trouble() == ""
    setup.now += STUCK_AFTER.total_seconds()
    setup.turns(1)
    assert setup.relay.trouble().startswith("facts wait in the outbox for")
    assert "the database of facts is away" in setup.relay.trouble()
    setup.sink.away = False
    setup.turns(1)
    assert setup.relay.trouble() == ""


def test_a_worker_without_the_duty_moves_nothing_and_asks_now_and_then(setup):
    setup.outbox.put(lines("f", 5))
    setup.duty.ours = False
    assert setup.turns(2) == [ASKED_EVERY, ASKED_EVERY]
    assert setup.sink.ids() == []
    assert setup.relay.counts.depth is None
    setup.duty.ours = True
    setup.turns(1)
    assert len(setup.sink.ids()) == 5


def test_what_is_no_fact_is_told_and_removed_and_holds_up_no_other(setup, caplog):
    hostile = ["", "{", "null", '{"id":"x"}', "[" * 10_000, "\x00\x1b[2J"]
    setup.outbox.put([*hostile, *lines("f", 2)])
    setup.turns(1)
    assert setup.sink.ids() == ["f0", "f1"]
    assert setup.outbox.read(1) == []
    assert setup.relay.counts.refused == len(hostile)
    assert caplog.text.count("fact_refused") == len(hostile)
    assert "\x1b" not in caplog.text


def test_facts_that_were_dropped_are_told_and_counted(caplog):
    setup = Setup(most=10)
    setup.outbox.put(lines("f", 25))
    setup.turns(1)
    assert setup.relay.counts.dropped == 15
    assert "facts_dropped: the outbox is full" in caplog.text


def test_the_last_round_moves_all_that_waits_and_gives_the_duty_away(setup):
    setup.outbox.put(lines("f", 2 * BATCH))
    setup.relay.leave()
    assert len(setup.sink.ids()) == 2 * BATCH
    assert setup.duty.ended


def test_a_last_round_without_a_sink_leaves_the_facts_where_they_are(setup, caplog):
    setup.outbox.put(lines("f", 2))
    setup.sink.away = True
    setup.relay.leave()
    assert len(setup.outbox.read(10)) == 2
    assert setup.duty.ended
    assert "facts_left_in_the_outbox" in caplog.text


@given(
    st.lists(
        st.sampled_from(["put", "turn", "die before", "die after", "away", "other"]), max_size=40
    )
)
def test_whatever_dies_and_whoever_moves_each_fact_arrives_once(story):
    setup, put = Setup(), 0
    relays = [setup.relay, Setup().relay]
    relays[1].outbox, relays[1].sink = setup.outbox, setup.sink
    for step in story:
        setup.sink.away = step == "away"
        if step == "put":
            setup.outbox.put(lines(f"{put}-", 3))
            put += 1
        elif step.startswith("die"):
            die(setup, step)
        else:
            relays[step == "other"].turn()
    setup.sink.away = False
    setup.relay.leave()
    assert setup.sink.ids() == [f"{number}-{one}" for number in range(put) for one in range(3)]


def die(setup: Setup, step: str) -> None:
    """Kill a relay before its sink has the facts, or before they are removed."""
    read = setup.outbox.read(BATCH)
    if step == "die after" and read:
        setup.sink.write(setup.relay._facts(read))
