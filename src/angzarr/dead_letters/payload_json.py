"""The canonical JSON of a letter's reference to its body, as proto3 JSON has it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final

from angzarr.dead_letters.letter import cut_message
from angzarr.dead_letters.task_message import STORAGE_NUMBERS
from angzarr.payloads.store import PayloadReference
from angzarr.wire.book_pb2 import PayloadStorageType

#: Characters of a time in ISO 8601 up to its seconds, and of its offset.
_SECONDS: Final = len("2026-01-02T03:04:05")
_OFFSET: Final = len("+00:00")


def reference_json(payload: PayloadReference) -> dict[str, Any]:
    """The fields of a TaskMessage whose body lies at *payload*."""
    written = _place(payload)
    if payload.stored_at is not None:
        written["storedAt"] = stamp_json(payload.stored_at)
    told: dict[str, Any] = {"payload": written}
    if payload.encoding:
        told["payloadEncoding"] = payload.encoding
        if payload.unpacked_size:
            told["unpackedSize"] = str(payload.unpacked_size)
        if payload.unpacked_sha256:
            told["unpackedHash"] = base64_json(bytes.fromhex(payload.unpacked_sha256))
    return told


def retrieval_json(payload: PayloadReference, error: str) -> dict[str, Any]:
    """The details of a body that could not be fetched from *payload*."""
    return {**_place(payload), **({"error": cut_message(error)} if error else {})}


def _place(payload: PayloadReference) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if number := STORAGE_NUMBERS.get(payload.kind):
        written["storageType"] = PayloadStorageType.Name(number)
    if payload.uri:
        written["uri"] = payload.uri
    if payload.sha256:
        written["contentHash"] = base64_json(bytes.fromhex(payload.sha256))
    if payload.size:
        written["originalSize"] = str(payload.size)
    return written


def stamp_json(moment: datetime) -> str:
    """*moment* as JSON has a Timestamp: UTC, with as few digits as say it, by threes."""
    text = (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat()
    fraction = text[_SECONDS:-_OFFSET].removesuffix("000")
    return f"{text[:_SECONDS]}{fraction}Z"


def base64_json(raw: bytes) -> str:
    """*raw* as JSON has bytes."""
    return base64.b64encode(raw).decode("ascii")
