"""Data that fits no schema: jsonschema, marshmallow, msgpack and the standard library's readers."""

from __future__ import annotations

import base64
import configparser
import json
import pickle
import plistlib
import uuid
import xml.sax
from typing import Any

import jsonschema
import marshmallow
import msgpack
from google.protobuf import json_format, timestamp_pb2
from tools.corpus.cases import corrupt, misconfigured, recent
from tools.corpus.events import OrderPlaced
from tools.corpus.scenario import ORDER, scenario

FEW: dict[str, Any] = {"group_events": 3, "handler_recent": recent(240, 1)}


@scenario(corrupt("a field of the event is none that the schema has", **FEW))
def json_schema(order: OrderPlaced) -> None:
    schema = {"type": "object", "properties": {"sku": {"pattern": "^[0-9]+$"}}}
    jsonschema.validate({"sku": order.sku}, schema)


@scenario(corrupt("the event lacks what their schema asks for", **FEW))
def marshmallow_field(order: OrderPlaced) -> None:
    class Address(marshmallow.Schema):
        street = marshmallow.fields.Str(required=True)

    Address().load({"sku": order.sku})


@scenario(corrupt("the packed record has bytes too many"))
def msgpack_extra(_order: OrderPlaced) -> None:
    msgpack.unpackb(b"\x01\x02")


@scenario(corrupt("the packed record ends too early"))
def msgpack_short(_order: OrderPlaced) -> None:
    msgpack.unpackb(b"\x92\x01")


@scenario(corrupt("a packed text is no UTF-8"))
def msgpack_no_text(_order: OrderPlaced) -> None:
    msgpack.unpackb(b"\xa2\xff\xfe")


@scenario(corrupt("a time of the JSON is none", **FEW))
def protobuf_json(_order: OrderPlaced) -> None:
    json_format.Parse('"yesterday"', timestamp_pb2.Timestamp())


@scenario(corrupt("the pickled basket was cut off"))
def short_pickle(_order: OrderPlaced) -> None:
    pickle.loads(pickle.dumps({"sku": "SKU-7"})[:-6])


@scenario(corrupt("the XML of one partner ends in the middle"))
def sax(_order: OrderPlaced) -> None:
    xml.sax.parseString(b"<order><line>", xml.sax.ContentHandler())


@scenario(corrupt("the property list of an old till is none"))
def no_plist(_order: OrderPlaced) -> None:
    plistlib.loads(b"bplist00junk")


@scenario(corrupt("one customer's key is no key"), event={**ORDER, "customer_id": "c-12"})
def no_uuid(order: OrderPlaced) -> Any:
    return uuid.UUID(hex=order.customer_id)


@scenario(corrupt("the signature of the partner's message has a wrong length"))
def base64_length(_order: OrderPlaced) -> None:
    base64.b64decode("abcde", validate=True)


@scenario(corrupt("a price with a comma"), event={**ORDER, "sku": "12,50"})
def comma(order: OrderPlaced) -> float:
    return float(order.sku)


@scenario(corrupt("a hexadecimal sum that is none"), event={**ORDER, "sku": "zz"})
def no_hex(order: OrderPlaced) -> bytes:
    return bytes.fromhex(order.sku)


@scenario(corrupt("JSON with a number that ends in the middle"), event={**ORDER, "sku": "[1."})
def json_number(order: OrderPlaced) -> Any:
    return json.loads(order.sku)


@scenario(misconfigured("the settings file names one section twice"))
def two_sections(_order: OrderPlaced) -> None:
    configparser.ConfigParser().read_string("[a]\n[a]\n")
