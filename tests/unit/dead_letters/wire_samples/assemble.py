"""Assembles the samples beside it byte by byte: `python assemble.py` writes them anew.

It uses nothing of protobuf, ours or Google's: what it knows are the field numbers, types and names
that other languages agreed on, written out below. So a sample that our code reads and writes back
says that both mean the same. Published numbers never change; samples are only added.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

HERE: Final = Path(__file__).parent
#: The package of each generation. The later one put an unspecified merge strategy first.
FIRST, LATER = "angzarr", "io.angzarr.v1"

VARINT, BYTES = 0, 2


class Sample(NamedTuple):
    """A message in both forms."""

    wire: bytes
    json: dict[str, Any]


# -- the encoding -------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tagged(number: int, kind: int, content: bytes) -> bytes:
    return varint(number << 3 | kind) + content


def framed(number: int, content: bytes) -> bytes:
    return tagged(number, BYTES, varint(len(content)) + content)


def message(*fields: Sample) -> Sample:
    joined: dict[str, Any] = {}
    for field in fields:
        joined |= field.json
    return Sample(b"".join(field.wire for field in fields), joined)


def text(number: int, name: str, value: str) -> Sample:
    return Sample(framed(number, value.encode()), {name: value})


def raw(number: int, name: str, value: bytes) -> Sample:
    return Sample(framed(number, value), {name: base64.b64encode(value).decode()})


def uint32(number: int, name: str, value: int) -> Sample:
    return Sample(tagged(number, VARINT, varint(value)), {name: value})


def uint64(number: int, name: str, value: int) -> Sample:
    return Sample(tagged(number, VARINT, varint(value)), {name: str(value)})


def flag(number: int, name: str) -> Sample:
    return Sample(tagged(number, VARINT, b"\x01"), {name: True})


def label(number: int, name: str, value: int, word: str) -> Sample:
    return Sample(tagged(number, VARINT, varint(value)), {name: word})


def inner(number: int, name: str, value: Sample) -> Sample:
    return Sample(framed(number, value.wire), {name: value.json})


def several(number: int, name: str, *values: Sample) -> Sample:
    wire = b"".join(framed(number, value.wire) for value in values)
    return Sample(wire, {name: [value.json for value in values]})


def mapping(number: int, name: str, values: Mapping[str, str]) -> Sample:
    entries = [text(1, "", key).wire + text(2, "", values[key]).wire for key in sorted(values)]
    return Sample(b"".join(framed(number, entry) for entry in entries), {name: dict(values)})


def moment(number: int, name: str, seconds: int, nanos: int, word: str) -> Sample:
    wire = tagged(1, VARINT, varint(seconds)) + tagged(2, VARINT, varint(nanos))
    return Sample(framed(number, wire), {name: word})


def packed(number: int, name: str, type_name: str, value: Sample) -> Sample:
    """An Any."""
    url = f"type.googleapis.com/{type_name}"
    wire = framed(1, url.encode()) + framed(2, value.wire)
    return Sample(framed(number, wire), {name: {"@type": url, **value.json}})


# -- the messages -------------------------------------------------------------------------------


def strategy(number: int, word: str, generation: str) -> Sample:
    words = ["MERGE_COMMUTATIVE", "MERGE_STRICT", "MERGE_AGGREGATE_HANDLES", "MERGE_MANUAL"]
    value = words.index(word) + (generation == LATER)
    if not value:  # a zero is not written
        return message()
    return label(number, "mergeStrategy", value, word)


NOW: Final = (1_767_323_045, 123_456_000, "2026-01-02T03:04:05.123456Z")
A_WORD: Final = ("google.protobuf.StringValue", text(1, "value", "Größe"))

uuid = message(raw(1, "value", bytes(range(16))))
divergence = message(text(1, "domain", "cart"), uint32(2, "sequence", 4_294_967_295))
edition = message(
    text(1, "name", "what-if"),
    several(2, "divergences", divergence, message(text(1, "domain", "stock"))),
)
cover = message(
    inner(1, "root", uuid),
    text(2, "domain", "order"),
    text(3, "correlationId", "c-1"),
    inner(4, "edition", edition),
)
external = message(text(1, "externalId", "x-1"), text(2, "description", "the bank's"))
deferred = message(inner(1, "source", cover), uint32(2, "sourceSeq", 300))
header = message(uint32(1, "sequence", 7))
header_external = message(inner(2, "externalDeferred", external))
header_angzarr = message(inner(3, "angzarrDeferred", deferred))


def reference(kind: int, word: str) -> Sample:
    return message(
        label(1, "storageType", kind, f"PAYLOAD_STORAGE_TYPE_{word}"),
        text(2, "uri", "s3://letters/dlq/ab/cd"),
        raw(3, "contentHash", bytes(range(224, 256))),
        uint64(4, "originalSize", 2**53 + 1),
        moment(5, "storedAt", *NOW),
    )


snapshot = message(
    uint32(2, "sequence", 6),
    packed(3, "state", *A_WORD),
    label(4, "retention", 1, "RETENTION_PERSIST"),
)
snapshot_transient = message(label(4, "retention", 2, "RETENTION_TRANSIENT"))
event_page = message(
    inner(1, "header", header),
    moment(2, "createdAt", *NOW),
    packed(3, "event", *A_WORD),
    flag(6, "noCommit"),
    text(7, "cascadeId", ""),
)
event_page_external = message(
    inner(1, "header", header_external), inner(4, "external", reference(3, "S3"))
)
event_book = message(
    inner(1, "cover", cover),
    inner(2, "snapshot", snapshot),
    several(3, "pages", event_page, event_page_external),
    uint32(6, "nextSequence", 8),
)
processing_failed = message(
    text(1, "error", "no answer"), uint32(2, "retryCount", 5), flag(3, "isTransient")
)
retrieval_failed = message(
    label(1, "storageType", 2, "PAYLOAD_STORAGE_TYPE_GCS"),
    text(2, "uri", "gs://letters/ab"),
    raw(3, "contentHash", b"\x00\xff" * 16),
    uint64(4, "originalSize", 1),
    text(5, "error", "gone"),
)
event_facts = message(
    text(1, "id", "e-1"),
    text(2, "type", "order.placed"),
    text(3, "data", '{"total": 3}'),
    text(4, "domain", "order"),
    text(5, "root", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    text(6, "edition", "what-if"),
    uint64(7, "sequence", 2**64 - 1),
    text(8, "correlationId", "c-1"),
    text(9, "causationId", "e-0"),
    text(10, "tenantId", "acme"),
    text(11, "priority", "high"),
    mapping(12, "configPins", {"prices": "7"}),  # one: in an Any, protobuf orders several by chance
    moment(13, "occurredAt", *NOW),
    text(14, "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
)
event_facts_deep = message(text(1, "id", "e-2"), uint64(15, "depth", 7))
json_message = message(text(1, "type", "OrderPlaced"), text(2, "data", '{"total": 3}'))
task_message = message(
    text(1, "task", "shop.sync"),
    text(2, "args", '[{"total": 3}]'),
    text(3, "kwargs", "{}"),
    text(4, "embed", '{"callbacks": null}'),
    text(6, "contentType", "application/json"),
    text(7, "contentEncoding", "utf-8"),
    text(8, "headers", '{"task": "shop.sync", "id": "t-1", "raw": {"$bytes": "/w=="}}'),
    text(9, "queue", "orders"),
    text(10, "exchange", "shop"),
    text(11, "routingKey", "orders.eu"),
    label(12, "priority", 5, ""),
    text(13, "properties", '{"correlation_id": "t-1"}'),
    inner(14, "event", event_facts),
)
task_message.json["priority"] = 5
task_raw = message(text(1, "task", "shop.sync"), raw(5, "rawBody", b"\xff\x00not JSON"))
task_offloaded = message(
    text(1, "task", "shop.sync"),
    text(8, "headers", '{"task": "shop.sync", "id": "t-1"}'),
    text(9, "queue", "orders"),
    inner(15, "payload", reference(1, "FILESYSTEM")),
)
task_packed = message(
    text(1, "task", "shop.sync"),
    text(8, "headers", '{"task": "shop.sync", "id": "t-1"}'),
    text(9, "queue", "orders"),
    inner(15, "payload", reference(1, "FILESYSTEM")),
    text(16, "payloadEncoding", "zstd"),
    uint64(17, "unpackedSize", 2**53 + 3),
    raw(18, "unpackedHash", bytes(range(32))),
)


def letter_of_a_worker(task: Sample) -> Sample:
    page = message(packed(3, "event", "angzarr.worker.TaskMessage", task))
    of = message(text(2, "domain", "order"))
    return message(
        inner(1, "cover", of),
        text(3, "rejectionReason", "5 attempts used"),
        moment(7, "occurredAt", *NOW),
        mapping(8, "metadata", {"letter_id": "l-1", "handler": "shop.sync", "attempts": "5"}),
        inner(9, "rejectedEvents", message(inner(1, "cover", of), several(3, "pages", page))),
        text(10, "sourceComponent", "shop"),
        text(11, "sourceComponentType", "handler"),
        inner(13, "eventProcessingFailed", processing_failed),
    )


def samples(generation: str) -> dict[str, Sample]:
    """Return every sample by its name: the message's, and after a ``-`` which variant it is."""

    def command_page(word: str) -> Sample:
        return message(
            inner(1, "header", header_angzarr),
            strategy(2, word, generation),
            packed(3, "command", *A_WORD),
        )

    page_external = message(
        strategy(2, "MERGE_COMMUTATIVE", generation),
        inner(4, "external", reference(2, "GCS")),
    )
    command_book = message(
        inner(1, "cover", cover), several(2, "pages", command_page("MERGE_MANUAL"), page_external)
    )
    mismatch = message(
        uint32(1, "expectedSequence", 3),
        uint32(2, "actualSequence", 5),
        strategy(3, "MERGE_AGGREGATE_HANDLES", generation),
    )
    revocation = message(
        flag(1, "emitSystemRevocation"),
        flag(2, "sendToDeadLetterQueue"),
        flag(3, "escalate"),
        flag(4, "abort"),
        text(5, "reason", "sold out"),
    )
    notification = message(
        inner(1, "cover", cover),
        packed(2, "payload", *A_WORD),
        moment(3, "sentAt", *NOW),
        mapping(4, "metadata", {"b": "2", "a": "1"}),
    )
    common = (text(3, "rejectionReason", "sequence mismatch"), moment(7, "occurredAt", *NOW))
    about = (
        mapping(8, "metadata", {"original_queue": "orders", "theirs": "kept"}),
        text(10, "sourceComponent", "cart"),
    )
    return {
        "UUID": uuid,
        "DomainDivergence": divergence,
        "Edition": edition,
        "Cover": cover,
        "ExternalDeferredSequence": external,
        "AngzarrDeferredSequence": deferred,
        "PageHeader": header,
        "PageHeader-external": header_external,
        "PageHeader-angzarr": header_angzarr,
        "PayloadReference": reference(3, "S3"),
        "PayloadReference-gcs": reference(2, "GCS"),
        "PayloadReference-filesystem": reference(1, "FILESYSTEM"),
        "Snapshot": snapshot,
        "Snapshot-transient": snapshot_transient,
        "EventPage": event_page,
        "EventPage-external": event_page_external,
        "EventBook": event_book,
        "CommandPage": command_page("MERGE_STRICT"),
        "CommandPage-external": page_external,
        "CommandBook": command_book,
        "SequenceMismatchDetails": mismatch,
        "EventProcessingFailedDetails": processing_failed,
        "PayloadRetrievalFailedDetails": retrieval_failed,
        "Notification": notification,
        "RejectionNotification": message(
            inner(1, "rejectedCommand", command_book), text(2, "rejectionReason", "closed")
        ),
        "RevokeEventCommand": message(
            uint32(1, "triggeringEventSequence", 9),
            text(2, "sagaName", "checkout"),
            text(3, "rejectionReason", "closed"),
            inner(4, "rejectedCommand", command_book),
        ),
        "RevocationResponse": revocation,
        "BusinessResponse-events": message(inner(1, "events", event_book)),
        "BusinessResponse-revocation": message(inner(2, "revocation", revocation)),
        "BusinessResponse-notification": message(inner(3, "notification", notification)),
        "SagaCompensationFailed": message(
            inner(1, "triggeringAggregate", cover),
            uint32(2, "triggeringEventSequence", 9),
            text(3, "sagaName", "checkout"),
            text(4, "rejectionReason", "closed"),
            text(5, "compensationFailureReason", "gone"),
            inner(6, "rejectedCommand", command_book),
            moment(7, "occurredAt", *NOW),
        ),
        "AngzarrDeadLetter-command": message(
            inner(1, "cover", cover),
            inner(2, "rejectedCommand", command_book),
            *common,
            *about,
            text(11, "sourceComponentType", "aggregate"),
            inner(12, "sequenceMismatch", mismatch),
        ),
        "AngzarrDeadLetter-events": message(
            inner(1, "cover", cover),
            *common,
            about[0],
            inner(9, "rejectedEvents", event_book),
            about[1],
            text(11, "sourceComponentType", "projector"),
            inner(13, "eventProcessingFailed", processing_failed),
        ),
        "AngzarrDeadLetter-payload": message(
            inner(1, "cover", cover),
            *common,
            inner(9, "rejectedEvents", event_book),
            inner(14, "payloadRetrievalFailed", retrieval_failed),
        ),
        "AngzarrDeadLetter-task": letter_of_a_worker(task_message),
        "AngzarrDeadLetter-offloaded": letter_of_a_worker(task_offloaded),
        "AngzarrDeadLetter-packed": letter_of_a_worker(task_packed),
        "worker.TaskMessage": task_message,
        "worker.TaskMessage-raw": task_raw,
        "worker.TaskMessage-offloaded": task_offloaded,
        "worker.TaskMessage-packed": task_packed,
        "worker.EventFacts": event_facts,
        "worker.EventFacts-deep": event_facts_deep,
        "worker.JsonMessage": json_message,
    }


def files(sample: Sample) -> dict[str, bytes]:
    """Return what is written for *sample*, by the ending of the file's name."""
    readable = json.dumps(sample.json, indent=2, ensure_ascii=False) + "\n"
    return {".binpb": sample.wire, ".json": readable.encode()}


def main(say: Callable[[str], object]) -> None:
    for generation in (FIRST, LATER):
        folder = HERE / generation
        folder.mkdir(exist_ok=True)
        for name, sample in samples(generation).items():
            for ending, content in files(sample).items():
                (folder / f"{name}{ending}").write_bytes(content)
        say(f"{folder}: {len(samples(generation))} samples\n")


if __name__ == "__main__":
    main(sys.stdout.write)
