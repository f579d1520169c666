"""Logging and structlog, put back after each test."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog
from _pytest.logging import LogCaptureHandler

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
    kept = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = [logging.StreamHandler(stream)], False
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers, _, logger.propagate = kept
    logger.setLevel(kept[1])


@pytest.fixture(autouse=True)
def own_formatters(monkeypatch):
    """Keep pytest's own handlers as they are: it puts them on loggers that do not propagate."""
    dressed = logging.Handler.setFormatter

    def set_formatter(handler, formatter):
        if not isinstance(handler, LogCaptureHandler):
            dressed(handler, formatter)

    monkeypatch.setattr(logging.Handler, "setFormatter", set_formatter)


@pytest.fixture
def lines(angzarr_log, stream):
    """Return what was logged as JSON, parsed."""
    dress(angzarr_log, json=True)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
