"""Lines are ours on handlers that Celery made, and a user's own handlers keep their formatters."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys

import pytest
import structlog
from celery.app.log import Logging, TaskFormatter

from angzarr.adapters.structlog.logs import bound_logger, dress


class Terminal:
    def __init__(self, stream):
        self.write, self.flush = stream.write, stream.flush

    def isatty(self):
        return True


def test_a_line_is_json_with_its_fields_level_logger_and_time(lines):
    bound_logger({"event_id": "e-1"}).info("crm_updated", customer=7)
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "crm_updated",
        "event_id": "e-1",
        "customer": 7,
        "level": "info",
        "logger": "angzarr.handler",
    }


def test_lines_of_plain_loggers_look_the_same(lines):
    logging.getLogger("angzarr.x").warning("held for %d s", 3)
    (line,) = lines()
    assert (line["event"], line["level"], line["logger"]) == (
        "held for 3 s",
        "warning",
        "angzarr.x",
    )


def test_errors_carry_their_traceback(lines):
    try:
        raise ValueError("negative")
    except ValueError:
        bound_logger({}).exception("failed")
    assert "ValueError: negative" in lines()[0]["exception"]


def test_what_is_no_json_is_written_as_text(lines):
    bound_logger({}).info("x", value=object)
    assert lines()[0]["value"] == "<class 'object'>"


def test_levels_of_stdlib_loggers_hold(lines, angzarr_log):
    angzarr_log.setLevel(logging.WARNING)
    bound_logger({}).info("unheard")
    assert lines() == []


def test_a_logger_made_before_the_configuration_follows_it(angzarr_log, stream):
    early = bound_logger({"event_id": "e-1"})
    dress(angzarr_log, json=True)
    early.info("x")
    assert json.loads(stream.getvalue())["event_id"] == "e-1"


def test_a_terminal_gets_text_for_people_and_no_local_variables(angzarr_log, stream):
    angzarr_log.handlers[0].setStream(Terminal(stream))
    dress(angzarr_log)
    password = "hunter2"
    try:
        raise ValueError("negative")
    except ValueError:
        bound_logger({}).exception("failed", attempt=2)
    text = stream.getvalue()
    assert "ValueError: negative" in text
    assert "attempt" in text
    assert password not in text
    assert not text.startswith("{")


def test_what_is_no_terminal_gets_json(angzarr_log, stream):
    dress(angzarr_log)
    bound_logger({}).info("x")
    assert json.loads(stream.getvalue())["event"] == "x"


def test_handlers_with_a_formatter_of_their_own_get_readable_lines(lines, angzarr_log, stream):
    angzarr_log.handlers[0].setFormatter(logging.Formatter("[%(levelname)s] %(message)s"))
    try:
        raise ValueError("negative")
    except ValueError:
        bound_logger({}).exception("event_failed", attempt=2, domain="order")
    first, *rest = stream.getvalue().splitlines()
    assert first == "[ERROR] event_failed attempt=2 domain='order'"
    assert rest[-1] == "ValueError: negative"


def test_an_applications_own_structlog_and_formatters_are_left_alone(angzarr_log, stream):
    structlog.configure(processors=[structlog.processors.KeyValueRenderer(sort_keys=True)])
    dress(angzarr_log, json=True)
    bound_logger({"a": 1}).info("x")
    assert stream.getvalue() == "a=1 event='x'\n"


def test_configure_gives_a_process_without_handlers_json_on_standard_error():
    script = (
        "from angzarr.adapters.structlog.logs import *\n"
        "configure()\nbound_logger({'a': 1}).info('x')\nbound_logger({}).debug('unheard')\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, env=os.environ, text=True
    )
    assert told.stdout == ""
    (line,) = told.stderr.splitlines()
    assert json.loads(line)["a"] == 1


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
