from __future__ import annotations

from datetime import UTC, datetime, timedelta

from angzarr.adapters.memory.facts import FanOutFactLog, MemoryFactLog, MemoryFactOutbox
from angzarr.errors import StoreUnavailable
from angzarr.facts.fact import Fact
from angzarr.facts.fact_text import fact_from_text, fact_text
from angzarr.facts.outbox_log import LEFT_ALONE, OutboxFactLog
from polling import wait_until

AT = datetime(2026, 5, 4, tzinfo=UTC)


def a_fact(id="a", **changes) -> Fact:
    return Fact(id=id, type="lifecycle", subtype="handled", at=AT, **changes)


def kept(outbox) -> list[str]:
    return [fact_from_text(one.text).id for one in outbox.read(1000)]


class Shaky(MemoryFactOutbox):
    """An outbox whose store is away while `away`."""

    away = False
    asked = 0

    def put(self, texts, /):
        self.asked += 1
        if self.away:
            raise StoreUnavailable("away")
        super().put(texts)


def log_over(outbox, **options) -> OutboxFactLog:
    return OutboxFactLog(outbox, otherwise=MemoryFactLog(), **options)


def test_facts_that_end_no_claim_are_in_the_outbox_at_once():
    log = log_over(outbox := MemoryFactOutbox())
    log.append([a_fact("a"), a_fact("b")])
    log.append([])
    assert kept(outbox) == ["a", "b"]


def test_facts_of_a_claims_ending_are_left_to_it():
    log = log_over(outbox := MemoryFactOutbox())
    assert log.carry([a_fact()]) == (fact_text(a_fact()),)
    assert kept(outbox) == []


def test_facts_of_a_claim_that_goes_on_are_named_and_not_taken():
    near, outbox = MemoryFactLog(), MemoryFactOutbox()
    log = FanOutFactLog([log_over(outbox), near])
    assert log.lines([a_fact("a"), a_fact("b")]) == (fact_text(a_fact("a")), fact_text(a_fact("b")))
    assert (kept(outbox), near.read()) == ([], [])


def test_while_the_store_is_away_facts_wait_and_nothing_waits_for_it():
    outbox, now = Shaky(), [100.0]
    log = log_over(outbox, monotonic=lambda: now[0])
    outbox.away = True
    log.append([a_fact("a")])
    outbox.away = False
    log.append([a_fact("b")])  # behind the other, whichever thread is quicker
    wait_until(lambda: kept(outbox) == ["a", "b"])
    now[0] += LEFT_ALONE
    asked = outbox.asked
    log.append([a_fact("c")])
    assert (kept(outbox), outbox.asked) == (["a", "b", "c"], asked + 1)
    log.close()


def test_closing_puts_what_waits():
    outbox = Shaky()
    log = log_over(outbox)
    outbox.away = True
    log.append([a_fact("a")])
    outbox.away = False
    log.close()
    assert kept(outbox) == ["a"]


def test_claims_that_keep_no_facts_leave_all_of_them_to_another_log():
    other, outbox = MemoryFactLog(), MemoryFactOutbox()
    log = OutboxFactLog(outbox, otherwise=other, keeps=lambda: False)
    log.append([a_fact("a")])
    assert log.lines([a_fact("b")]) == ()
    assert log.carry([a_fact("b")]) == ()
    assert [fact.id for fact in other.read()] == ["a", "b"]
    assert kept(outbox) == []


def test_a_fact_that_cannot_be_read_holds_up_no_other(caplog):
    class Stubborn:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    log = log_over(MemoryFactOutbox())
    lines = log.carry([a_fact("bad", data={"x": Stubborn()}), a_fact("good")])
    assert [fact_from_text(line).id for line in lines] == ["good"]
    assert "fact_refused" in caplog.text


def test_several_logs_share_one_ending():
    near = MemoryFactLog()
    log = FanOutFactLog([log_over(MemoryFactOutbox()), near])
    assert log.carry([a_fact()]) == (fact_text(a_fact()),)
    assert near.read() == [a_fact()]


def test_a_flush_tells_whether_the_outbox_has_all_of_them():
    outbox = Shaky()
    log = log_over(outbox)
    log.append([a_fact("a")])
    assert log.flush(timedelta(0))
    outbox.away = True
    log.append([a_fact("b")])
    assert not log.flush(timedelta(milliseconds=10))
    outbox.away = False
    log.close()  # or its thread tries again beside all other tests, by chance


def test_several_logs_are_flushed_whatever_one_of_them_does():
    class Broken(MemoryFactLog):
        def flush(self, within, /):
            raise OSError("the disk is full")

    assert FanOutFactLog([MemoryFactLog(), MemoryFactLog()]).flush(timedelta(0))
    assert not FanOutFactLog([Broken(), MemoryFactLog()]).flush(timedelta(0))
