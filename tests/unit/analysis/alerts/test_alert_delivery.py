from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from tests.contracts.alerts import sighting_of
from tests.hand_clock import START, HandClock, seldom_by

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.analysis.alerts.alert import Fate
from angzarr.analysis.alerts.alert_delivery import BREAKER, LEASE, AlertDelivery, patience
from angzarr.errors import LedgerUnavailable
from angzarr.resilience.policies import POLICIES
from angzarr.webhooks import PostResult
from sqlite_ledger import SqliteAlerts

ARRIVED = PostResult(arrived=True)
ILL = PostResult(problem="it answered 500", ill=True)
REFUSED = PostResult(problem="it answered 401")
GONE = PostResult(problem="it answered 410", gone=True)


class FakeSink:
    name = "ops"
    place = "https://hooks.test"

    def __init__(self) -> None:
        self.answers = [ARRIVED]
        self.sent = []
        self.closed = False

    def send(self, alert):
        self.sent.append(alert.id)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self):
        self.closed = True


class Counts(list):
    def tried(self, sink, outcome):
        self.append(outcome)


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def alerts(clock):
    return SqliteAlerts(clock)


@pytest.fixture
def sink():
    return FakeSink()


@pytest.fixture
def worker(alerts, sink, clock):
    def make(**fields):
        known = {
            "sink": sink,
            "alerts": alerts,
            "breakers": InProcessBreakers(default=BREAKER, clock=clock),
            "policy": patience(POLICIES["webhook"]),
            "max_age": timedelta(days=1),
            "clock": clock,
            "chance": lambda: 0.5,
            "meters": Counts(),
            "stopping": lambda: False,
            "seldom": seldom_by(clock),
        }
        return AlertDelivery(**{**known, **fields})

    return make


def raise_(alerts, *names, **fields):
    alerts.raise_([sighting_of(name, "ops", **fields) for name in names])


def told(alerts):
    return {
        listed.alert.fingerprint: (one.fate, one.attempts, one.problem)
        for listed in alerts.get_alerts()
        for one in listed.deliveries
    }


def test_what_arrived_is_noted_and_sent_once(alerts, sink, worker):
    raise_(alerts, "f1", "f2")
    delivery = worker()
    assert delivery.deliver() == 2
    assert delivery.deliver() == 0
    assert len(sink.sent) == 2
    assert told(alerts)["f1"] == (Fate.DELIVERED, 1, "")
    assert delivery.meters == ["delivered", "delivered"]


def test_a_worker_killed_between_send_and_note_sends_it_again_under_the_same_id(
    alerts, sink, worker, clock
):
    raise_(alerts, "f1")
    noted = alerts.delivered
    alerts.delivered = lambda _delivery: (_ for _ in ()).throw(SystemExit)
    with pytest.raises(SystemExit):
        worker().deliver()
    alerts.delivered = noted
    assert worker().deliver() == 0  # the dead one's lease holds
    clock.sleep(LEASE)
    assert worker().deliver() == 1
    first, second = sink.sent
    assert first == second


def test_what_failed_is_tried_again_after_a_pause_that_chance_spreads(alerts, sink, worker, clock):
    raise_(alerts, "f1")
    sink.answers = [ILL, ARRIVED]
    delivery = worker(chance=lambda: 0.99)
    delivery.deliver()
    assert told(alerts)["f1"] == (Fate.WAITING, 1, "it answered 500")
    clock.sleep(timedelta(seconds=4.9))
    assert delivery.deliver() == 0
    clock.sleep(timedelta(seconds=0.1))
    assert delivery.deliver() == 1
    assert told(alerts)["f1"] == (Fate.DELIVERED, 2, "")
    assert delivery.meters == ["failed", "delivered"]


def test_full_jitter_reaches_down_to_nothing(alerts, sink, worker):
    raise_(alerts, "f1")
    sink.answers = [REFUSED]
    delivery = worker(chance=lambda: 0.0)
    assert [delivery.deliver() for _ in range(3)] == [1, 1, 1]


def test_the_pauses_grow_to_five_minutes_and_no_further(alerts, sink, worker, clock):
    raise_(alerts, "f1")
    sink.answers = [REFUSED]
    delivery, pauses = worker(chance=lambda: 1.0), []
    for _ in range(9):
        delivery.deliver()
        waited = 0
        while not alerts.due("ops", limit=1, lease=timedelta(0)):
            clock.sleep(timedelta(seconds=5))
            waited += 5
        pauses.append(waited)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_wish_of_the_receiver_is_heeded(alerts, sink, worker, clock):
    raise_(alerts, "f1")
    sink.answers = [
        PostResult(problem="it answered 429", retry_after=timedelta(minutes=10)),
        ARRIVED,
    ]
    delivery = worker()
    delivery.deliver()
    clock.sleep(timedelta(minutes=9, seconds=59))
    assert delivery.deliver() == 0
    clock.sleep(timedelta(minutes=1))
    assert delivery.deliver() == 1


def test_an_alert_that_is_too_old_is_given_up_and_said(alerts, sink, worker, clock, caplog):
    raise_(alerts, "f1", raised_at=START - timedelta(days=1))
    sink.answers = [REFUSED]
    delivery = worker()
    with caplog.at_level(logging.ERROR):
        delivery.deliver()
    assert told(alerts)["f1"] == (Fate.GIVEN_UP, 1, "it answered 401")
    assert "alert_given_up: ops (https://hooks.test): it answered 401" in caplog.text
    assert delivery.meters == ["given_up"]


def test_an_alert_is_tried_a_last_time_before_it_is_too_old(alerts, sink, worker, clock):
    raise_(alerts, "f1")
    sink.answers = [PostResult(problem="it answered 429", retry_after=timedelta(days=1)), ARRIVED]
    delivery = worker(max_age=timedelta(hours=1))
    delivery.deliver()
    clock.sleep(timedelta(minutes=59))
    assert delivery.deliver() == 0
    clock.sleep(timedelta(minutes=1))
    assert delivery.deliver() == 1
    assert told(alerts)["f1"] == (Fate.DELIVERED, 2, "")


def test_one_that_is_gone_gets_no_more_and_one_line_says_so(alerts, sink, worker, clock, caplog):
    raise_(alerts, "f1", "f2", "f3")
    sink.answers = [GONE]
    delivery = worker()
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            delivery.deliver()
            clock.sleep(timedelta(hours=1))
    assert len(sink.sent) == 1
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["alert_sink_gone"]
    fates = sorted(fate for fate, _, _ in told(alerts).values())
    assert fates == [Fate.GIVEN_UP, Fate.WAITING, Fate.WAITING]
    assert delivery.meters == ["gone"]


def test_the_breaker_spares_an_ill_receiver_and_uses_no_attempts(alerts, sink, worker, clock):
    raise_(alerts, *(f"f{number}" for number in range(8)))
    sink.answers = [ILL]
    delivery = worker()
    for _ in range(20):
        delivery.deliver()
    assert len(sink.sent) == 5
    assert sum(attempts for _, attempts, _ in told(alerts).values()) == 5
    clock.sleep(timedelta(minutes=1))
    sink.answers = [ARRIVED]
    for _ in range(200):
        delivery.deliver()
        clock.sleep(timedelta(seconds=10))
    assert {fate for fate, _, _ in told(alerts).values()} == {Fate.DELIVERED}


def test_a_receiver_that_refuses_is_not_ill(alerts, sink, worker):
    raise_(alerts, *(f"f{number}" for number in range(8)))
    sink.answers = [REFUSED]
    delivery = worker(chance=lambda: 1.0)
    while delivery.deliver():
        pass
    assert len(sink.sent) == 8


def test_failures_are_one_line_a_minute(alerts, sink, worker, clock, caplog):
    raise_(alerts, *(f"f{number}" for number in range(8)))
    sink.answers = [REFUSED]
    delivery = worker()
    with caplog.at_level(logging.ERROR):
        delivery.deliver()
        clock.sleep(timedelta(minutes=1))
        delivery.deliver()
    assert [record.getMessage() for record in caplog.records] == [
        "alert_not_delivered: ops (https://hooks.test): it answered 401; trying again"
    ] * 2


def test_a_worker_that_stops_lets_go_of_what_it_did_not_send(alerts, sink, worker):
    raise_(alerts, "f1", "f2")
    delivery = worker(stopping=lambda: bool(sink.sent))
    delivery.deliver()
    assert len(sink.sent) == 1
    assert worker().deliver() == 1
    assert len(set(sink.sent)) == 2


def test_a_ledger_away_is_waited_for_with_growing_pauses(sink, worker, clock, caplog):
    class Away(SqliteAlerts):
        def due(self, *_args, **_options):
            raise LedgerUnavailable("no ledger at db:5432")

    delivery = worker(alerts=Away(clock))
    with caplog.at_level(logging.ERROR):
        waits = [delivery.turn().total_seconds() for _ in range(12)]
    assert waits[:3] == [0.2, 0.4, 0.8]
    assert max(waits) == 30
    assert len(caplog.records) == 1


def test_turns_follow_at_once_while_there_is_more(alerts, worker):
    raise_(alerts, *(f"f{number}" for number in range(7)))
    delivery = worker()
    assert delivery.turn() == timedelta(0)
    assert delivery.turn() == timedelta(seconds=1.5)


def test_leaving_closes_the_sink(sink, worker):
    worker().leave()
    assert sink.closed
