from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest
from tests.contracts.facts import facts_of

from angzarr.facts.spool import FactSpool
from angzarr.runtime.failures import LogThrottle
from polling import wait_until


class Sink:
    """Writes into a list; away or stuck on demand."""

    def __init__(self):
        self.written = []
        self.tries = 0
        self.away = False
        self.open = threading.Event()
        self.open.set()

    def __call__(self, facts):
        self.tries += 1
        self.open.wait(60)
        if self.away:
            raise ConnectionError("away")
        self.written += facts


@pytest.fixture
def sink():
    sink = Sink()
    yield sink
    sink.open.set()


def test_no_thread_is_started_before_the_first_fact(sink):
    before = threading.active_count()
    spool = FactSpool(sink)
    assert threading.active_count() == before
    spool.append(facts_of("a", 1))
    assert threading.active_count() == before + 1
    spool.close()
    wait_until(lambda: threading.active_count() == before)


def test_a_stuck_sink_blocks_no_append_and_the_oldest_facts_give_way(sink, caplog):
    sink.open.clear()
    spool = FactSpool(sink, most=100, batch=10)
    facts = facts_of("a", 1000)
    spool.append(facts[:10])
    wait_until(lambda: sink.tries == 1)  # ten facts are in the sink's hands
    with caplog.at_level(logging.ERROR, "angzarr.facts"):
        for fact in facts[10:]:  # one that waited for the sink would wait for ever
            spool.append([fact])
    assert spool.dropped == 890
    assert sum("facts_dropped" in record.getMessage() for record in caplog.records) == 1
    sink.open.set()
    spool.close()
    assert sink.written == facts[:10] + facts[-100:]


def test_a_sink_that_comes_back_gets_everything_in_order(sink):
    sink.away = True
    spool = FactSpool(sink, batch=7)
    facts = facts_of("a", 50)
    spool.append(facts)
    wait_until(lambda: sink.tries >= 2)
    sink.away = False
    spool.close()
    assert sink.written == facts
    assert spool.dropped == 0


def test_close_gives_a_stuck_sink_up_in_time(sink, caplog):
    sink.open.clear()
    spool = FactSpool(sink)
    spool.append(facts_of("a", 3))
    with caplog.at_level(logging.ERROR, "angzarr.facts"):
        spool.close(timedelta(seconds=0.2))  # else it would wait for ever
    assert "facts_unwritten" in caplog.text


def test_close_gives_an_absent_sink_up_in_time_and_counts_what_is_lost(sink, caplog):
    sink.away = True
    spool = FactSpool(sink, batch=2)
    spool.append(facts_of("a", 5))
    with caplog.at_level(logging.ERROR, "angzarr.facts"):
        spool.close(timedelta(seconds=0.4))
        wait_until(lambda: spool.dropped == 5)
    assert sink.tries < 20  # tried again, but not without end
    assert "facts_lost: 5" in caplog.text


def test_what_a_stuck_sink_may_have_lost_is_told_once(sink):
    told, facts = [], facts_of("a", 5)
    sink.open.clear()
    spool = FactSpool(sink, batch=2, on_lost=told.append)
    spool.append(facts)
    wait_until(lambda: sink.tries == 1)
    for _ in range(2):
        spool.close(timedelta(seconds=0.1))
    assert told == [facts]


def test_what_an_absent_sink_has_lost_is_told_once(sink):
    told, facts = [], facts_of("a", 5)
    sink.away = True
    spool = FactSpool(sink, batch=2, on_lost=told.append)
    spool.append(facts)
    for _ in range(2):
        spool.close(timedelta(seconds=0.4))
    wait_until(lambda: spool.dropped == 5)
    wait_until(lambda: told)
    assert told == [facts]


def test_what_is_written_is_not_told_as_lost(sink):
    told = []
    spool = FactSpool(sink, on_lost=told.append)
    spool.append(facts_of("a", 5))
    spool.close()
    assert told == []


def test_an_error_of_what_tells_of_losses_ends_no_close(sink, caplog):
    def broken(_lost):
        raise LookupError

    sink.away = True
    spool = FactSpool(sink, on_lost=broken)
    spool.append(facts_of("a", 1))
    spool.close(timedelta(seconds=0.1))
    wait_until(lambda: spool.dropped == 1)
    wait_until(lambda: "lost_facts_not_told" in caplog.text)


def test_facts_that_gather_are_written_together(sink):
    sink.open.clear()
    spool = FactSpool(sink)
    for fact in facts_of("a", 20):
        spool.append([fact])
        wait_until(lambda: sink.tries == 1)  # the first is in the sink's hands
    sink.open.set()
    wait_until(lambda: len(sink.written) == 20)
    assert sink.tries < 20
    spool.close()


def test_seldom_says_yes_once_in_a_while():
    seldom = LogThrottle(0.05)
    assert [seldom.now(), seldom.now()] == [True, False]
    wait_until(seldom.now)


def test_a_flush_waits_until_all_that_came_before_it_is_written(sink):
    spool = FactSpool(sink, batch=10)
    facts = facts_of("a", 25)
    spool.append(facts)
    assert spool.flush(timedelta(seconds=60))
    assert sink.written == facts
    assert spool.flush(timedelta(0)), "there is nothing to wait for"


def test_a_flush_waits_no_longer_than_it_may(sink):
    sink.open.clear()
    spool = FactSpool(sink)
    spool.append(facts_of("a", 1))
    assert not spool.flush(timedelta(milliseconds=10))
    sink.open.set()
    assert spool.flush(timedelta(seconds=60))


def test_a_flush_tells_that_some_gave_way(sink):
    sink.open.clear()
    spool = FactSpool(sink, most=5, batch=5)
    spool.append(facts_of("a", 5))
    wait_until(lambda: sink.tries == 1)
    found = []
    thread = threading.Thread(target=lambda: found.append(spool.flush(timedelta(seconds=60))))
    spool.append(facts_of("b", 5))
    thread.start()
    wait_until(lambda: len(spool._progress._waiters) == 1)
    spool.append(facts_of("c", 5))
    sink.open.set()
    thread.join()
    assert found == [False]
