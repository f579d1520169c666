from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from google.protobuf import json_format

from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.dead_letters.codec import PROTOBUF_CONTENT_TYPE, Form, decode, encode
from angzarr.dead_letters.foreign_replay import RecordRoute, routed
from angzarr.dead_letters.letter import DeadLetter, ForeignCover, Refusal
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter
from sqlite_ledger import SqliteLedger

ROOT = uuid.UUID(int=7)
COVER = ForeignCover(str(ROOT), "corr-7", "shop.Placed")
ROUTES = {"stocks": {"*": RecordRoute("stocks.take", "stocks")}}


def foreign(kind: str = "events") -> AngzarrDeadLetter:
    wire = AngzarrDeadLetter(
        rejection_reason="gave up",
        source_component="stock-projector",
        source_component_type="projector",
    )
    wire.cover.domain, wire.cover.correlation_id = "stocks", "corr-7"
    wire.cover.root.value = ROOT.bytes
    if kind == "events":
        wire.rejected_events.pages.add().event.type_url = "type.googleapis.com/shop.Placed"
    else:
        wire.rejected_command.pages.add().command.type_url = "type.googleapis.com/shop.Placed"
    return wire


def as_json(kind: str = "events") -> dict[str, Any]:
    book, field = {
        "events": ("rejectedEvents", "event"),
        "command": ("rejectedCommand", "command"),
    }[kind]
    told = json_format.MessageToDict(foreign_without_pages())
    page = {field: {"@type": "type.googleapis.com/shop.Placed", "sku": "k-1"}}
    return {**told, book: {"pages": [page]}}


def foreign_without_pages() -> AngzarrDeadLetter:
    wire = foreign()
    wire.ClearField("rejected_events")
    return wire


def letter(kind: str, form: Form) -> DeadLetter:
    if form is Form.JSON:
        return decode(json.dumps(as_json(kind)).encode())
    return decode(foreign(kind).SerializeToString(), PROTOBUF_CONTENT_TYPE)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("kind", ["events", "command"])
def test_what_a_letter_of_others_says_of_its_event_fills_the_entry_and_is_found(kind, form):
    found = letter(kind, form)
    assert found.cover == COVER
    assert decode(*encode(found, form)) == found
    ledger = SqliteLedger()
    entry = ledger.add_failed_event(found)
    assert (entry.correlation_id, entry.root) == ("corr-7", str(ROOT))
    assert (entry.event_type, entry.handler_name) == ("shop.Placed", "stock-projector")
    for wanted in (
        EntryFilter(correlation_id="corr-7"),
        EntryFilter(root=str(ROOT)),
        EntryFilter(event_type="shop.Placed"),
        EntryFilter(handler_name="stock-projector"),
    ):
        assert ledger.get_failed_events(wanted, status=None).entries == (entry,)
    group = ledger.open_group(entry.fingerprint)
    assert group is not None
    assert (group.handler_name, group.event_type) == ("stock-projector", "shop.Placed")


def test_the_cover_of_the_book_stands_in_for_one_of_the_letter():
    wire = foreign()
    wire.rejected_events.cover.CopyFrom(wire.cover)
    wire.ClearField("cover")
    assert decode(wire.SerializeToString()).cover == COVER


def test_letters_of_two_components_are_two_groups():
    ledger, other = SqliteLedger(), foreign()
    other.source_component = "mail-projector"
    one, two = (ledger.add_failed_event(decode(w.SerializeToString())) for w in (foreign(), other))
    assert one.fingerprint != two.fingerprint


def test_a_letter_whose_fields_are_all_known_has_a_route():
    for form in Form:
        assert isinstance(routed(letter("events", form), ROUTES), DeadLetter)


UNKNOWN_JSON = {
    "of the letter": lambda told: told.update(till=1),
    "of the cover": lambda told: told["cover"].update(till=1),
    "of the edition": lambda told: told["cover"].update(edition={"name": "e", "till": 1}),
    "of the book": lambda told: told["rejectedEvents"].update(till=1),
    "of a page": lambda told: told["rejectedEvents"]["pages"][0].update(till=1),
    "of a header": lambda told: told["rejectedEvents"]["pages"][0].update(header={"till": 1}),
    "of the details": lambda told: told.update(eventProcessingFailed={"till": 1}),
}
UNKNOWN_WIRE = {
    "of the letter": lambda wire: wire,
    "of the cover": lambda wire: wire.cover,
    "of the edition": lambda wire: wire.cover.edition,
    "of the book": lambda wire: wire.rejected_events,
    "of a page": lambda wire: wire.rejected_events.pages[0],
    "of a header": lambda wire: wire.rejected_events.pages[0].header,
    "of the details": lambda wire: wire.event_processing_failed,
}


@pytest.mark.parametrize("place", UNKNOWN_JSON)
def test_a_letter_with_an_unknown_field_is_replayed_by_no_route(place):
    told = as_json()
    UNKNOWN_JSON[place](told)
    wire = foreign()
    UNKNOWN_WIRE[place](wire).MergeFromString(b"\xf8\x3f\x01")
    for found in (decode(json.dumps(told).encode()), decode(wire.SerializeToString())):
        refused = routed(found, ROUTES)
        assert isinstance(refused, Refusal)
        assert "a field that this release does not know" in refused
        assert found.cover == COVER


def test_what_an_any_holds_is_no_unknown_field():
    found = decode(json.dumps(as_json()).encode())
    assert isinstance(routed(found, ROUTES), DeadLetter)
