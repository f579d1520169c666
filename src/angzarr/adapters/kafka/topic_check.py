"""Looks once at each topic that letters go to, beside the road, and says what could lose them."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Collection
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from angzarr.adapters.kafka.client import Cluster, reason_of
from angzarr.adapters.kafka.durability import (
    IN_SYNC,
    Found,
    is_worth_a_warning,
    lacks_in_sync,
    weaknesses,
)
from angzarr.runtime.log_throttle import LogThrottle

_LOG: Final = logging.getLogger(__name__)
#: Seconds between two looks for a topic that was created a moment ago.
_PAUSE: Final = 0.2
#: Topics that one line names.
_NAMED: Final = 5


class TopicCheck:
    """Judges each topic once a process, in a thread of its own: no letter waits for it.

    It needs the right to describe topics and their settings; without it says nothing.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._begun: set[str] = set()
        self._unsaid: deque[tuple[int, str]] = deque()  # no lock: a fork would copy it locked
        self._seldom = LogThrottle()

    def begin(self, names: Collection[str], *, created: Collection[str]) -> None:
        """Begin to look at those of *names* that are new here; we *created* some just now."""
        new = sorted(name for name in names if name not in self._begun or name in created)
        self._begun.update(new)
        if not new:
            return
        look = threading.Thread(
            target=self._look,
            args=(new, frozenset(created)),
            name="angzarr-kafka-topics",
            daemon=True,
        )
        with contextlib.suppress(RuntimeError):  # no more threads: letters do not suffer for it
            look.start()

    def say(self) -> None:
        """Say what was found, at most once a minute; the rest waits for a later call."""
        if not self._unsaid or not self._seldom.now():
            return
        told: list[tuple[int, str]] = []
        with contextlib.suppress(IndexError):
            while True:
                told.append(self._unsaid.popleft())
        if not told:  # another thread was quicker
            return
        more = len(told) - _NAMED
        _LOG.log(
            max((level for level, _ in told), default=logging.INFO),
            "dead_letters_at_risk: Kafka could lose or delete dead letters. %s%s",
            "; ".join(text for _, text in told[:_NAMED]),
            f"; and {more} more topics" if more > 0 else "",
        )

    def _look(self, names: list[str], created: frozenset[str]) -> None:
        try:
            admin = AdminClient(self._cluster.settings())
            for topic in self.found(admin, names):
                self._judge(admin, topic, created)
            self.say()
        except Exception as error:  # noqa: BLE001  no right to ask, or Kafka is away: not our road
            reason = error.args[0] if isinstance(error, KafkaException) else repr(error)
            _LOG.debug("the topics of dead letters could not be looked at: %s", reason_of(reason))

    def _judge(self, admin: Any, topic: Found, created: frozenset[str]) -> None:
        # How many replicas "the broker's default" gave is known only now. To ask for it before
        # takes the right to describe brokers, and may be wrong: placement can be the cluster's.
        # All replicas of a new topic are in sync, so the first letters have them all as well.
        if topic.name in created and lacks_in_sync(topic) and self._set_in_sync(admin, topic.name):
            return
        if told := weaknesses(topic):
            level = logging.WARNING if is_worth_a_warning(topic) else logging.INFO
            self._unsaid.append((level, f"{topic.name}: {', '.join(told)}"))

    def _set_in_sync(self, admin: Any, name: str) -> bool:
        wanted = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in IN_SYNC.items()
        ]
        topic = ConfigResource(ResourceType.TOPIC, name, incremental_configs=wanted)
        try:
            self._all(admin.incremental_alter_configs, [topic])
        except KafkaException as error:
            _LOG.debug("min.insync.replicas of %s is as it was: %s", name, reason_of(error.args[0]))
            return False
        return True

    def found(self, admin: Any, names: list[str]) -> list[Found]:
        """Return *names* as they are; those that are not there within the time-out are left out."""
        seen, replicas = self._seen(admin, names)
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in replicas]
        told = self._all(admin.describe_configs, asked)
        return [
            Found(
                name=topic.name,
                brokers=len(seen.brokers),
                replicas=replicas[topic.name],
                settings={key: str(entry.value) for key, entry in settings.items()},
            )
            for topic, settings in told.items()
        ]

    def _seen(self, admin: Any, names: list[str]) -> tuple[Any, dict[str, int]]:
        """Return the cluster and how many replicas each of *names* has in its least partition.

        A topic that was created a moment ago is waited for.
        """
        deadline = time.monotonic() + self._cluster.timeout
        while True:
            seen = admin.list_topics(timeout=self._cluster.timeout)
            found = {name: seen.topics[name].partitions for name in names if name in seen.topics}
            counts = {
                name: min(len(partition.replicas) for partition in partitions.values())
                for name, partitions in found.items()
                if partitions
            }
            if len(counts) == len(names) or time.monotonic() > deadline:
                return seen, counts
            time.sleep(_PAUSE)

    def _all(self, ask: Any, resources: list[Any]) -> dict[Any, Any]:
        """Return the answer for each of *resources*; one that is refused raises KafkaException."""
        if not resources:
            return {}
        futures = ask(resources, request_timeout=self._cluster.timeout)
        return {one: future.result() for one, future in futures.items()}
