"""Idempotency keys: deterministic, collision-free, bounded and readable (spec D4).

No builder here reads a clock or makes anything random: the time in a key is the event's
`occurred_at`, the nonce of an external call comes from the event id and the call's number.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

#: Longest part of a key, in characters, that is written out whole.
MAX_PART = 200

#: The same for the parts of a built key, so that the whole stays below `MAX_PART`.
MAX_NAME = 60

#: Hex digits of the digest of a part that was cut: 160 bits.
_DIGEST = 40

#: What never stands in a part: our separator, our escape, and what Redis, SQL or a terminal
#: cannot carry (control characters, spaces, lone surrogates).
_UNSAFE = re.compile("[%:\x00-\x20\x7f\ud800-\udfff]")
_UNSAFE_OR_UNDERSCORE = re.compile("[%:_\x00-\x20\x7f\ud800-\udfff]")


def key_part(text: str, limit: int = MAX_PART) -> str:
    """Return *text* as a part of a key, percent-escaped; no two texts give the same part.

    A part longer than *limit* characters keeps its head and gets a digest behind ``%.``,
    which no escape looks like.
    """
    if len(text) <= limit and _UNSAFE.search(text) is None:
        return text  # nearly all are
    return _bounded(text, _UNSAFE.sub(_escape, text), limit)


def printable_part(text: str) -> str:
    """Return `key_part` with all escaped that cannot be printed: people read it and type it."""
    free = (one if one.isprintable() else _percent(one) for one in _UNSAFE.sub(_escape, text))
    return _bounded(text, "".join(free), MAX_PART)


def fact_key(type_: str, occurred_at: datetime, entity: str) -> str:
    """Return ``fact_{type}_{ts}_{entity}``."""
    return f"fact_{_free(type_)}_{_time(occurred_at)}_{_tight(entity)}"


def entity_key(type_: str, entity_id: str, occurred_at: datetime) -> str:
    """Return ``entity_{type}_{id}_{ts}``."""
    return f"entity_{_free(type_)}_{_tight(entity_id)}_{_time(occurred_at)}"


def config_key(config_id: str, version: str, occurred_at: datetime) -> str:
    """Return ``config_{id}_{version}_{ts}``."""
    return f"config_{_free(config_id)}_{_tight(version)}_{_time(occurred_at)}"


def external_key(tool: str, operation: str, event_id: str, call: int) -> str:
    """Return ``external_{tool}_{op}_{nonce}``; *call* counts one handler run's calls from 1.

    The same call of another attempt of the event has the same key, as the other side needs it.
    """
    return f"external_{_tight(tool)}_{_free(operation)}_{_tight(event_id)}-{call}"


def owner_lease_key(prefix: str, owner: str) -> str:
    """Return the key of *owner*'s lease in Redis: its claims and its messages hang on it."""
    return f"{prefix}:owner:{owner}"


def _free(text: str) -> str:
    """One part of each key may hold underscores: what is left of it and right of it may not."""
    return key_part(text, MAX_NAME)


def _tight(text: str) -> str:
    return _bounded(text, _UNSAFE_OR_UNDERSCORE.sub(_escape, text), MAX_NAME)


def _time(moment: datetime) -> str:
    """Write *moment* in UTC with microseconds; a naive time would differ between machines."""
    if moment.tzinfo is None:
        msg = f"a key needs an aware time, not {moment!r}: its zone is unknown"
        raise ValueError(msg)
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def _escape(match: re.Match[str]) -> str:
    return _percent(match[0])


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _bounded(text: str, safe: str, limit: int) -> str:
    if len(safe) <= limit:
        return safe
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{safe[: limit - _DIGEST - 2]}%.{digest}"
