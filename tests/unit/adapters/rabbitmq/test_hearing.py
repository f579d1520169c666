"""When a silent RabbitMQ is asked, and when its silence counts as a lost connection."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amqp.exceptions import RecoverableConnectionError

from angzarr.adapters.rabbitmq.py_amqp import (
    ANSWERED_WITHIN,
    ASKED_AFTER,
    NOT_READY_AFTER,
    AnswerCheck,
)


class Line:
    """A connection whose other end says what the test says, and its hearing."""

    def __init__(self) -> None:
        self.now, self.asked, self.is_cut = 1000.0, 0, False
        self.bytes_recv, self.blocked = 0, False
        channel = SimpleNamespace(is_open=True, send_method=self._ask)
        self.channels = {0: None, 1: channel}
        self.hearing = AnswerCheck(lambda: self.now)

    def _ask(self, *_: object) -> None:
        self.asked += 1

    def collect(self) -> None:
        self.is_cut = True

    def look(self, after: float, *, heard: bool = False) -> None:
        self.now += after
        self.bytes_recv += heard
        self.hearing.look(self)


def test_a_silent_rabbitmq_is_asked_once_and_lost_when_it_gives_no_answer() -> None:
    line = Line()
    line.look(ASKED_AFTER)
    assert line.asked == 0
    line.look(1)
    line.look(ANSWERED_WITHIN)
    assert line.asked == 1
    with pytest.raises(RecoverableConnectionError, match="said nothing for 27 s"):
        line.look(1)
    assert line.is_cut


def test_any_word_is_an_answer_and_the_silence_begins_anew() -> None:
    line = Line()
    for _ in range(5):
        line.look(ASKED_AFTER + 1)
        line.look(ANSWERED_WITHIN, heard=True)
        assert line.hearing.silence() == 0
    assert line.asked == 5


def test_who_read_nothing_for_long_reads_the_answer_before_the_silence_is_judged() -> None:
    line = Line()
    line.look(ASKED_AFTER + 1)
    line.look(10 * ANSWERED_WITHIN, heard=True)  # a solo pool ran a task meanwhile
    line.look(ASKED_AFTER)


def test_a_rabbitmq_that_reads_nothing_now_is_not_asked_and_not_lost() -> None:
    line = Line()
    line.blocked = True
    for _ in range(10):
        line.look(ASKED_AFTER + ANSWERED_WITHIN)
    assert (line.asked, line.hearing.silence()) == (0, 0)


def test_a_connection_without_a_channel_is_not_asked() -> None:
    line = Line()
    line.channels[1].is_open = False
    for _ in range(3):
        line.look(ASKED_AFTER + ANSWERED_WITHIN)


def test_a_worker_is_not_ready_before_the_connection_counts_as_lost() -> None:
    line = Line()
    line.look(ASKED_AFTER + 1)
    line.now += NOT_READY_AFTER - ASKED_AFTER
    assert line.hearing.silence() > NOT_READY_AFTER
    assert NOT_READY_AFTER < ASKED_AFTER + ANSWERED_WITHIN
