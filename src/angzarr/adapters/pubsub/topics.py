"""Makes sure that each topic has the subscription that keeps its letters.

Pub/Sub also confirms a letter for a topic without a subscription, and keeps it nowhere. So letters
are published only after the subscription was seen, and it is checked again from time to time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

from google.api_core.exceptions import AlreadyExists, GoogleAPICallError, InvalidArgument, NotFound
from google.pubsub_v1.types import ExpirationPolicy, Subscription

from angzarr.adapters.pubsub.client import AWAY, Clients, reason_of

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
    """A subscription that never expires."""
    return Subscription(
        name=name,
        topic=topic,
        ack_deadline_seconds=int(lease.total_seconds()),
        message_retention_duration=retention,
        expiration_policy=ExpirationPolicy(),  # an empty one: never
        enable_message_ordering=ordering,
    )


def problem_of(found: Any, topic: str, *, ordering: bool, reading: bool) -> str:
    """The reason why *found* may lose letters of *topic*; the empty string if it keeps them.

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
    """By what letters in *found* could be lost or moved, with what to do.

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


_LOG: Final = logging.getLogger(__name__)
#: Seconds for which a subscription that was seen counts as being there, for who writes and reads.
_TRUSTED: Final = {False: 60.0, True: 5.0}


class Topics:
    """Creates or checks topics and subscriptions; safe from any thread."""

    def __init__(self, clients: Clients, *, create_missing: bool, lease: timedelta) -> None:
        self._clients = clients
        self._service = clients.service
        self._create_missing = create_missing
        self._lease = lease
        self._seen: dict[tuple[str, bool], float] = {}
        self._made: Counter[str] = Counter()
        self._judged: set[str] = set()

    def ensure(self, names: Collection[str], *, reading: bool = False) -> dict[str, str]:
        """Those of *names* that letters must not be trusted to, each with why.

        Raises the client's error where there is no answer.
        """
        refused = {}
        for name in sorted(names):
            seen_at = self._seen.get((name, reading), float("-inf"))
            if time.monotonic() < seen_at + _TRUSTED[reading]:
                continue
            if why := self._why_not(name, reading=reading):
                refused[name] = why
            else:
                self._seen[name, reading] = time.monotonic()
        return refused

    def made(self, name: str) -> int:
        """The times that *name* was made here: a stream opened before the last reads nothing."""
        return self._made[name]

    def forget(self, name: str) -> None:
        """Look again when *name* is next needed."""
        for reading in _TRUSTED:
            self._seen.pop((name, reading), None)

    def _why_not(self, name: str, *, reading: bool) -> str:
        try:
            found = self._found(name) or self._created(name)
        except AWAY:
            raise
        except GoogleAPICallError as error:
            return f"its topic or subscription cannot be had: {reason_of(error)}"
        if found is None:
            return f"the subscription {name} is missing; make it, or set dlq.create_missing: true"
        topic, ordering = self._service.topic(name), self._service.ordering
        why = problem_of(found, topic, ordering=ordering, reading=reading)
        if not why:
            self._judge(name, found)
        return why

    def _judge(self, name: str, found: Any) -> None:
        """Warn, once a process, of what a subscription lacks that others made."""
        if name in self._judged:
            return
        self._judged.add(name)
        if told := weaknesses(found, longest_retention()):
            said = "dead_letters_at_risk: Pub/Sub could lose or move dead letters. %s: %s"
            _LOG.warning(said, name, ", ".join(told))

    def _found(self, name: str) -> Any:
        try:
            return self._clients.subscriber.get_subscription(
                subscription=self._service.subscription(name), **self._service.once
            )
        except NotFound:
            return None

    def _created(self, name: str) -> Any:
        """The new subscription of *name*, or one that was made meanwhile."""
        if not self._create_missing:
            return None
        with contextlib.suppress(AlreadyExists):
            self._clients.publisher.create_topic(
                name=self._service.topic(name), **self._service.once
            )
        for retention in RETENTIONS:
            try:
                return self._subscribed(name, retention)
            except AlreadyExists:
                return self._found(name)
            except InvalidArgument:  # it keeps letters for less long
                if retention is RETENTIONS[-1]:
                    raise
        return None

    def _subscribed(self, name: str, retention: timedelta) -> Any:
        wanted = new_subscription(
            self._service.subscription(name),
            self._service.topic(name),
            lease=self._lease,
            retention=retention,
            ordering=self._service.ordering,
        )
        made = self._clients.subscriber.create_subscription(request=wanted, **self._service.once)
        self._made[name] += 1
        return made


def longest_retention() -> timedelta:
    """The longest time that a subscription can keep a letter: less on an emulator."""
    return RETENTIONS[-1] if os.environ.get("PUBSUB_EMULATOR_HOST") else RETENTIONS[0]
