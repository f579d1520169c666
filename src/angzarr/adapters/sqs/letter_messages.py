"""Converts letters to and from the text messages of SQS and SNS. Pure, but for fresh ids.

SNS wraps a message in a notification where a subscription has no raw delivery.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from angzarr.dead_letters.codec import (
    JSON_CONTENT_TYPE,
    Form,
    correlation_id,
    encode,
    partition_key,
)
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.queue import Outgoing, RawLetter
from angzarr.dead_letters.record import ForeignRecord
from angzarr.runtime.json_bounds import Bounds, check_json

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef

#: The name of the message attribute that tells a letter's form.
CONTENT_TYPE: Final = "content_type"
#: The name of the one that says how bytes which are no letter became a text (MIME, RFC 2045).
TRANSFER_ENCODING: Final = "content_transfer_encoding"
#: What the latter says: base64, in whatever form the bytes are.
BASE64: Final = "base64"
#: Base64 of no bytes: an empty text is not a message.
_EMPTY: Final = "="

#: Characters that SQS refuses: what XML 1.0 cannot hold.
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Text(NamedTuple):
    """A letter as a text, with what its message says of it, which may be nothing."""

    text: str
    content_type: str = ""
    transfer_encoding: str = ""


def is_legal(text: str) -> bool:
    """True if SQS takes *text* as a message or as an attribute's value."""
    return bool(text) and not _ILLEGAL.search(text)


def as_text(letter: Outgoing, form: Form) -> Text:
    """*letter* as a text: JSON, or base64 of the binary form.

    Binary, too, where the JSON has a character that SQS refuses. Bytes that are no letter stay as
    they are where that is a text which is read as these bytes, else they are base64 and said so.
    """
    if isinstance(letter, RawLetter):
        return _raw_as_text(*encode(letter))
    return _letter_as_text(letter, form)


def as_bytes(given: Text) -> bytes:
    """The bytes of a letter: base64 wherever the text is not JSON (wire facts)."""
    if given.transfer_encoding == BASE64:
        return _of_base64(given.text, strict=False)
    if given.content_type.startswith(JSON_CONTENT_TYPE) or given.text.startswith("{"):
        return _plain(given.text)
    return _of_base64(given.text, strict=True)


def told_by(attributes: Mapping[str, str], text: str) -> Text:
    """*text* with what the *attributes* of its message say."""
    return Text(text, attributes.get(CONTENT_TYPE, ""), attributes.get(TRANSFER_ENCODING, ""))


def _letter_as_text(letter: DeadLetter, form: Form) -> Text:
    body, content_type = encode(letter, form)
    if content_type == JSON_CONTENT_TYPE:
        text = body.decode()
        if text.isascii() or is_legal(text):  # JSON escapes what SQS refuses of ASCII
            return Text(text, content_type)
        body, content_type = encode(letter, Form.BINARY)
    return Text(base64.b64encode(body).decode(), content_type)


def _raw_as_text(raw: bytes, content_type: str) -> Text:
    try:
        plain = Text(raw.decode(), content_type)
    except UnicodeDecodeError:
        plain = Text("")
    # Without a content type foreign JSON could be taken for a notification of SNS.
    if content_type and is_legal(plain.text) and as_bytes(plain) == raw:
        return plain
    return Text(base64.b64encode(raw).decode() or _EMPTY, content_type, BASE64)


def _of_base64(text: str, *, strict: bool) -> bytes:
    try:
        return base64.b64decode(text, validate=strict)
    except (binascii.Error, ValueError):
        return _plain(text)


def _plain(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


#: Attributes asked for with each message: AWS counts ten of a sender, and some of its own.
ALL: Final = ("All",)


def record_of(message: MessageTypeDef) -> ForeignRecord:
    """Attributes, id and place of *message*, and those of a notification that it holds."""
    given = message.get("MessageAttributes", {})
    headers = [(name, _value(value)) for name, value in given.items()]
    system = {str(name): value for name, value in message.get("Attributes", {}).items()}
    group = system.get("MessageGroupId")
    return ForeignRecord(
        broker="sqs",
        place={"message_id": message.get("MessageId", "")},
        is_unique=True,
        key=group.encode() if group else None,
        headers=(*headers, *attributes_of(message.get("Body", "")).items()),
        properties=system,
    )


def _value(given: Any) -> Any:
    return given["BinaryValue"] if "BinaryValue" in given else given.get("StringValue", "")


#: A notification holds its message as one text, and ten attributes.
_BOUNDS: Final = Bounds(nodes=1_000, depth=20)
#: What every notification has and no letter does; asked before the text is parsed.
_MARK: Final = '"TopicArn"'


def unwrapped(given: Text) -> Text:
    """The text inside *given* if it is a notification of SNS, else *given*; never fails."""
    if any((given.content_type, given.transfer_encoding)):
        return given
    told = _notification(given.text)
    if told is None:
        return given
    return told_by(_values(told.get("MessageAttributes")), told["Message"])


def attributes_of(text: str) -> dict[str, str]:
    """The attributes of the message in a notification; none where *text* is something else.

    Its topic and id are among them, since nothing else keeps them.
    """
    told = _notification(text)
    if told is None:
        return {}
    named = {name: told.get(name) for name in ("TopicArn", "MessageId", "Subject", "Timestamp")}
    said = {f"sns:{name}": value for name, value in named.items() if isinstance(value, str)}
    return {**said, **_values(told.get("MessageAttributes"))}


def _notification(text: str) -> dict[str, Any] | None:
    if _MARK not in text:
        return None
    try:
        check_json(text, _BOUNDS)
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return told if _is_notification(told) else None


def _is_notification(given: Any) -> bool:
    return (
        isinstance(given, dict)
        and given.get("Type") == "Notification"
        and isinstance(given.get("TopicArn"), str)
        and isinstance(given.get("Message"), str)
    )


def _values(attributes: Any) -> dict[str, str]:
    """The texts among *attributes*, which are another's: they may be anything."""
    named = attributes if isinstance(attributes, Mapping) else {}
    values = {name: one.get("Value") for name, one in named.items() if isinstance(one, Mapping)}
    return {name: value for name, value in values.items() if isinstance(value, str)}


#: Entries that SQS and SNS take in one batch.
BATCH: Final = 10
#: What SQS takes as the name of a message group.
_GROUP: Final = re.compile(r"[!-~]{1,128}")


class BatchEntry(NamedTuple):
    """One letter, ready to be sent: its place among those put, its bytes as the service counts."""

    at: int
    domain: str
    size: int
    request: dict[str, Any]


def problem_of(letter: Outgoing) -> str:
    """The reason why SQS can never carry *letter*, true only of raw bytes; else empty."""
    if isinstance(letter, RawLetter) and letter.record is None and not _is_carried(letter):
        return "its content type has characters that AWS does not carry"
    return ""


def _is_carried(letter: RawLetter) -> bool:
    return not letter.content_type or is_legal(letter.content_type)


def entry_of(at: int, letter: Outgoing, form: Form, *, body: str, fifo: bool) -> BatchEntry:
    """*letter* as an entry; *body* is what the service calls the text of a message."""
    text, content_type, transfer_encoding = as_text(letter, form)
    facts = {
        CONTENT_TYPE: content_type,
        TRANSFER_ENCODING: transfer_encoding,
        "domain": letter.domain,
        "correlation_id": correlation_id(letter),
    }
    attributes = {
        name: {"DataType": "String", "StringValue": value}
        for name, value in facts.items()
        if is_legal(value)
    }
    size = _bytes(text) + sum(
        len(name) + len("String") + _bytes(value["StringValue"])
        for name, value in attributes.items()
    )
    order = ordering(letter) if fifo else {}
    request = {"Id": str(at), body: text, "MessageAttributes": attributes, **order}
    return BatchEntry(at, letter.domain, size, request)


def ordering(letter: Outgoing) -> Mapping[str, str]:
    """The group that a FIFO queue orders *letter* by, and a fresh id for this send.

    Letters of one aggregate are in order; one that has none is a group of its own, since a letter
    in flight blocks those behind it. The id serves the client's own repeats of a request. It is not
    the letter's: for 5 minutes SQS confirms a known id and keeps nothing, also where that message
    has been deleted since, so that a letter moved away and back would be lost.
    """
    group = partition_key(letter) or letter.id
    return {
        "MessageGroupId": group if _GROUP.fullmatch(group) else _digest(group),
        "MessageDeduplicationId": uuid.uuid4().hex,
    }


def batches(entries: Sequence[BatchEntry], limit: int) -> Iterator[list[BatchEntry]]:
    """Cut *entries*, in order, into batches of at most *limit* bytes."""
    batch: list[BatchEntry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == BATCH or size + entry.size > limit):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry.size
    if batch:
        yield batch


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
