"""Lines are ours on handlers that Celery made, and a user's own handlers keep their formatters."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from celery.app.log import Logging, TaskFormatter


class Upper(logging.Formatter):
    pass


FORMATTERS = {
    "plain": logging.Formatter("MINE %(message)s"),
    "derived": Upper("MINE %(message)s"),
    "of a task": TaskFormatter("MINE %(task_id)s %(message)s"),
    "none": None,
}


@pytest.fixture
def logged(make_app, monkeypatch):
    """Set up logging as a worker does, with these handlers of the user's on its loggers."""
    names = (None, "celery", "celery.task", "celery.redirected")
    kept = {name: (logging.getLogger(name).handlers[:], logging.getLogger(name).level,
                   logging.getLogger(name).propagate) for name in names}  # fmt: skip
    monkeypatch.setattr(Logging, "_setup", False)

    def setup(handlers, **settings):
        for name in names:
            logging.getLogger(name).handlers = list(handlers.get(name, ()))
        app = make_app(**settings)
        app.log.setup_logging_subsystem(loglevel="INFO")

    yield setup
    for name, (handlers, level, propagate) in kept.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.mark.parametrize("formatter", FORMATTERS.values(), ids=FORMATTERS)
@pytest.mark.parametrize("name", [None, "celery.task"])
def test_a_users_handler_keeps_its_formatter(logged, name, formatter):
    mine = logging.StreamHandler(io.StringIO())
    mine.setFormatter(formatter)
    logged({name: [mine]}, worker_hijack_root_logger=False)
    assert mine in logging.getLogger(name).handlers
    assert mine.formatter is formatter


def _is_stderr(handler):
    return getattr(handler, "stream", None) is sys.__stderr__


@pytest.mark.parametrize("hijack", [True, False])
def test_celerys_own_handlers_write_our_lines(logged, hijack):
    logged({}, worker_hijack_root_logger=hijack)
    for name in (None, "celery.task"):
        celerys = [one for one in logging.getLogger(name).handlers if _is_stderr(one)]
        written = {type(handler.formatter).__name__ for handler in celerys}
        assert written & {"JsonFormatter", "ProcessorFormatter"} == written != set()
