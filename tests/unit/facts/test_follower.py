from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.facts import a_fact, facts_of
from tests.hand_clock import HandClock

from angzarr.adapters.memory.fact_reader import MemoryFactReader
from angzarr.adapters.memory.facts import MemoryFactLog
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


def followed(wanted=EVERY, before: list[Fact] | None = None):
    log, clock = MemoryFactLog(), HandClock()
    log.append(before or [])
    reader = SlowToShow(log)
    return log, reader, clock, FactFollower(reader, wanted, clock)


def test_each_fact_is_given_once_in_the_order_of_arrival():
    log, _reader, clock, follower = followed(before=facts_of("old", 3))
    assert ids(follower.before(2)) == ["old-00001", "old-00002"]
    assert ids(follower.look()) == []
    log.append([a_fact("b"), a_fact("a")])
    assert ids(follower.look()) == ["b", "a"]
    clock.sleep(SETTLES)
    assert ids(follower.look()) == []
    log.append([a_fact("c")])
    assert ids(follower.look()) == ["c"]


def test_a_fact_that_appears_after_later_ones_is_given_still():
    log, reader, clock, follower = followed(before=[a_fact("old")])
    reader.hidden = {"slow"}
    log.append([a_fact("slow"), a_fact("quick")])
    assert ids(follower.look()) == ["quick"]
    clock.sleep(SETTLES - timedelta(seconds=1))
    assert ids(follower.look()) == []
    reader.hidden = set()
    assert ids(follower.look()) == ["slow"]
    assert ids(follower.look()) == []


def test_a_fact_that_was_under_way_when_following_began_is_given():
    log, clock = MemoryFactLog(), HandClock()
    log.append([a_fact("slow"), a_fact("quick")])
    reader = SlowToShow(log)
    reader.hidden = {"slow"}
    follower = FactFollower(reader, EVERY, clock)
    assert ids(follower.before(10)) == ["quick"]
    reader.hidden = set()
    assert ids(follower.look()) == ["slow"]


def test_only_what_is_wanted_is_given_and_little_is_remembered():
    log, _reader, clock, follower = followed(FactQuery(tenant_id="mine"))
    for number in range(20):
        log.append([a_fact(f"m{number}", tenant_id="mine"), *facts_of(f"other{number}", 50)])
        clock.sleep(SETTLES)
        assert ids(follower.look()) == [f"m{number}"]
    assert len(follower._seen) <= 2
    assert len(follower._looks) <= 2


def test_more_than_a_page_arrives_between_two_looks():
    log, _reader, _clock, follower = followed()
    log.append(facts_of("many", 2_500))
    assert ids(follower.look()) == ids(facts_of("many", 2_500))
    assert ids(follower.look()) == []


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
        given_ += ids(follower.look())
    clock.sleep(timedelta(seconds=8))
    reader.hidden = set()
    given_ += ids(follower.look())
    assert sorted(given_) == sorted(written)
