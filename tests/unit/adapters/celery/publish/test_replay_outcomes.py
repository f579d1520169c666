"""The queue of replay outcomes: both ends, and garbage that nobody can read."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from angzarr.adapters.celery.publish.publisher import CeleryPublisher
from angzarr.adapters.celery.publish.replay_outcomes import CeleryReplayOutcomes
from angzarr.dead_letters.replay_outcome import ReplayOutcome
from angzarr.errors import BrokerUnavailable
from angzarr.events.event import Message

NOW = timedelta(milliseconds=50)
TOLD = {"letter_id": "l", "outcome": "handled", "handler": "h", "event_id": "e", "replay": 1}


@pytest.fixture
def queue(app, unique_name):
    return f"outcomes-{unique_name}"


@pytest.fixture
def outcomes(app, queue):
    opened = []

    def make():
        opened.append(CeleryReplayOutcomes(app, CeleryPublisher(app), queue))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def outcome(n=0):
    return ReplayOutcome(letter_id=f"l{n}", replay=n, outcome="handled", handler="h", event_id="e")


def receive(end, limit=10):
    return end.receive(limit=limit, wait=NOW)


def test_what_is_put_is_received_word_for_word(outcomes):
    end = outcomes()
    for n in range(3):
        end.put(outcome(n))
    told = [replace(one, handle=None) for one in receive(end)]
    assert told == [outcome(n) for n in range(3)]


def test_no_more_than_the_limit_is_taken_and_the_rest_stays(outcomes):
    end = outcomes()
    for n in range(3):
        end.put(outcome(n))
    assert len(receive(end, 2)) == 2
    assert len(receive(end, 2)) == 1


def test_nothing_is_an_empty_list_after_the_wait(outcomes):
    assert receive(outcomes()) == []


def test_what_is_done_does_not_come_back_and_what_is_not_does(outcomes):
    first = outcomes()
    first.put(outcome(1))
    first.put(outcome(2))
    one, _other = receive(first)
    first.done([one])
    first.close()
    assert [back.letter_id for back in receive(outcomes())] == ["l2"]


def test_an_end_that_was_closed_opens_again_and_closes_twice(outcomes):
    end = outcomes()
    end.close()
    end.put(outcome())
    assert len(receive(end)) == 1
    end.close()
    end.close()


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"\xff\xfe", "application/json"),
        (b"not json", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"[]", "application/json"),
        (b"5", "application/json"),
        (b"null", "application/json"),
        (b'{"letter_id": "l"}', "application/json"),
        (json.dumps(TOLD | {"replay": "x"}).encode(), "application/json"),
        (json.dumps(TOLD | {"replay": float("inf")}).encode(), "application/json"),
        (json.dumps(TOLD | {"replay": None}).encode(), "application/json"),
        (b"cos\nsystem\n(S'false'\ntR.", "application/x-python-serialize"),
        (b"\x00\x01", "application/octet-stream"),
        (b"", ""),
    ],
)
def test_garbage_is_let_go_with_a_log_line_and_stops_nobody(
    app, outcomes, queue, body, content_type, caplog
):
    CeleryPublisher(app).publish(
        Message(
            body=body, content_type=content_type, content_encoding="binary", headers={}, queue=queue
        )
    )  # fmt: skip
    end = outcomes()
    end.put(outcome(7))
    assert [one.letter_id for one in receive(end)] == ["l7"]
    assert "replay_outcome_unreadable" in caplog.text
    end.close()
    assert [one.letter_id for one in receive(outcomes())] == ["l7"], "garbage came back"


def test_an_outcome_whose_connection_is_gone_is_not_an_error(outcomes):
    end = outcomes()
    end.put(outcome())
    (taken,) = receive(end)

    def gone():
        raise ConnectionResetError

    taken.handle.ack = gone
    end.done([taken])


def test_a_broker_that_is_away_is_said_without_the_password(make_app):
    app = make_app(broker="amqp://guest:hunter2@127.0.0.1:1//", store="redis://127.0.0.1:1")
    app.conf.task_publish_retry_policy = {"max_retries": 0}
    end = CeleryReplayOutcomes(app, CeleryPublisher(app), "outcomes")
    with pytest.raises(BrokerUnavailable) as caught:
        receive(end)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(BrokerUnavailable) as caught:
        end.put(outcome())
    assert "hunter2" not in str(caught.value)


def test_the_app_opens_both_ends_on_one_queue(app):
    assert "queue" in inspect.signature(CeleryReplayOutcomes.__init__).parameters
    here, there = app.ops.open_replay_outcomes(), app.ops.open_replay_outcomes()
    here.put(outcome(3))
    taken = receive(there)
    there.done(taken)
    there.close()
    assert [one.replay for one in taken] == [3]


def test_outcomes_that_cannot_be_read_are_one_short_line_a_minute(app, outcomes, queue, caplog):
    publisher = CeleryPublisher(app)
    hostile = json.dumps(TOLD | {"replay": "\x1b[2J\n" * 5_000}).encode()
    for _ in range(20):
        publisher.publish(
            Message(body=hostile, content_type="application/json", content_encoding="utf-8",
                    headers={}, queue=queue)
        )  # fmt: skip
    end = outcomes()
    end.put(outcome(7))
    assert [one.letter_id for one in receive(end)] == ["l7"]
    (line,) = [one.getMessage() for one in caplog.records if "unreadable" in one.msg]
    assert len(line) < 300
    assert line.isprintable()
