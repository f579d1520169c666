"""Whoever waits for PostgreSQL and gives up leaves no noise behind."""

from __future__ import annotations

import gc

import psycopg.conninfo
import pytest
from sqlalchemy import make_url

from angzarr.adapters.sql.engine.postgresql import _closed_quietly, connect_options, longest_answer


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


def url(options=None, **more):
    found = make_url("postgresql+psycopg://ann@db/angzarr").update_query_dict(more)
    return found if options is None else found.update_query_dict({"options": options})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (None, "-c statement_timeout=5000 -c lock_timeout=4500"),
        ("-c search_path=app", "-c statement_timeout=5000 -c lock_timeout=4500 -c search_path=app"),
        (("-c a=b", "-c c=d"), "-c statement_timeout=5000 -c lock_timeout=4500 -c a=b -c c=d"),
    ],
)
def test_what_an_address_sets_comes_behind_our_limits(options, told):
    assert connect_options(url(options), 5)["options"] == told


def test_patient_work_has_no_longest_statement_but_that_of_its_address():
    said = connect_options(url("-c statement_timeout=9000"), 5, patient=True)["options"]
    assert said == "-c statement_timeout=0 -c lock_timeout=4500 -c statement_timeout=9000"


def test_other_parameters_of_an_address_win():
    made = connect_options(url(connect_timeout="30"), 5)
    assert "connect_timeout" not in made
    assert made["tcp_user_timeout"] == 5000
    assert psycopg.conninfo.make_conninfo(**made)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (None, 5),
        ("-c search_path=app", 5),
        ("-c lock_timeout=60000", 5),
        ("-c statement_timeout=60000", 60),
        ("-cstatement_timeout=2min", 120),
        ("--statement-timeout=30s", 30),
        ("-c statement_timeout='30s' -c search_path=app", 30),
        ("-c statement_timeout=1", 5),
        ("-c statement_timeout=9000 -c statement_timeout=60000", 60),
        ("-c statement_timeout=0", None),
        ("-c statement_timeout=ever", None),
        ("-c statement_timeout=9fortnights", None),
        ("-c idle_in_transaction_session_timeout=60000", 5),
    ],
)
def test_no_answer_is_waited_for_longer_than_the_address_lets_a_statement_take(options, seconds):
    assert longest_answer(url(options), 5) == seconds
