"""Damaged data: in the event, or in a file that it names."""

from __future__ import annotations

import base64
import binascii
import csv
import gzip
import json
import tempfile
import uuid
import xml.etree.ElementTree as ET
import zipfile
import zlib
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from google.protobuf.struct_pb2 import Struct
from pydantic import BaseModel
from tools.corpus import workshop
from tools.corpus.cases import breaker, corrupt, defect, misconfigured, recent
from tools.corpus.events import OrderPlaced
from tools.corpus.scenario import ORDER, Scenario, scenario

from angzarr.adapters.files.payloads import FilePayloadStore

#: As many of one publisher's events as came before somebody stopped it.
MANY = {"group_events": 37, "handler_recent": recent(180, 9)}


class Size(StrEnum):
    SMALL = "S"
    LARGE = "L"


class Address(BaseModel):
    street: str
    zip: str


# -- found before the handler ---------------------------------------------------------------


@scenario(
    corrupt("the total is no number: the model refuses it"),
    corrupt("one shop writes totals as words", **MANY),
    event={**ORDER, "total": "three"},
)
def wrong_type(order: OrderPlaced) -> None: ...


@scenario(
    corrupt("a publisher of an older release leaves the sku out"),
    event={"order_id": "o-1", "customer_id": "c-1", "total": 3},
)
def missing_field(order: OrderPlaced) -> None: ...


@scenario(
    corrupt("a later schema: the total became an amount with a currency", **MANY),
    event={**ORDER, "total": {"amount": 3, "currency": "EUR"}},
)
def later_schema(order: OrderPlaced) -> None: ...


@scenario(
    corrupt("the body's bytes are no JSON"), damage=lambda body, headers: (b"\xff\xfe{", headers)
)
def no_json(order: OrderPlaced) -> None: ...


@scenario(corrupt("the body was cut off"), damage=lambda body, headers: (body[:40], headers))
def cut_off(order: OrderPlaced) -> None: ...


@scenario(
    corrupt("the body is JSON but no task: no arguments"),
    damage=lambda body, headers: (b'{"order_id": "o-1"}', headers),
)
def no_arguments(order: OrderPlaced) -> None: ...


@scenario(
    corrupt("the body has two events where one belongs"),
    damage=lambda body, headers: (b'[[{"order_id": "o-1"}, 2], {}, {}]', headers),
)
def two_bodies(order: OrderPlaced) -> None: ...


@scenario(
    corrupt("it is no Celery message: somebody else writes into our queue"),
    damage=lambda body, headers: (b'{"hello": 1}', {}),
)
def foreign_message(order: OrderPlaced) -> None: ...


@scenario(
    corrupt("its headers were damaged: the task's id is no text"),
    damage=lambda body, headers: (body, {**headers, "id": 7}),
)
def damaged_headers(order: OrderPlaced) -> None: ...


@scenario(
    corrupt("it says pickle, and nobody here reads that"),
    damage=lambda body, headers: (
        b"\x80\x04N.", {**headers, "content_type": "application/x-python-serialize",
                        "content_encoding": "binary"},
    ),
)  # fmt: skip
def pickled(order: OrderPlaced) -> None: ...


# -- found by the handler -------------------------------------------------------------------


@scenario(
    corrupt("this event lacks a field that its schema has; all others have it"),
    corrupt("one shop's plugin leaves the field out; all other shops send it", **MANY),
    event={**ORDER, "sku": '{"kind": "shirt"}'},
)
def key_missing_in_event(order: OrderPlaced) -> str:
    return json.loads(order.sku)["size"]


@scenario(
    corrupt("what should be JSON in the event is not"),
    corrupt(
        "the same, while an unrelated dependency is ill", breakers=breaker("mail", "open", 0.8)
    ),
    event={**ORDER, "sku": "{'kind': 'shirt'}"},
)
def text_is_no_json(order: OrderPlaced) -> Any:
    return json.loads(order.sku)


@scenario(
    corrupt("the address inside lacks its zip code"), event={**ORDER, "sku": '{"street": "A"}'}
)
def address_incomplete(order: OrderPlaced) -> Address:
    return Address.model_validate_json(order.sku)


@scenario(corrupt("N/A where a number belongs"), event={**ORDER, "sku": "N/A"})
def no_number(order: OrderPlaced) -> int:
    return int(order.sku)


@scenario(corrupt("an amount with a comma"), event={**ORDER, "sku": "12,90"})
def no_decimal(order: OrderPlaced) -> Decimal:
    return Decimal(order.sku)


@scenario(corrupt("the thirtieth of February"), event={**ORDER, "sku": "2026-02-30"})
def no_date(order: OrderPlaced) -> datetime:
    return datetime.fromisoformat(order.sku)


@scenario(corrupt("an id that was cut"), event={**ORDER, "customer_id": "85f-40"})
def no_uuid(order: OrderPlaced) -> uuid.UUID:
    return uuid.UUID(order.customer_id)


@scenario(
    corrupt("a size of the next catalogue, which this release does not know", **MANY),
    event={**ORDER, "sku": "XXL"},
)
def unknown_size(order: OrderPlaced) -> Size:
    return Size(order.sku)


@scenario(corrupt("its base64 was damaged on the way"), event={**ORDER, "sku": "aGVsbG8"})
def no_base64(order: OrderPlaced) -> bytes:
    return base64.b64decode(order.sku, validate=True)


@scenario(corrupt("a protobuf message that was cut"), event={**ORDER, "sku": "0a0c0a0568656c"})
def truncated_protobuf(order: OrderPlaced) -> Struct:
    return Struct.FromString(binascii.unhexlify(order.sku))


@scenario(corrupt("the customer's file is Latin-1 and says UTF-8"))
def no_utf8(_order: OrderPlaced) -> str:
    return b"M\xfcller;12".decode()


@scenario(corrupt("the customer's archive is no zip file"))
def no_zip(_order: OrderPlaced) -> list[str]:
    return zipfile.ZipFile(BytesIO(b"PK but no more")).namelist()


@scenario(corrupt("the compressed file ends too early"))
def truncated_gzip(_order: OrderPlaced) -> bytes:
    return gzip.decompress(gzip.compress(b"lines" * 99)[:20])


@scenario(corrupt("a wrong checksum in the compressed data"))
def no_zlib(_order: OrderPlaced) -> bytes:
    damaged = bytearray(zlib.compress(b"lines" * 99))
    damaged[-1] ^= 0xFF
    return zlib.decompress(bytes(damaged))


@scenario(corrupt("the partner's XML has an open tag"))
def no_xml(_order: OrderPlaced) -> Any:
    return ET.fromstring("<order><sku>7</order>")


@scenario(corrupt("a quote that is never closed swallows the rest of the customer's CSV"))
def no_csv(_order: OrderPlaced) -> list[Any]:
    return list(csv.reader(StringIO('a,"b\n' + "x" * 140_000)))


@scenario(corrupt("the body that lies elsewhere does not have its checksum"))
def wrong_checksum(_order: OrderPlaced) -> bytes:
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        store = FilePayloadStore(Path(folder))
        reference = store.put(b"the invoice, as it was")
        stored = next(path for path in Path(folder).rglob("*") if path.is_file())
        stored.write_bytes(b"the invoice, as it wax")
        return store.fetch(reference)


@scenario(corrupt("the body that lies elsewhere is gone: nothing is left to handle"))
def payload_gone(_order: OrderPlaced) -> bytes:
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        store = FilePayloadStore(Path(folder))
        reference = store.put(b"the invoice")
        next(path for path in Path(folder).rglob("*") if path.is_file()).unlink()
        return store.fetch(reference)


def _twice(app: Any, given: Scenario) -> None:
    """Handle one body under the id, then take the message that has another."""
    found = workshop.fetched(app)
    envelope = workshop.envelope_of(app, found)
    for total in (3, 4):
        body = [{**given.event, "total": total}]
        app._runtime.executor().take(
            workshop.delivery_of(app, envelope._replace(token=f"t{total}"), body, {})
        )


@scenario(
    corrupt("two publishers gave two events one id"),
    road=_twice,
)
def one_id_two_bodies(order: OrderPlaced) -> None: ...


# -- not the event's fault ------------------------------------------------------------------


@scenario(
    defect("every order fails to be read: our own model is wrong", group_events=412),
    event={**ORDER, "customer_id": "12"},
)
def model_of_ours(order: OrderPlaced) -> Address:
    return Address.model_validate({"street": order.customer_id, "zip": order.total})


@scenario(
    misconfigured("our own settings file was damaged by the last deployment: no event passes")
)
def settings_no_json(_order: OrderPlaced) -> Any:
    settings = Path(tempfile.gettempdir()) / "corpus-settings.json"
    settings.write_text('{"currency": "EUR",}')
    try:
        return json.loads(settings.read_text())
    finally:
        settings.unlink()
