"""Celery's line about a failed task says what its letter says, where something is hidden."""

from __future__ import annotations

import logging

import pytest

from angzarr.adapters.celery.worker.task_events import ErrorLogFilter, show_error


@pytest.fixture
def log(caplog):
    logger = logging.Logger("tracer")  # noqa: LOG001 - of this test alone
    logger.addHandler(caplog.handler)
    logger.addFilter(ErrorLogFilter())
    return logger


def say(log, task_id):
    said = {"id": task_id, "exc": "ValueError('hunter2')", "traceback": "hunter2"}
    try:
        raise ValueError("hunter2")
    except ValueError:
        log.exception("Task %(id)s: %(exc)s", said, extra={"data": said})


def test_the_line_about_the_task_hides_what_its_letter_hides(log, caplog):
    show_error("t1", "login of [redacted]", "Traceback …")
    say(log, "t1")
    (record,) = caplog.records
    assert record.getMessage() == "Task t1: login of [redacted]\nTraceback …"
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(vars(record))


def test_lines_about_other_tasks_and_later_ones_are_left(log, caplog):
    show_error("t1", "hidden")
    say(log, "t2")
    say(log, "t1")
    say(log, "t1")
    assert [record.getMessage() for record in caplog.records] == [
        "Task t2: ValueError('hunter2')", "Task t1: hidden", "Task t1: ValueError('hunter2')",
    ]  # fmt: skip
    log.warning("no mapping %s %s", "a", "b")
    assert caplog.records[-1].getMessage() == "no mapping a b"
