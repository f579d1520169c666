"""Results: kept where they can be, and never a reason to fail a handled event."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import dumps, loads

from angzarr.delivery.claims import MAX_RESULT, Results
from angzarr.errors import DeliveryError

RESULTS = Results(dumps=dumps, loads=loads)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class Printer:
    def __json__(self):
        raise RuntimeError("its own bug")


@given(JSON)
def test_what_is_json_is_kept_and_read_again(value):
    assert RESULTS.duplicate(RESULTS.write(value)).value == value


@pytest.mark.parametrize(
    "value", [None, uuid.UUID(int=1), Decimal("0.10"), datetime(2026, 1, 1, tzinfo=UTC)]
)
def test_what_the_result_backend_can_carry_is_kept(value):
    assert RESULTS.duplicate(RESULTS.write(value)).value == value


@pytest.mark.parametrize("value", [object(), {1: object()}, {(1, 2): 3}, Printer()])
def test_what_is_no_json_is_not_kept_and_logged(value, caplog):
    assert RESULTS.write(value) is None
    assert "result_not_kept" in caplog.text


def test_what_is_too_deep_or_goes_round_is_not_kept():
    cycle, deep = [], []
    cycle.append(cycle)
    for _ in range(100_000):
        deep = [deep]
    assert RESULTS.write(cycle) is None
    assert RESULTS.write(deep) is None


def test_what_is_too_large_is_not_kept():
    assert RESULTS.write("x" * MAX_RESULT) is None
    assert RESULTS.write("x" * (MAX_RESULT - 2)) is not None


def test_an_error_is_told_by_type_and_message():
    told = RESULTS.read_error(RESULTS.write_error(ValueError("negative total")))
    assert isinstance(told, DeliveryError)
    assert "ValueError" in str(told)
    assert "negative total" in str(told)


def test_a_long_error_is_cut():
    assert len(json.loads(RESULTS.write_error(ValueError("x" * 10**6)))["message"]) <= 1000


@pytest.mark.parametrize("text", ["{}", "", "not json", "[]", "5", "null"])
def test_an_error_that_another_release_wrote_is_an_error_all_the_same(text):
    assert isinstance(RESULTS.read_error(text), DeliveryError)
