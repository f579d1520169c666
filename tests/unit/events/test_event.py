"""Events: names that every backend carries, digests and ids that are the same everywhere."""

from __future__ import annotations

import enum
import json
import re
import subprocess
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

from angzarr.errors import ConfigurationError, DecodeError, InvalidDomainName, UnserializableEvent
from angzarr.events.event import (
    MAX_DOMAIN_LENGTH,
    Event,
    Priority,
    canonical_json,
    check_domain,
    decoder_for,
    digest,
    event_type_of,
    task_id_for,
    to_json,
)
from angzarr.wire.worker_pb2 import EventFacts

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(st.from_regex(r"\A[a-z][a-z0-9.-]{0,63}\Z"))
def test_a_domain_of_our_alphabet_is_taken_as_it_is(name):
    assert check_domain(name) == name


@given(st.text())
def test_a_domain_is_taken_if_and_only_if_it_is_of_our_alphabet(name):
    fits = re.fullmatch(r"[a-z][a-z0-9.-]*", name) and len(name) <= MAX_DOMAIN_LENGTH
    if fits:
        assert check_domain(name) == name
    else:
        with pytest.raises(InvalidDomainName, match="cannot be used"):
            check_domain(name)


@pytest.mark.parametrize("name", ["order\n", "a" * 65, "Order", "é", ""])
def test_what_a_backend_would_cut_or_refuse_is_refused(name):
    with pytest.raises(InvalidDomainName):
        check_domain(name)


@given(JSON)
def test_canonical_json_says_the_same_and_is_utf_8(value):
    assert json.loads(canonical_json(value).decode("utf-8", "surrogatepass")) == value


@given(st.dictionaries(st.text(), JSON, min_size=2))
def test_the_order_of_keys_does_not_change_a_digest(value):
    assert digest(dict(reversed(value.items()))) == digest(value)


@given(JSON, JSON)
def test_two_values_share_a_digest_only_if_their_json_is_the_same(one, other):
    same = canonical_json(one) == canonical_json(other)
    assert (digest(one) == digest(other)) is same


def test_a_lone_surrogate_has_a_digest():
    assert len(digest({"\ud800": "\udfff"})) == 64


def test_a_digest_never_changes_between_releases_or_processes():
    """Pinned: a new value would make every waiting message a new event."""
    value = {"b": [1, 2.5, None, True], "a": "ü"}
    assert canonical_json(value) == '{"a":"ü","b":[1,2.5,null,true]}'.encode()
    assert digest(value) == "5cffe7b2256261270211e66d136e0fc423a603024179f1fb99fe31e771368b2f"
    program = (
        "from angzarr.events.event import digest, task_id_for;"
        "print(digest({'b': [1, 2.5, None, True], 'a': 'ü'}), task_id_for('e', 'h'))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONUTF8": "1"},
    ).stdout.split()  # fmt: skip
    assert told == [digest(value), task_id_for("e", "h")]


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_task_id_belongs_to_one_event_and_handler(event_id, handler):
    first = task_id_for(event_id, handler)
    assert first == task_id_for(event_id, handler)
    assert first != task_id_for(event_id + "x", handler)
    assert first != task_id_for(event_id, handler + "x")


def test_an_event_cannot_be_changed():
    event = Event(id="e", type="t", data={})
    with pytest.raises(AttributeError):
        event.id = "other"
    assert event.priority is Priority.DEFAULT


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
