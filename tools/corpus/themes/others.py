"""Letters of other angzarr implementations: commands and events that workers of ours never had."""

from __future__ import annotations

import json
import uuid
from typing import Any

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.timestamp_pb2 import Timestamp
from tools.corpus.cases import breaker, corrupt, ill, other, recent, well
from tools.corpus.events import OrderPlaced
from tools.corpus.scenario import scenario

from angzarr.analysis.ledger.entry import FailureClass
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, PROTOBUF_CONTENT_TYPE
from angzarr.dead_letters.foreign import LATER_TYPE_NAME
from angzarr.wire.book_pb2 import CommandBook, EventBook, MergeStrategy
from angzarr.wire.dead_letter_pb2 import AngzarrDeadLetter
from angzarr.wire.identity_pb2 import Cover

SEQUENCE, UNKNOWN = FailureClass.SEQUENCE_CONFLICT, FailureClass.UNKNOWN
NO_ROUTE = {
    "target_problem": "the letter holds no Celery message: name one under dlq.foreign_routes"
}


def cover(domain: str) -> Cover:
    root = uuid.uuid5(uuid.NAMESPACE_URL, f"corpus:{domain}")
    made = Cover(domain=domain, correlation_id=f"corr-{domain}")
    made.root.value = root.bytes
    return made


def payload(kind: str) -> AnyMessage:
    return AnyMessage(type_url=f"type.googleapis.com/shop.{kind}", value=b"\x0a\x06o-4711\x10\x03")


def command(domain: str, kind: str, sequence: int, strategy: str = "MERGE_MANUAL") -> CommandBook:
    book = CommandBook(cover=cover(domain))
    page = book.pages.add(merge_strategy=MergeStrategy.Value(strategy))
    page.header.sequence = sequence
    page.command.CopyFrom(payload(kind))
    return book


def events(domain: str, kind: str, sequence: int) -> EventBook:
    book = EventBook(cover=cover(domain))
    page = book.pages.add()
    page.header.sequence = sequence
    page.event.CopyFrom(payload(kind))
    return book


def letter(domain: str, reason: str, component: str, kind: str = "aggregate", **fields: Any) -> Any:
    return AngzarrDeadLetter(
        cover=cover(domain),
        rejection_reason=reason,
        occurred_at=Timestamp(seconds=1_777_888_800),
        source_component=component,
        source_component_type=kind,
        **fields,
    )


def binary(made: Any) -> tuple[bytes, str]:
    return made.SerializeToString(deterministic=True), PROTOBUF_CONTENT_TYPE


def as_json(made: Any, *, without_payload: bool = False) -> tuple[bytes, str]:
    """Return it in JSON, its payload as their JSON has it: fields of a type we do not know."""
    book = made.rejected_command if made.WhichOneof("payload") == "rejected_command" else None
    if book is not None:
        for page in book.pages:
            page.ClearField("command")
    data = json_format.MessageToDict(made)
    for page in data.get("rejectedCommand", {}).get("pages", ()):
        if not without_payload:
            page["command"] = {"@type": "type.googleapis.com/shop.PlaceOrder", "orderId": "o-4711"}
    return json.dumps(data).encode(), JSON_CONTENT_TYPE


# -- sequence conflicts under manual merge ---------------------------------------------------


def mismatch(domain: str, kind: str, expected: int, actual: int, **more: Any) -> Any:
    made = letter(
        domain,
        f"Sequence mismatch: command expects {expected}, aggregate at {actual}",
        f"{domain}-aggregate",
        rejected_command=command(domain, kind, expected),
        **more,
    )
    made.sequence_mismatch.expected_sequence = expected
    made.sequence_mismatch.actual_sequence = actual
    made.sequence_mismatch.merge_strategy = MergeStrategy.Value("MERGE_MANUAL")
    return made


@scenario(
    other(SEQUENCE, "two clerks changed one order; the order asks for a person", **NO_ROUTE),
    other(SEQUENCE, "the same; the queue's target is known", group_events=3),
    written=lambda: binary(mismatch("order", "ChangeAddress", 4, 6)),
)
def changed_order(order: OrderPlaced) -> None: ...


@scenario(
    other(SEQUENCE, "a transfer was computed on an old balance", **NO_ROUTE),
    other(SEQUENCE, "the same, by many accounts after an import", group_events=55),
    written=lambda: binary(mismatch("account", "Transfer", 17, 18)),
)
def old_balance(order: OrderPlaced) -> None: ...


@scenario(
    other(SEQUENCE, "the stock was counted while it was sold", **NO_ROUTE),
    written=lambda: as_json(mismatch("inventory", "Count", 120, 133)),
)
def counted_meanwhile(order: OrderPlaced) -> None: ...


@scenario(
    other(SEQUENCE, "a new root that somebody else began first", **NO_ROUTE),
    written=lambda: as_json(mismatch("customer", "Register", 0, 1), without_payload=True),
)
def registered_twice(order: OrderPlaced) -> None: ...


@scenario(
    other(SEQUENCE, "the sender is ahead: it saw an event that was rolled back", **NO_ROUTE),
    written=lambda: binary(mismatch("shipment", "Dispatch", 9, 7)),
)
def sender_ahead(order: OrderPlaced) -> None: ...


@scenario(
    other(SEQUENCE, "a saga's command on a root that moved on", **NO_ROUTE),
    other(SEQUENCE, "the same, while a dependency is ill, which has nothing to do with it",
          breakers=breaker("stock-api", "open", 0.9), **NO_ROUTE),
    written=lambda: binary(
        mismatch("payment", "Capture", 2, 3, metadata={"saga": "order-to-payment"})
    ),
)  # fmt: skip
def command_of_a_saga(order: OrderPlaced) -> None: ...


def _of_the_later_generation() -> tuple[bytes, str]:
    made = mismatch("order", "Cancel", 5, 8)
    made.sequence_mismatch.merge_strategy += 1  # their numbers are one higher
    made.rejected_command.pages[0].merge_strategy += 1
    content_type = f'application/x-protobuf; messageType="{LATER_TYPE_NAME}"'
    return made.SerializeToString(deterministic=True), content_type


@scenario(
    other(SEQUENCE, "the same, written by the later generation", **NO_ROUTE),
    other(SEQUENCE, "the same, of many roots", group_events=31, handler_recent=recent(0, 31)),
    written=_of_the_later_generation,
)
def of_the_later_generation(order: OrderPlaced) -> None: ...


# -- their failed events --------------------------------------------------------------------


def failed(error: str, *, transient: bool, retries: int, reason: str = "") -> Any:
    made = letter(
        "order", reason or error, "order-view", "projector",
        rejected_events=events("order", "OrderPlaced", 12),
    )  # fmt: skip
    made.event_processing_failed.error = error
    made.event_processing_failed.retry_count = retries
    made.event_processing_failed.is_transient = transient
    return made


@scenario(
    ill("they say it would pass; their database is still down", "orders-db", **NO_ROUTE),
    well("they say it would pass, and their database is back", "orders-db"),
    written=lambda: binary(failed("connection refused (os error 111)", transient=True, retries=5)),
)
def their_database_down(order: OrderPlaced) -> None: ...


@scenario(
    other(UNKNOWN, "an error without a name, a stack or a text that says anything", **NO_ROUTE),
    written=lambda: binary(failed("handler failed", transient=False, retries=3)),
)
def handler_failed(order: OrderPlaced) -> None: ...


@scenario(
    other(UNKNOWN, "not even a text", **NO_ROUTE),
    written=lambda: binary(failed("", transient=False, retries=0, reason="rejected")),
)
def no_text(order: OrderPlaced) -> None: ...


@scenario(
    other(UNKNOWN, "no details at all, one word as the reason", **NO_ROUTE),
    written=lambda: binary(
        letter("order", "rejected", "order-saga", "saga",
               rejected_command=command("order", "Approve", 3, "MERGE_COMMUTATIVE"))
    ),
)  # fmt: skip
def no_details(order: OrderPlaced) -> None: ...


@scenario(
    other(UNKNOWN, "nothing but a status number of their own", **NO_ROUTE),
    written=lambda: as_json(
        letter("order", "status 13", "order-pm", "process_manager", metadata={"status": "13"})
    ),
)
def status_number(order: OrderPlaced) -> None: ...


@scenario(
    other(UNKNOWN, "an empty letter: somebody tried the queue", **NO_ROUTE),
    other(UNKNOWN, "many empty letters", group_events=20, handler_recent=recent(0, 0), **NO_ROUTE),
    written=lambda: (b'{"rejectionReason": "test"}', JSON_CONTENT_TYPE),
)
def empty(order: OrderPlaced) -> None: ...


# -- their lost payloads --------------------------------------------------------------------


def lost(error: str) -> Any:
    made = letter(
        "order", f"Payload retrieval failed: {error}", "order-view", "projector",
        rejected_events=events("order", "OrderPlaced", 12),
    )  # fmt: skip
    details = made.payload_retrieval_failed
    details.storage_type, details.uri = 3, "s3://shop-payloads/ab/cdef"
    details.content_hash, details.original_size, details.error = b"\x07" * 32, 4_000_000, error
    return made


@scenario(
    corrupt("what they found has another checksum", **NO_ROUTE),
    written=lambda: binary(lost("content hash mismatch")),
)
def their_checksum_wrong(order: OrderPlaced) -> None: ...


@scenario(
    corrupt("what they look for was deleted", **NO_ROUTE),
    written=lambda: binary(lost("object not found")),
)
def their_payload_gone(order: OrderPlaced) -> None: ...
