"""The queue of replay outcomes on real brokers: none is lost, however late."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from angzarr import Angzarr
from angzarr.adapters.celery.publish import replay_outcomes
from angzarr.dead_letters.replay_outcome import ReplayOutcome
from angzarr.errors import BrokerUnavailable
from polling import PATIENCE, wait_until
from tcp_proxy import LossyProxy

ALL = [f"l{n}" for n in range(50)]


@pytest.fixture(params=["amqp_url", "redis_url"])
def ends(request, redis_url, unique_name, monkeypatch):
    """Both ends of the queue, on either broker."""
    monkeypatch.setenv("ANGZARR_PREFIX", unique_name)
    app = Angzarr("answers", broker=request.getfixturevalue(request.param), store=redis_url)
    made = app.ops.open_replay_outcomes(), app.ops.open_replay_outcomes()
    yield made
    for end in made:
        end.close()
    app.close()


def put_all(end):
    for name in ALL:
        told = {"letter_id": name, "event_id": name, "handler": "h"}
        end.put(ReplayOutcome(**told, replay=1, outcome="handled"))


def some(end):
    """Receive what there is; a RabbitMQ that is slow to answer is asked again."""
    with suppress(BrokerUnavailable):
        return end.receive(limit=1, wait=timedelta(seconds=1))
    return []


def drain(end, *, between=lambda: None):
    """Receive until all have come; return them in order."""
    taken = []
    until = time.monotonic() + PATIENCE
    while missing := set(ALL) - set(taken):
        assert time.monotonic() < until, f"{sorted(missing)} never came, after {taken}"
        some = end.receive(limit=100, wait=timedelta(seconds=1))
        end.done(some)
        taken += [one.letter_id for one in some]
        between()
    return taken


def test_fifty_answers_are_received_in_order_and_done_ones_stay_away(ends):
    """Not at one time: what a busy machine is late with comes with the next."""
    put_all(ends[0])
    assert drain(ends[0]) == ALL
    # RabbitMQ may forget acknowledgements that a closing connection sends last, and then
    # gives the answers again, which changes nothing; here they have the time to arrive.
    assert ends[0].receive(limit=1, wait=timedelta(seconds=1)) == []
    ends[0].close()
    assert ends[1].receive(limit=100, wait=timedelta(seconds=0.5)) == []


def test_answers_that_are_later_than_one_receive_waits_come_with_the_next(ends, monkeypatch):
    """However short it waits for the next one, and whoever goes away meanwhile."""
    monkeypatch.setattr(replay_outcomes, "_AT_HAND", 1e-6)
    put_all(ends[0])
    assert set(drain(ends[1], between=ends[1].close)) == set(ALL)


def test_answers_that_were_received_and_never_done_come_again(ends):
    put_all(ends[0])
    assert wait_until(lambda: ends[1].receive(limit=20, wait=timedelta(seconds=1)), "some")
    ends[1].close()
    assert set(drain(ends[0])) == set(ALL)


def test_a_rabbitmq_that_does_not_answer_is_given_up_and_asked_again(
    amqp_url, redis_url, unique_name, monkeypatch
):
    """One that comes back ill takes connections and leaves what is asked of them unanswered."""
    monkeypatch.setattr(replay_outcomes, "_ANSWER", 1)
    monkeypatch.setenv("ANGZARR_PREFIX", unique_name)
    place = urlsplit(amqp_url)
    told = ReplayOutcome(letter_id="l", replay=1, outcome="handled", handler="h", event_id="e")
    with LossyProxy(str(place.hostname), place.port or 5672) as proxy:
        login = place.netloc.rpartition("@")[0]
        through = place._replace(netloc=f"{login}@127.0.0.1:{proxy.port}").geturl()
        app = Angzarr("answers", broker=through, store=redis_url)
        ends = app.ops.open_replay_outcomes()
        try:
            ends.put(told)
            ends._open()  # connected and declared; it has not consumed yet
            proxy.stall()
            with pytest.raises(BrokerUnavailable, match="did not answer"):
                ends.receive(limit=1, wait=timedelta(seconds=0.1))
            proxy.mend()
            taken = wait_until(lambda: some(ends), "the answer")
            assert [one.letter_id for one in taken] == ["l"]
            ends.done(taken)
        finally:
            ends.close()
            app.close()
