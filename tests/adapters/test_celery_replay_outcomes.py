"""The queue of replay outcomes on real brokers: many answers are taken at once."""

from __future__ import annotations

import time
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from adapters.tcp_proxy import LossyProxy
from angzarr import Angzarr
from angzarr.adapters.celery import replay_outcomes
from angzarr.dead_letters.replay_outcome import ReplayOutcome
from angzarr.errors import BrokerUnavailable


@pytest.mark.parametrize("broker", ["amqp_url", "redis_url"])
def test_fifty_answers_are_received_together_and_done_ones_stay_away(
    request, broker, redis_url, unique_name, monkeypatch
):
    monkeypatch.setenv("ANGZARR_PREFIX", unique_name)
    app = Angzarr("answers", broker=request.getfixturevalue(broker), store=redis_url)
    ends = app.open_replay_outcomes(), app.open_replay_outcomes()
    try:
        for n in range(50):
            ends[0].put(
                ReplayOutcome(
                    letter_id=f"l{n}", replay=1, outcome="handled", handler="h", event_id=f"e{n}"
                )
            )
        taken = ends[0].receive(limit=100, wait=timedelta(seconds=5))
        assert [one.letter_id for one in taken] == [f"l{n}" for n in range(50)]
        ends[0].done(taken)
        # RabbitMQ may forget acknowledgements that a closing connection sends last, and then
        # gives the answers again, which changes nothing; here they have the time to arrive.
        assert ends[0].receive(limit=1, wait=timedelta(seconds=1)) == []
        ends[0].close()
        assert ends[1].receive(limit=100, wait=timedelta(seconds=0.5)) == []
    finally:
        for end in ends:
            end.close()
        app.close()


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
        ends = app.open_replay_outcomes()
        try:
            ends.put(told)
            ends._open()  # connected and declared; it has not consumed yet
            proxy.stall()
            began = time.monotonic()
            with pytest.raises(BrokerUnavailable, match="did not answer"):
                ends.receive(limit=1, wait=timedelta(seconds=0.1))
            assert time.monotonic() - began < 20
            proxy.mend()
            taken = ends.receive(limit=1, wait=timedelta(seconds=10))
            assert [one.letter_id for one in taken] == ["l"]
            ends.done(taken)
        finally:
            ends.close()
            app.close()
