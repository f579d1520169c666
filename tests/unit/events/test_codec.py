"""Codec: what a handler declares, what a publisher sends, and errors that repeat no secret."""

from __future__ import annotations

import enum
import json
import sys
import traceback
import typing
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import struct_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from typing_extensions import TypedDict

from angzarr.errors import ConfigurationError, DecodeError, UnserializableEvent
from angzarr.events.event import decoder_for, event_type_of, to_json
from angzarr.wire.worker_pb2 import EventFacts

SECRET = "hunter2"


class Colour(enum.Enum):
    RED = "red"


class Line(BaseModel):
    name: str
    price: Decimal


class Order(BaseModel):
    id: uuid.UUID
    at: datetime
    day: date
    wait: timedelta
    total: Decimal
    colour: Colour
    lines: tuple[Line, ...] = ()
    tags: frozenset[str] = frozenset()


class StrictOrder(Order):
    model_config = ConfigDict(strict=True)


@dataclass
class Paid:
    order: str
    at: datetime
    amount: Decimal


class Named(TypedDict):
    name: str
    count: int


ORDER = {
    "id": uuid.UUID(int=7), "at": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 1),
    "wait": timedelta(seconds=90), "total": Decimal("9.90"), "colour": Colour.RED,
    "lines": (Line(name="tea", price=Decimal(3)),), "tags": frozenset({"new"}),
}  # fmt: skip


def wired(value):
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("declared", "event"),
    [
        (Order, Order(**ORDER)),
        (StrictOrder, StrictOrder(**ORDER)),
        (Paid, Paid("o-1", datetime(2026, 1, 1, tzinfo=UTC), Decimal("0.1"))),
        (Named, {"name": "n", "count": 2}),
        (EventFacts, EventFacts(id="e", type="t", sequence=7, config_pins={"a": "1"})),
        (dict[str, Any], {"any": [1, None]}),
        (dict, {"any": [1, None]}),
        (list[int], [1, 2]),
        (int, 5),
        (Any, {"x": 1}),
        (None, {"x": 1}),
        ("order.placed", {"x": 1}),
    ],
)
def test_what_is_published_is_what_a_handler_gets(declared, event):
    assert decoder_for(declared)(wired(to_json(event))) == event


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"])), inner
        ),
    )
)  # fmt: skip
def test_plain_json_passes_unchanged(value):
    assert wired(to_json(value)) == value
    assert decoder_for(None)(value) == value


def test_a_model_that_is_already_one_is_not_read_again():
    order = Order(**ORDER)
    assert decoder_for(Order)(order) is order


@pytest.mark.parametrize(
    ("declared", "data"),
    [
        (Order, {"id": SECRET}),
        (StrictOrder, {"id": SECRET, "total": [SECRET]}),
        (Paid, {"order": "o", "at": SECRET, "amount": SECRET}),
        (Named, {"name": "n", "count": SECRET}),
        (EventFacts, {"sequence": SECRET}),
        (EventFacts, {"occurred_at": SECRET}),
        (EventFacts, {"config_pins": SECRET}),
        (EventFacts, [SECRET]),
        (EventFacts, SECRET),
        (wrappers_pb2.Int64Value, SECRET),
        (struct_pb2.Struct, SECRET),
        (list[int], [SECRET]),
        (int, SECRET),
        (dict, SECRET),
    ],
)
def test_what_does_not_fit_is_one_error_that_repeats_no_value(declared, data):
    with pytest.raises(DecodeError, match="does not fit") as caught:
        decoder_for(declared)(data)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown, "the letter's stack would show it"


def test_every_wrong_field_is_named():
    with pytest.raises(DecodeError, match=r"count: .*name: |name: .*count: "):
        decoder_for(Named)({"name": 5, "count": "x"})
    with pytest.raises(DecodeError, match="sequence cannot be read"):
        decoder_for(EventFacts)({"sequence": "x"})


def test_at_most_ten_problems_are_told():
    with pytest.raises(DecodeError) as caught:
        decoder_for(list[int])(["x"] * 1000)
    assert len(str(caught.value)) < 1000


def test_a_models_own_bug_is_not_taken_for_a_bad_event():
    class Buggy(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def _check(cls, _value):
            raise KeyError("bug")

    with pytest.raises(KeyError):
        decoder_for(Buggy)({"x": 1})


def test_unknown_protobuf_fields_are_ignored_as_protobuf_does():
    assert decoder_for(EventFacts)({"id": "e", "from_the_future": 1}).id == "e"


def test_a_protobuf_message_is_no_text_and_no_list():
    """protobuf's own reader takes every item of them for the name of an unknown field."""
    for data in ("text", ["id"], 5, None):
        with pytest.raises(DecodeError):
            decoder_for(EventFacts)(data)
    assert decoder_for(wrappers_pb2.Int64Value)("5").value == 5


class OpaqueThing:
    """Nothing that pydantic knows."""


@pytest.mark.parametrize("declared", [OpaqueThing, list[OpaqueThing]])
def test_a_type_that_cannot_be_read_is_refused_when_the_handler_is_defined(declared):
    with pytest.raises(ConfigurationError, match="OpaqueThing"):
        decoder_for(declared)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes it there")
def test_a_typed_dict_that_pydantic_refuses_says_the_cure():
    class Old(typing.TypedDict):
        name: str

    with pytest.raises(ConfigurationError, match=r"typing_extensions\.TypedDict"):
        decoder_for(Old)


def test_a_secret_field_is_not_published_in_clear():
    class Login(BaseModel):
        password: SecretStr

    assert SECRET not in json.dumps(to_json(Login(password=SECRET)))


@pytest.mark.parametrize("event", [{"x": object()}, [object()], object(), {1: {object()}}])
def test_what_is_no_json_is_refused_with_its_cause(event):
    with pytest.raises(UnserializableEvent, match="cannot be written as JSON"):
        to_json(event)


def test_a_cycle_is_refused():
    cycle = []
    cycle.append(cycle)
    with pytest.raises(UnserializableEvent):
        to_json(cycle)


def test_a_dataclass_whose_field_lies_about_its_type_is_refused():
    with pytest.raises(UnserializableEvent, match="Paid"):
        to_json(Paid("o", "not a time", Decimal(1)))


class Renamed(BaseModel):
    __event_type__ = "order.renamed.v2"
    order_id: str = Field(alias="orderId")


def test_an_aliased_field_is_found_again():
    event = Renamed(orderId="o")
    assert decoder_for(Renamed)(wired(to_json(event))) == event


@pytest.mark.parametrize(
    ("subject", "named"),
    [
        (Order, "Order"),
        (Paid("o", datetime(2026, 1, 1, tzinfo=UTC), Decimal(1)), "Paid"),
        ("order.placed", "order.placed"),
        (EventFacts, EventFacts.DESCRIPTOR.full_name),
        (EventFacts(), EventFacts.DESCRIPTOR.full_name),
        (Renamed, "order.renamed.v2"),
    ],
)
def test_an_event_type_is_a_name_that_survives_a_move_between_modules(subject, named):
    assert event_type_of(subject) == named


@pytest.mark.parametrize("subject", [dict, {"a": 1}])
def test_a_plain_dict_has_no_name_of_its_own(subject):
    with pytest.raises(ConfigurationError, match="name it"):
        event_type_of(subject)
