"""The publisher waits for the fleet, and a flood revives nothing."""

from __future__ import annotations

import threading
import time
from itertools import count

import pytest
from tests.unit.chaos.conftest import planned

from angzarr.errors import BrokerUnavailable
from chaos.fates import MAIN, PAIR
from chaos.fleet import NotRunning
from chaos.history import FAILED, SKIPPED, Journal, Reader
from chaos.load import LEAST_RATE, MOST_WAITING
from chaos.publisher import FLOOD, TIMES, Publisher
from chaos.revocations import Revocation
from polling import wait_until


class Sender:
    """Takes what is sent; *fails* are raised first."""

    def __init__(self):
        self.sent, self.fails, self.revoked = [], [], []
        self.heard = threading.Event()

    def send(self, planned):
        if self.fails:
            raise self.fails.pop()
        self.sent.append(planned.id)

    def revoke(self, planned, readiness, until):
        self.revoked.append(planned.id)
        self.heard.wait(max(0.0, until - time.monotonic()))
        up = frozenset(readiness())
        return Revocation(start=0.0, end=1.0, up=up, heard=up)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "history", "w1")


@pytest.fixture
def sender():
    return Sender()


@pytest.fixture
def publisher(sender, tmp_path):
    return Publisher(sender, Reader(tmp_path / "history"), lambda: {"w1": True})


def ran(journal, handler, event, how="ended"):
    """Let the history say that it ran; how="": it has not ended."""
    told = {"handler": handler, "event": event, "attempt": 1, "replay": 0, "hop": 0}
    journal.write("began", run=f"{handler} {event}", worker="w1", pid=1, **told)
    if how:
        journal.write(how, run=f"{handler} {event}")


def publish(publisher, *events, seconds=30.0):
    publisher.start(events, seconds)
    publisher.finish(10)


def test_the_publisher_waits_while_much_waits_and_goes_on_when_it_began(publisher, sender, journal):
    most = int(LEAST_RATE * MOST_WAITING) + 1
    publisher.start([planned("ok", number) for number in range(most + 2)], 30.0)
    wait_until(lambda: publisher.held > 0.5)
    assert len(sender.sent) == most
    for number in range(most):
        ran(journal, MAIN, f"ok-{number}")
    publisher.finish(10)
    assert len(sender.sent) == most + 2


def test_the_stream_ends_with_its_time_however_long_it_is(publisher, sender):
    publish(publisher, planned("expired"), seconds=0.0)
    assert sender.sent == []
    publisher.start((planned("expired", number) for number in count()), 0.2)
    publisher.finish(10)
    assert sender.sent


def test_the_first_of_the_stream_are_sent_however_late_it_is(publisher, sender):
    publisher.start((planned("expired", number) for number in range(9)), 0.0, least=3)
    publisher.finish(10)
    assert sender.sent == ["expired-0", "expired-1", "expired-2"]


def test_what_was_not_confirmed_is_sent_until_it_is(publisher, sender):
    sender.fails = [BrokerUnavailable("away"), OSError()]
    publish(publisher, planned("ok"))
    assert [one.id for one in publisher.published] == sender.sent == ["ok-1"]


def test_an_error_of_the_publisher_ends_the_run(publisher):
    def broken():
        yield planned("ok")
        raise ZeroDivisionError

    publisher.start(broken(), 30.0)
    with pytest.raises(ZeroDivisionError):
        publisher.finish(10)


def test_what_is_revoked_is_sent_when_that_was_heard_and_others_do_not_wait(publisher, sender):
    publisher.start([planned("revoked"), planned("ok", 2)], 30.0)
    wait_until(lambda: sender.sent == ["ok-2"] and sender.revoked == ["revoked-1"])
    sender.heard.set()
    publisher.finish(10)
    assert sender.sent == ["ok-2", "revoked-1"]
    assert publisher.revocations["revoked-1"].up == {"w1"}


def test_a_stream_that_is_never_confirmed_ends_the_run(publisher, sender):
    sender.fails = [OSError() for _ in range(1000)]
    publisher.start([planned("ok")], 30.0)
    with pytest.raises(NotRunning, match="was not published within 0 s"):
        publisher.finish(0.1)


# -- floods ----------------------------------------------------------------------------------------


def test_a_flood_sends_again_only_what_is_known_to_be_handled(publisher, sender, journal):
    fates = ["ok", "transient", "pair", "skip", "delayed", "garbage", "killed", "slow"]
    publish(publisher, *(planned(fate) for fate in fates))
    ran(journal, MAIN, "ok-1")
    ran(journal, MAIN, "skip-1", SKIPPED)
    ran(journal, MAIN, "transient-1", FAILED)
    ran(journal, PAIR[0], "pair-1")  # its other handler has not
    ran(journal, "chaos.lethal", "killed-1")
    ran(journal, MAIN, "slow-1", "")
    before = len(sender.sent)
    assert publisher.flood(3) == FLOOD * TIMES
    assert set(sender.sent[before:]) == {"ok-1", "skip-1"}


def test_a_flood_before_anything_was_handled_sends_nothing(publisher, sender):
    publish(publisher, planned("ok"))
    assert publisher.flood(7) == 0
    assert sender.sent == ["ok-1"]


def test_a_flood_is_drawn_by_its_target(publisher, sender, journal):
    publisher.published = [planned("ok", number) for number in range(FLOOD * 2)]
    for one in publisher.published:
        ran(journal, MAIN, one.id)
    publisher.flood(5)
    assert sender.sent[:FLOOD] == [f"ok-{number}" for number in range(5, 5 + FLOOD)]
