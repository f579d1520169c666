from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.facts import a_fact, facts_of
from tests.hand_clock import HandClock

from angzarr.adapters.memory.fact_reader import MemoryFactReader
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.errors import StoreUnavailable
from angzarr.facts.fact import Fact
from angzarr.facts.follower import SETTLES, FactFollower
from angzarr.facts.query import EVERY, FactQuery


class SlowToShow(MemoryFactReader):
    """Numbers facts when they are written, and shows some later, as databases do."""

    def __init__(self, log: MemoryFactLog) -> None:
        super().__init__(log)
        self.hidden: set[str] = set()

    def _rows(self, wanted):
        return [row for row in super()._rows(wanted) if row[1].id not in self.hidden]


def ids(facts) -> list[str]:
    return [fact.id for fact in facts]


def looked(follower) -> list[str]:
    return [fact.id for some in follower.look() for fact in some]


def followed(wanted=EVERY, before: list[Fact] | None = None):
    log, clock = MemoryFactLog(), HandClock()
    log.append(before or [])
    reader = SlowToShow(log)
    return log, reader, clock, FactFollower(reader, wanted, clock)


def test_each_fact_is_given_once_in_the_order_of_arrival():
    log, _reader, clock, follower = followed(before=facts_of("old", 3))
    assert ids(follower.before(2)) == ["old-00001", "old-00002"]
    assert looked(follower) == []
    log.append([a_fact("b"), a_fact("a")])
    assert looked(follower) == ["b", "a"]
    clock.sleep(SETTLES)
    assert looked(follower) == []
    log.append([a_fact("c")])
    assert looked(follower) == ["c"]


def test_a_fact_that_appears_after_later_ones_is_given_still():
    log, reader, clock, follower = followed(before=[a_fact("old")])
    reader.hidden = {"slow"}
    log.append([a_fact("slow"), a_fact("quick")])
    assert looked(follower) == ["quick"]
    clock.sleep(SETTLES - timedelta(seconds=1))
    assert looked(follower) == []
    reader.hidden = set()
    assert looked(follower) == ["slow"]
    assert looked(follower) == []


def test_a_fact_that_was_under_way_when_following_began_is_given():
    log, clock = MemoryFactLog(), HandClock()
    log.append([a_fact("slow"), a_fact("quick")])
    reader = SlowToShow(log)
    reader.hidden = {"slow"}
    follower = FactFollower(reader, EVERY, clock)
    assert ids(follower.before(10)) == ["quick"]
    reader.hidden = set()
    assert looked(follower) == ["slow"]


def test_only_what_is_wanted_is_given_and_little_is_remembered():
    log, _reader, clock, follower = followed(FactQuery(tenant_id="mine"))
    for number in range(20):
        log.append([a_fact(f"m{number}", tenant_id="mine"), *facts_of(f"other{number}", 50)])
        clock.sleep(SETTLES)
        assert looked(follower) == [f"m{number}"]
    assert len(follower._seen) <= 2
    assert len(follower._looks) <= 2


def test_more_than_a_page_arrives_between_two_looks():
    log, _reader, _clock, follower = followed()
    log.append(facts_of("many", 2_500))
    assert looked(follower) == ids(facts_of("many", 2_500))
    assert looked(follower) == []


def test_a_look_that_breaks_off_is_made_up_for_by_the_next():
    log, reader, _clock, follower = followed()
    log.append(facts_of("many", 1_500))
    whole, look = reader.find, follower.look()
    assert len(next(look)) == 1_000
    reader.find = away
    with pytest.raises(StoreUnavailable):
        next(look)
    reader.find = whole
    assert looked(follower) == ids(facts_of("many", 1_500))[1_000:]


def test_facts_that_were_taken_and_not_done_with_are_given_again():
    log, _reader, _clock, follower = followed()
    log.append([a_fact("a"), a_fact("b")])
    for _some in follower.look():
        break  # as one who cannot go on with them
    assert looked(follower) == ["a", "b"]
    assert looked(follower) == []


def away(*_arguments, **_options):
    raise StoreUnavailable("away")


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 8), st.integers(0, 3)), max_size=12))
def test_nothing_is_given_twice_and_nothing_missed_that_shows_in_time(steps):
    log, reader, clock, follower = followed()
    written, given_, shows = [], [], {}
    for number, (count, hides, pause) in enumerate(steps):
        facts = facts_of(f"s{number}", count)
        log.append(facts)
        written += ids(facts)
        shows[facts[0].id] = clock.now() + timedelta(seconds=hides)
        clock.sleep(timedelta(seconds=pause))
        reader.hidden = {id_ for id_, at in shows.items() if at > clock.now()}
        given_ += looked(follower)
    clock.sleep(timedelta(seconds=8))
    reader.hidden = set()
    given_ += looked(follower)
    assert sorted(given_) == sorted(written)
