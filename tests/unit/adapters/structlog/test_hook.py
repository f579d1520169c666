from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.adapters.deliveries import (
    TRACE,
    a_delivery,
    all_outcomes,
    breaker_open,
    dead_lettered,
    retried,
)

from angzarr.adapters.structlog.hook import LogHook
from angzarr.adapters.structlog.logs import bound_logger
from angzarr.delivery.context import RUNNING
from angzarr.delivery.delivery import Duplicate, Handled, Skipped, Superseded

NAMES = {"event_id": "e-1", "handler": "shop.sync", "attempt": 2, "trace_id": TRACE}


@pytest.fixture
def settled(lines):
    """Settle one delivery and return its line."""

    def settle(outcome, **headers):
        LogHook().settled(a_delivery(**{"angzarr_attempt": 2} | headers), outcome)
        (line,) = lines()
        return line

    return settle


@pytest.mark.parametrize("outcome", all_outcomes(), ids=lambda one: type(one).__name__)
def test_every_outcome_is_a_line_that_names_the_delivery(settled, outcome):
    line = settled(outcome)
    assert NAMES.items() <= line.items()
    assert line["outcome"]


@pytest.mark.parametrize(
    ("outcome", "level", "event"),
    [
        (Handled(), "info", "event_handled"),
        (Duplicate(), "info", "event_already_processed_skipping"),
        (Superseded(), "info", "event_already_processed_skipping"),
        (Skipped(reason="x"), "warning", "permanent_error_skipping"),
        (breaker_open(), "info", "circuit_breaker_open_postponing"),
        (retried(), "warning", "retrying_after_failure"),
        (dead_lettered(), "error", "event_sent_to_dlq"),
    ],
)
def test_lines_have_the_event_names_that_people_search_for(settled, outcome, level, event):
    line = settled(outcome)
    assert (line["level"], line["event"]) == (level, event)


def test_a_retry_says_when_and_how_often(settled):
    said = {
        "max_attempts": 5,
        "delay_ms": 1500,
        "error_type": "external",
        "error_code": "HTTP_503",
        "error": "crm is down",
    }
    assert said.items() <= settled(retried()).items()


def test_a_dead_letter_says_which_and_why(settled):
    said = {"reason": "exhausted", "domain": "order", "letter_id": "l-1", "error": "crm is down"}
    assert said.items() <= settled(dead_lettered()).items()


def test_a_delivery_without_a_trace_says_so(settled):
    assert settled(Handled(), traceparent="")["trace_id"] is None


def test_lines_within_the_handler_name_the_delivery(lines):
    delivery = a_delivery(angzarr_attempt=2)

    async def work():
        await asyncio.sleep(0)
        logging.getLogger("angzarr.elsewhere").info("from a library")

    LogHook()
    running = RUNNING.set(delivery)
    logging.getLogger("angzarr.elsewhere").info("plain")
    bound_logger({"attempt": 9}).info("own")
    asyncio.run(work())
    RUNNING.reset(running)
    bound_logger({}).info("outside")
    plain, own, library, outside = lines()
    assert NAMES.items() <= plain.items()
    assert NAMES.items() <= library.items()
    assert own["attempt"] == 9
    assert "event_id" not in outside


def test_a_line_that_nobody_wants_is_not_written(lines, angzarr_log):
    angzarr_log.setLevel(logging.ERROR)
    LogHook().settled(a_delivery(), retried())
    assert lines() == []
