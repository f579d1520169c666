"""What makes a subscription one that keeps letters. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from google.pubsub_v1.types import ExpirationPolicy, Subscription

#: The longest that Pub/Sub keeps a message, and what its emulators take at most.
RETENTIONS: Final = (timedelta(days=31), timedelta(days=7))
#: Deliveries after which a dead-letter policy that names no number moves a message.
_ATTEMPTS: Final = 5
#: What Pub/Sub writes in place of a subscription's topic that was deleted.
_DELETED: Final = "_deleted-topic_"
_UNORDERED: Final = "keeps no order; delete it once it is empty, or set dlq.pubsub_ordering: false"


def new_subscription(
    name: str, topic: str, *, lease: timedelta, retention: timedelta, ordering: bool
) -> Subscription:
    """Return a subscription that never expires."""
    return Subscription(
        name=name,
        topic=topic,
        ack_deadline_seconds=int(lease.total_seconds()),
        message_retention_duration=retention,
        expiration_policy=ExpirationPolicy(),  # an empty one: never
        enable_message_ordering=ordering,
    )


def problem_of(found: Any, topic: str, *, ordering: bool, reading: bool) -> str:
    """Return why letters of *topic* must not be trusted to *found*; the empty string if they may.

    One who is only *reading* may still get what the subscription of a deleted topic holds.
    """
    name = found.name.rpartition("/")[2]
    if found.topic == _DELETED:
        return "" if reading else _orphaned(name)
    problems = (
        (found.topic != topic, f"belongs to {found.topic}, not to {topic}; delete it"),
        (_is_pushed(found), "is not a pull subscription; make it one, or delete it"),
        (found.detached, "is detached from its topic; delete it"),
        (found.filter, "has a filter, which would lose letters; delete it"),
        (ordering and not reading and not found.enable_message_ordering, _UNORDERED),
    )
    why = next((why for holds, why in problems if holds), "")
    return f"the subscription {name} {why}" if why else ""


def weaknesses(found: Any, longest: timedelta) -> list[str]:
    """Return by what letters in *found* could be lost or moved, with what to do.

    *longest* is how long a subscription can keep a letter.
    """
    told = []
    kept = found.message_retention_duration
    if kept and kept < longest:
        told.append(f"message_retention_duration={_seconds(kept)} (set it to {_seconds(longest)})")
    if ttl := found.expiration_policy.ttl:
        told.append(f"it expires after {_seconds(ttl)} without a reader (let it never expire)")
    if aside := found.dead_letter_policy.dead_letter_topic:
        times = found.dead_letter_policy.max_delivery_attempts or _ATTEMPTS
        told.append(
            f"a letter delivered {times} times is moved to {aside.rpartition('/')[2]}"
            " (remove its dead-letter policy)"
        )
    return told


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.0f}s"


def _orphaned(name: str) -> str:
    return (
        f"the topic of the subscription {name} was deleted, and letters may still wait in it;"
        " read them with `angzarr dlq analyze`, then delete the subscription"
    )


def _is_pushed(found: Any) -> bool:
    return bool(
        found.push_config.push_endpoint
        or found.bigquery_config.table
        or found.cloud_storage_config.bucket
    )
