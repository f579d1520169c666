"""How long the other side asks us to wait: the Retry-After header and gRPC's RetryInfo.

An unreadable value counts as no wish (None); nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

#: A longer wish is cut to this: a wrong date must not park an event for years.
LONGEST = timedelta(days=1)

_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
_RETRY_INFO = b"google.rpc.RetryInfo"


def from_header(value: object, now: datetime) -> timedelta | None:
    """Read a Retry-After header: seconds or an HTTP-date (RFC 9110, 10.2.3)."""
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value or "")
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return _bounded(float(text))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return _bounded((at - now).total_seconds())


def from_grpc_metadata(metadata: Iterable[Any] | None) -> timedelta | None:
    """Read RetryInfo from a call's trailing metadata; where it is there twice, the longer wait.

    It stands in a ``google.rpc.Status`` (``grpc-status-details-bin``) or, from Google's own
    services, by itself (``google.rpc.retryinfo-bin``).
    """
    said = (_READ[key](value) for key, value in metadata or () if key in _READ and _is_raw(value))
    return max((wish for wish in said if wish is not None), default=None)


def from_grpc_status(raw: bytes) -> timedelta | None:
    """Read RetryInfo from an encoded ``google.rpc.Status``.

    The wire form is read by hand: the generated class is in a package we do not depend on, and
    importing protobuf for three nested fields costs every worker 50 ms at start.
    """
    try:
        for detail in _blocks(raw, 3):  # Status.details, each an Any
            if any(url.endswith(_RETRY_INFO) for url in _blocks(detail, 1)):
                return _retry_delay(next(_blocks(detail, 2), b""))
    except (IndexError, ValueError):
        return None
    return None


def from_grpc_retry_info(raw: bytes) -> timedelta | None:
    """Read an encoded ``google.rpc.RetryInfo``."""
    try:
        return _retry_delay(raw)
    except (IndexError, ValueError):
        return None


def _is_raw(value: object) -> bool:
    return isinstance(value, bytes)


_READ = {
    "grpc-status-details-bin": from_grpc_status,
    "google.rpc.retryinfo-bin": from_grpc_retry_info,
}


def _retry_delay(info: bytes) -> timedelta | None:
    duration = dict(_fields(next(_blocks(info, 1), b"")))
    seconds, nanos = duration.get(1, 0), duration.get(2, 0)
    if isinstance(seconds, bytes) or isinstance(nanos, bytes):
        return None
    return _bounded(_signed(seconds) + _signed(nanos) / 1e9)


def _bounded(seconds: float) -> timedelta:
    return timedelta(seconds=min(max(seconds, 0.0), LONGEST.total_seconds()))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _blocks(raw: bytes, number: int) -> Iterator[bytes]:
    return (value for key, value in _fields(raw) if key == number and isinstance(value, bytes))


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of an encoded message; raise if *raw* is not a message."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
            continue
        if kind == 2:  # noqa: PLR2004 - length-delimited, as the wire format numbers it
            size, at = _varint(raw, at)
        else:
            size = {1: 8, 5: 4}.get(kind, len(raw))  # fixed 64 and 32; groups end the reading
        if at + size > len(raw):
            raise ValueError("truncated message")
        yield tag >> 3, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):  # ten bytes hold 64 bits
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return number, at
    raise ValueError("varint too long")
