"""Where a command comes from survives its headers, and ids follow from causes (C4)."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import (
    Command,
    Origin,
    id_after,
    origin_headers,
    origin_of,
    task_of,
)
from angzarr.events import headers as names
from angzarr.events.event import Event
from angzarr.events.headers import MAX_SEQUENCE

text = st.text(st.characters(), min_size=1)
origins = st.builds(
    Origin,
    saga=text,
    source=st.builds(Address, text, text, st.just("") | text),
    sequence=st.integers(0, MAX_SEQUENCE),
)
anything = st.none() | st.text() | st.integers() | st.floats() | st.binary() | st.lists(st.none())


@given(origins)
def test_an_origin_is_read_from_its_headers(origin):
    assert origin_of(origin_headers(origin)) == origin


def test_no_origin_has_no_headers():
    assert origin_headers(None) == {}
    assert origin_of({}) is None


@given(origins, st.sampled_from([names.SAGA, names.SOURCE_DOMAIN, names.SOURCE_ROOT,
                                 names.SOURCE_SEQUENCE]))  # fmt: skip
def test_half_an_origin_is_none(origin, missing):
    headers = origin_headers(origin)
    del headers[missing]
    assert origin_of(headers) is None


@given(st.dictionaries(st.sampled_from([
    names.SAGA, names.SOURCE_DOMAIN, names.SOURCE_ROOT, names.SOURCE_SEQUENCE,
    names.SOURCE_EDITION,
]), anything))  # fmt: skip
def test_forged_headers_are_an_origin_or_none(headers):
    origin = origin_of(headers)
    if origin is not None:
        assert all(isinstance(one, str) for one in (origin.saga, *origin.source))
        assert 0 <= origin.sequence <= MAX_SEQUENCE


@given(st.text(st.characters()), st.text(st.characters()), st.integers(0, 9), st.integers(0, 9))
def test_an_id_follows_from_its_cause_and_place_alone(one, other, here, there):
    made = id_after(one, "account", "a", "", here)
    assert made == id_after(one, "account", "a", "", here)
    assert uuid.UUID(made)
    if (one, here) != (other, there):
        assert made != id_after(other, "account", "a", "", there)


def test_ids_do_not_depend_on_where_parts_are_cut():
    assert id_after("c", "a", "bc") != id_after("c", "ab", "c")
    assert id_after("c\x00a", "b") != id_after("c", "a", "b")


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({}, Address("", "", "")),
        ({"domain": "account", "root": "a"}, Address("account", "a", "")),
        ({"domain": "account", "root": "a", "edition": "x"}, Address("account", "a", "x")),
    ],
)
def test_a_command_is_what_its_event_says(fields, address):
    command = Command(event=Event(id="c", type="T", data=None, sequence=3, **fields))
    assert (command.id, command.expected, command.address) == ("c", 3, address)


def test_the_task_of_a_command_needs_no_import():
    assert task_of("account", "Deposit") == "command.account.Deposit"
