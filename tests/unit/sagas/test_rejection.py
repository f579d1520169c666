"""A rejection on its way to its source: the message that carries it, and what is read from it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Origin
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Priority
from angzarr.events.headers import from_headers, to_headers
from angzarr.sagas.rejection import Rejection, from_event, rejection_of, to_event

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
COMMAND = Command(
    event=Event(
        id="c-1", type="SeatPlayer", data={"player_id": "p-1"}, domain="table", root="t-1",
        correlation_id="flow", causation_id="e-1", tenant_id="acme", priority=Priority.REALTIME,
        config_pins={"rules": "7"}, traceparent="00-a-b-01", depth=4, sequence=9,
    ),
    origin=Origin(saga="seating", source=Address("player", "p-1"), sequence=3),
)  # fmt: skip


def rejected(command=COMMAND, reason="full"):
    return rejection_of(command, command.origin, reason, NOW)


def over_the_wire(event):
    """Return *event* as whoever takes its message sees it."""
    data = json.loads(json.dumps(event.data))
    return from_headers(to_headers(event), data=data, event_id="?", type="?")


def test_the_message_goes_to_the_source_in_the_flow_of_the_command():
    event = to_event(rejected())
    assert (event.domain, event.root, event.edition) == ("player", "p-1", None)
    assert (event.correlation_id, event.causation_id) == ("flow", "c-1")
    assert (event.tenant_id, event.priority) == ("acme", Priority.REALTIME)
    assert (event.config_pins, event.traceparent) == ({"rules": "7"}, "00-a-b-01")
    assert event.depth == COMMAND.event.depth + 1
    assert event.sequence is None, "a notification is no page of a book"


def test_the_same_command_has_the_same_rejection():
    assert rejected().id == rejected(reason="closed").id
    other = Command(event=Event(id="c-2", type="t", data={}), origin=COMMAND.origin)
    assert rejected().id != rejected(other).id


def test_what_is_read_again_leads_to_the_same_message():
    event = over_the_wire(to_event(rejected()))
    assert to_event(from_event(event)) == event


_key = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)
_domain = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)
_maybe = st.none() | _key
_address = st.builds(Address, _domain, _key, st.just("") | _key)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
_commands = st.builds(
    Event, id=_key, type=_key, data=_json, domain=_domain, root=_key, edition=_maybe,
    correlation_id=_maybe, tenant_id=_maybe, traceparent=_maybe,
    priority=st.sampled_from(Priority), config_pins=st.dictionaries(_key, _key, max_size=2),
    depth=st.integers(0, 1000),
)  # fmt: skip
_origins = st.builds(Origin, saga=_key, source=_address, sequence=st.integers(0, 2**30))


@st.composite
def _rejections(draw):
    origin = draw(_origins)
    return Rejection(
        id=draw(_key), command=Command(event=draw(_commands), origin=origin), origin=origin,
        reason=draw(st.text()), rejected_at=draw(st.datetimes(timezones=st.just(UTC))),
    )  # fmt: skip


@given(_rejections())
def test_a_rejection_travels_unchanged(rejection):
    assert from_event(over_the_wire(to_event(rejection))) == rejection


def forms(value, path=()):
    """Yield the path to every field of *value*, down to those of the source and the command."""
    for name, inner in value.items():
        yield (*path, name)
        if isinstance(inner, dict) and name != "data":
            yield from forms(inner, (*path, name))


def with_field(data, path, change):
    data = json.loads(json.dumps(data))
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    change(inner, path[-1])
    return data


DATA = to_event(rejected()).data
OPTIONAL = {("command", "edition"), ("command", "data"), ("source", "edition"),
            ("command", "causation_id"), ("rejection_id",)}  # fmt: skip


def refused(data):
    with pytest.raises(DecodeError, match="is not a notification of a rejection: ") as caught:
        from_event(Event(id="r", type="angzarr.Notification", data=data, domain="player"))
    return str(caught.value)


@pytest.mark.parametrize("path", sorted(set(forms(DATA)) - OPTIONAL), ids=".".join)
def test_a_missing_field_is_named(path):
    said = refused(with_field(DATA, path, lambda inner, name: inner.pop(name)))
    assert ".".join(path) in said


@pytest.mark.parametrize("odd", [["s3cret"], {"s3cret": "s3cret"}], ids=["list", "object"])
@pytest.mark.parametrize(
    "path", sorted(set(forms(DATA)) - {("command", "data"), ("source",), ("command",)}),
    ids=".".join,
)  # fmt: skip
def test_an_odd_field_is_named_and_its_value_is_not(path, odd):
    said = refused(with_field(DATA, path, lambda inner, name: inner.__setitem__(name, odd)))
    assert ".".join(path) in said
    assert "s3cret" not in said


@pytest.mark.parametrize("data", [None, [], "s3cret", 7, {}, {"s3cret": 1}, [[DATA]]], ids=repr)
def test_what_is_no_notification_at_all_is_refused(data):
    assert "s3cret" not in refused(data)


@pytest.mark.parametrize("odd", [-1, 2**32, 10**30])
def test_a_sequence_that_no_book_could_have_is_refused(odd):
    assert "source_sequence" in refused({**DATA, "source_sequence": odd})


def test_a_time_without_a_zone_is_refused():
    assert "rejected_at" in refused({**DATA, "rejected_at": "2026-01-01T12:00:00"})


@given(st.sampled_from(sorted(forms(DATA))), _json)
def test_whatever_stands_in_a_field_it_is_a_rejection_or_an_error_of_ours(path, odd):
    data = with_field(DATA, path, lambda inner, name: inner.__setitem__(name, odd))
    with suppress(DecodeError):
        from_event(Event(id="r", type="angzarr.Notification", data=data))


@pytest.mark.parametrize(
    "source",
    [{"domain": "player", "root": ""}, {"domain": "player", "root": "a\x00b"},
     {"domain": "player", "root": "x" * 256}, {"domain": "player", "root": "\ud800"},
     {"domain": "player", "root": "p-1", "edition": "\n"},
     {"domain": "", "root": "p-1"}, {"domain": "No Domain", "root": "p-1"}],
    ids=lambda source: repr(source)[:60],
)  # fmt: skip
def test_a_source_that_no_store_could_keep_is_refused(source):
    assert "source" in refused({**DATA, "source": source})


@pytest.mark.parametrize("odd", [{"domain": "No Domain"}, {"root": ""}, {"edition": "\x00"}])
def test_a_target_that_no_store_could_keep_is_refused(odd):
    assert "command" in refused({**DATA, "command": {**DATA["command"], **odd}})


@pytest.mark.parametrize("id", ["", "x" * 256, "a\x00", "\ud800"], ids=ascii)
def test_an_id_that_no_store_could_keep_is_refused(id):
    with pytest.raises(DecodeError, match="its id does not fit"):
        from_event(replace(to_event(rejected()), id=id))


def test_the_depth_is_that_of_the_message_whatever_its_body_says():
    """A body that says less would make a circle that much longer."""
    event = to_event(rejected())
    event.data["command"]["depth"] = -1_000_000
    assert to_event(from_event(event)).depth == event.depth


def test_deeply_nested_data_travels_too():
    nested: list = []
    for _ in range(600):
        nested = [nested]
    command = Command(
        event=Event(id="c", type="t", data=nested, domain="table", root="t"),
        origin=COMMAND.origin,
    )
    assert from_event(to_event(rejected(command))).command.event.data == nested
