"""A log that cannot be written costs no time and no message, and is counted."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from types import SimpleNamespace

import pytest
from celery.utils.log import LoggingProxy

from angzarr.adapters.structlog.log_loss import LogLoss


@pytest.fixture
def clock():
    return SimpleNamespace(now=100.0)


@pytest.fixture
def loss(clock):
    return LogLoss(lambda: clock.now)


@pytest.fixture
def logger():
    logger = logging.getLogger("test.log_loss")
    logger.propagate = False
    yield logger
    logger.handlers.clear()
    logger.propagate = True


class Raw(io.RawIOBase):
    """A descriptor without a buffer, which keeps nothing that could fail again at its end."""

    def __init__(self, number):
        self._number = number

    def writable(self):
        return True

    def write(self, data):
        return os.write(self._number, data)

    def close(self):
        if not self.closed:
            os.close(self._number)
        super().close()


def text_on(number):
    return io.TextIOWrapper(Raw(number), write_through=True)


def full():
    return text_on(os.open("/dev/full", os.O_WRONLY))


def broken_pipe():
    read, write = os.pipe()
    os.close(read)
    return text_on(write)


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.fixture
def stderr_is_a_logger(monkeypatch, logger):
    """As in a worker: what is printed is logged, by the same handlers."""
    monkeypatch.setattr(sys, "stderr", LoggingProxy(logger, "WARNING"))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (full, os.strerror(errno.ENOSPC)), (broken_pipe, os.strerror(errno.EPIPE)),
        (closed, "its stream is closed"),
    ],
)  # fmt: skip
def test_each_line_that_is_lost_is_tried_once_and_counted(
    loss, logger, stderr_is_a_logger, make, says
):
    stream, tried = make(), []
    handler = logging.StreamHandler(stream)
    emit = handler.emit
    handler.emit = lambda record: (tried.append(record), emit(record))
    logger.addHandler(handler)
    loss.guard()
    for _ in range(10):
        logger.error("a line")
    assert (len(tried), loss.lines) == (10, 10), "no traceback is logged in its turn"
    assert loss.says() == f"10 lines could not be written: {says}"


def test_who_has_lost_nothing_for_a_minute_says_nothing(loss, clock):
    assert loss.says() == ""
    loss.note(OSError(errno.ENOSPC, "full"))
    assert loss.says()
    clock.now += 61
    assert loss.says() == ""
    assert loss.lines == 1


def test_what_is_wrong_with_a_line_itself_is_shown_as_ever(loss, logger):
    shown = []
    handler = logging.StreamHandler(io.StringIO())
    handler.handleError = shown.append
    logger.addHandler(handler)
    loss.guard()
    loss.guard()
    handler.handle(logging.LogRecord("t", logging.ERROR, "f", 1, "%d lines", ("no",), None))
    assert (len(shown), loss.lines) == (1, 0)


def test_a_child_counts_for_its_parent(loss):
    if not (pid := os.fork()):
        loss.note(OSError(errno.EPIPE, "gone"))
        os._exit(0)
    os.waitpid(pid, 0)
    assert loss.lines == 1
