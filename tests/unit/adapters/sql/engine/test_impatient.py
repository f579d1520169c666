"""Whoever waits for PostgreSQL and gives up leaves no noise behind."""

from __future__ import annotations

import gc

import pytest

from angzarr.adapters.sql.engine.impatient import _closed_quietly


def pipeline(said):
    """What psycopg waits by at the end of a pipeline: cut off, it asks once more, in vain."""
    try:
        yield 1
    finally:
        said.append("asked once more")
        raise ConnectionError("no connection to the server")


def test_steps_that_are_cut_off_are_closed_and_say_nothing(monkeypatch):
    unraisable, said = [], []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    steps = pipeline(said)
    next(steps)
    with pytest.raises(OSError, match="closed"), _closed_quietly(steps):
        raise OSError("the connection is closed")
    del steps
    gc.collect()
    assert said == ["asked once more"]
    assert unraisable == []
