"""A rejection as it is kept and told: each asking has an id, the rejection has one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.rejections import a_rejection

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import _IDS, Command, Origin, id_after
from angzarr.delivery.sealed_origin import SealedOrigin
from angzarr.errors import DecodeError
from angzarr.events.event import Event, Priority
from angzarr.sagas.escalation import escalation_id
from angzarr.sagas.rejection import (
    Rejection,
    from_event,
    read_rejection,
    rejection_of,
    to_event,
    written_rejection,
)

_some = st.text(min_size=1, max_size=20)
_maybe = st.none() | _some
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_domains = st.sampled_from(["player", "table", "a.b-c"])
_keys = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=255)
_events = st.builds(
    Event, id=_some, type=_some, data=_json, domain=_domains, root=_keys,
    edition=st.none() | _keys,
    correlation_id=_maybe, causation_id=_maybe, tenant_id=_maybe, traceparent=_maybe,
    priority=st.sampled_from(Priority), config_pins=st.dictionaries(_some, _some, max_size=2),
    depth=st.integers(0, 1000),
)  # fmt: skip
_origins = st.builds(
    Origin, saga=st.text(), source=st.builds(Address, _domains, _keys, st.just("") | _keys),
    sequence=st.integers(0, 2**30),
)  # fmt: skip
_times = st.datetimes(timezones=st.just(UTC), min_value=datetime(1971, 1, 1))  # noqa: DTZ001


@st.composite
def _rejected(draw):
    origin = draw(_origins)
    command = Command(event=draw(_events), origin=origin)
    return rejection_of(command, origin, draw(st.text()), draw(_times))


_sealed = st.none() | st.builds(SealedOrigin, st.text(), st.none() | st.text())


_rejections = _rejected()


@given(_rejections, _sealed)
def test_what_was_written_is_read_again(rejection, sealed):
    rejection = replace(rejection, sealed=sealed)
    assert read_rejection(json.loads(json.dumps(written_rejection(rejection)))) == rejection


@given(_rejections, st.integers(0, 1000))
def test_however_often_it_is_asked_the_rejection_is_the_same(rejection, asked):
    assert from_event(to_event(rejection, asked)) == rejection


def test_each_asking_has_an_id_of_its_own_and_the_first_that_of_the_rejection():
    rejection = a_rejection()
    ids = [to_event(rejection, asked).id for asked in range(4)]
    assert ids[0] == rejection.id
    assert len(set(ids)) == 4
    assert ids == [to_event(rejection, asked).id for asked in range(4)]


def test_a_notification_of_before_is_named_by_its_message():
    event = to_event(a_rejection())
    data = dict(event.data)
    del data["rejection_id"]
    del data["command"]["causation_id"]
    read = from_event(replace(event, id="of the message", data=data))
    assert isinstance(read, Rejection)
    assert (read.id, read.command.event.causation_id) == ("of the message", None)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("rejection_id", ""),
        ("rejection_id", "x" * 256),
        ("rejection_id", 7),
        ("source_sequence", -1),
        ("source_sequence", 2**40),
    ],
)
def test_what_no_store_could_keep_is_refused_by_its_name(place, value):
    event = to_event(a_rejection())
    with pytest.raises(DecodeError, match=place):
        from_event(replace(event, data={**event.data, place: value}))


@pytest.mark.parametrize("written", [None, 7, [], {}, {"headers": [], "data": {}}, {"data": {}}])
def test_anything_else_is_no_rejection(written):
    with pytest.raises(DecodeError):
        read_rejection(written)


@pytest.mark.parametrize("sealed", [7, [], ["k"], [1, None], ["k", 1], {"key": "k"}])
def test_a_key_that_cannot_be_read_is_no_reason_to_send_it_plain(sealed):
    with pytest.raises(DecodeError, match="does not say which key"):
        read_rejection({**written_rejection(a_rejection()), "sealed": sealed})


def test_ids_follow_from_any_text():
    odd = escalation_id("r", "lone \ud800 surrogate")
    assert odd == escalation_id("r", "lone \ud800 surrogate") != escalation_id("r", "another")
    assert id_after("cause", "ü", 7) == str(uuid5(_IDS, "cause\x00ü\x007"))
