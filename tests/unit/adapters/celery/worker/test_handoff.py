"""A message is handed to its strategy, and acknowledged on the loop's own thread."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from celery.exceptions import InvalidTaskError
from kombu.exceptions import ContentDisallowed, DecodeError

from angzarr.adapters.celery.worker.handoff import Handoff


class Consumer:
    """What a hand-off asks of Celery's consumer; calls that wait for the loop are kept."""

    restart_count = 0
    _maximum_prefetch_restored = False
    on_task_message = ()

    def __init__(self, strategy):
        self.strategies = {"t": strategy}
        self.soon = []
        self.told = []

    def call_soon_ack(self, call, *args):
        self.soon.append((call, args))

    def on_invalid_task(self, _body, _message, error):
        self.told.append(("invalid", type(error)))

    def on_decode_error(self, _message, error):
        self.told.append(("undecodable", type(error)))


def a_message(**headers):
    message = SimpleNamespace(headers={"task": "t", **headers}, ends=[])
    message.ack_log_error = lambda *args: message.ends.append(("ack", args))
    message.reject_log_error = lambda *args: message.ends.append(("reject", args))
    return message


def received(strategy, message=None, **state):
    """Hand a message over; return it and the consumer."""
    consumer, message = Consumer(strategy), message or a_message()
    vars(consumer).update(state)
    Handoff(consumer, lambda one: consumer.told.append(("celery's", one)))(message)
    return message, consumer


def test_a_run_on_the_loops_thread_is_acknowledged_at_once():
    message, consumer = received(lambda _m, _b, ack, _r, _c: ack("log", (OSError,)))
    assert message.ends == [("ack", ("log", (OSError,)))]
    assert consumer.soon == []


def test_another_thread_leaves_it_to_the_loop():
    def strategy(_message, _body, _ack, reject, _callbacks):
        thread = threading.Thread(target=reject, args=("log", (), True))
        thread.start()
        thread.join()

    message, consumer = received(strategy)
    assert message.ends == []
    ((call, args),) = consumer.soon
    call(*args)
    assert message.ends == [("reject", ("log", (), True))]


def test_what_ends_later_is_left_to_the_loop():
    kept = []
    message, consumer = received(lambda _m, _b, ack, _r, _c: kept.append(ack))
    kept[0]("log", ())
    assert message.ends == []
    assert len(consumer.soon) == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [(InvalidTaskError, "invalid"), (ContentDisallowed, "invalid"), (DecodeError, "undecodable")],
)
def test_errors_reach_the_consumer(error, told):
    def strategy(*_):
        raise error("no")

    _, consumer = received(strategy)
    assert consumer.told == [(told, error)]


def test_other_errors_are_raised():
    with pytest.raises(ZeroDivisionError):
        received(lambda *_: 1 / 0)


def test_celery_takes_what_names_no_task_of_ours_and_what_raises_its_prefetch():
    for headers in (None, {}, {"task": "other"}):
        message = a_message()
        message.headers = headers
        assert received(pytest.fail, message)[1].told == [("celery's", message)]
    message, consumer = received(pytest.fail, restart_count=1)
    assert consumer.told == [("celery's", message)]
    restored = {"restart_count": 1, "_maximum_prefetch_restored": True}
    assert received(lambda *_: None, **restored)[1].told == []


def test_those_that_end_before_the_loops_next_turn_wake_it_up_once():
    kept, messages, consumer = [], [a_message(), a_message()], Consumer(None)
    consumer.strategies["t"] = lambda _m, _b, ack, _r, _c: kept.append(ack)
    hand_over = Handoff(consumer, pytest.fail)
    for turn in (1, 2):
        for message in messages:
            hand_over(message)
        while kept:
            kept.pop(0)("log", ())
        assert len(consumer.soon) == turn
        call, args = consumer.soon[-1]
        call(*args)
        assert [len(message.ends) for message in messages] == [turn, turn]
