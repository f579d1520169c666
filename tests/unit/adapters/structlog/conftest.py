"""Logging and structlog, put back after each test."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from angzarr.adapters.structlog.logs import dress


@pytest.fixture(autouse=True)
def own_structlog():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def angzarr_log(stream):
    """The logger `angzarr` with a handler of its own, at INFO."""
    logger = logging.getLogger("angzarr")
    handler = logging.StreamHandler(stream)
    kept = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers, logger.propagate = kept[0], kept[2]
    logger.setLevel(kept[1])


@pytest.fixture
def lines(angzarr_log, stream):
    """Return what was logged as JSON, parsed."""
    dress(angzarr_log, json=True)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
