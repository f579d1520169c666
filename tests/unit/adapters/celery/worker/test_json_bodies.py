"""The bodies of messages mean to a worker what they mean to kombu."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from kombu import serialization
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.message import Message
from kombu.utils import json as kombus

from angzarr.adapters.celery.worker.json_bodies import install_json_reader, loads, read_ahead

DECODERS: dict[str, Any] = serialization.registry._decoders
VALUES = (
    [[1], {"a": None}, {}],
    {"at": datetime(2026, 1, 2, tzinfo=UTC), "total": Decimal("1.10"), "id": UUID(int=5)},
    {"__type__": "decimal"},
    {"raw": b"\xff", "text": b"a"},
    ["é", 2**70, 0.1],
)


@pytest.fixture
def installed() -> Iterator[None]:
    before = DECODERS["application/json"]
    yield install_json_reader()
    DECODERS["application/json"] = before


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("made", [str, str.encode, lambda text: bytearray(text.encode())])
def test_values_are_those_of_kombu(value: object, made: Any) -> None:
    body = made(kombus.dumps(value))
    assert loads(body) == kombus.loads(body) == value


def test_a_key_that_is_escaped_names_a_type_as_well() -> None:
    assert loads(rb'{"\u005f_type__": "decimal", "__value__": "1.5"}') == Decimal("1.5")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", '"\ud800"', b'{"__type__": [], "__value__": 1}'], ids=repr
)
def test_errors_are_those_of_kombu(body: Any) -> None:
    def told(read: Any) -> object:
        try:
            return read(body)
        except Exception as error:
            return type(error), str(error)

    assert told(loads) == told(kombus.loads)


@pytest.mark.usefixtures("installed")
def test_a_worker_reads_so() -> None:
    assert DECODERS["application/json"] is loads
    text = json.dumps({"a": 1})
    assert serialization.loads(text, "application/json", "utf-8") == {"a": 1}
    with pytest.raises(DecodeError):
        serialization.loads("{", "application/json", "utf-8")


def test_a_reader_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DECODERS, "application/json", json.loads)
    install_json_reader()
    assert DECODERS["application/json"] is json.loads


def a_message(body: Any, accept: Any = None, content_type: str = "application/json") -> Message:
    return Message(body, content_type=content_type, content_encoding="utf-8", accept=accept)


@pytest.mark.usefixtures("installed")
def test_a_body_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    message = a_message(b'[[{"n": 1}], {}, {}]')
    read_ahead(message)
    monkeypatch.setattr(serialization, "loads", lambda *_, **__: pytest.fail("read twice"))
    assert message.payload == [[{"n": 1}], {}, {}]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("message", "error"),
    [(a_message(b"[1"), DecodeError), (a_message(b'{"__type__": 1, "__value__": 1}'), DecodeError),
     (a_message(b"[1]", accept={"application/x-yaml"}), ContentDisallowed)],
    ids=["not JSON", "no known type", "not accepted"],
)  # fmt: skip
def test_what_kombu_refuses_it_still_refuses(message: Message, error: type[Exception]) -> None:
    read_ahead(message)
    with pytest.raises(error):
        message.decode()


def test_without_our_reader_kombu_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DECODERS, "application/json", kombus.loads)  # a worker before replaced it
    message = a_message(b"[1]")
    read_ahead(message)
    assert message._decoded_cache is None
