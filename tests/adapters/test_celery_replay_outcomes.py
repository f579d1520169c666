"""The queue of replay outcomes on real brokers: many answers are taken at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr import Angzarr
from angzarr.dead_letters.replay_outcome import ReplayOutcome


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
