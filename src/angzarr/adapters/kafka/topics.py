"""Kafka's topics of letters: creates missing ones, and checks whether each keeps its letters."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from angzarr.adapters.kafka.client import KafkaCluster, reason_of
from angzarr.runtime.failures import LogThrottle

_LOG: Final = logging.getLogger(__name__)

#: Letters are kept until they are dealt with, not for Kafka's seven days.
BASE: Final[Mapping[str, str]] = {"retention.ms": "-1", "cleanup.policy": "delete"}
_ONE_REPLICA: Final = "one replica (give it 3 and min.insync.replicas=2)"
#: With this many replicas one may be away, and a letter still has two.
_ENOUGH_REPLICAS: Final = 3
#: Where there are enough replicas: with fewer in sync a letter is refused, and put again.
IN_SYNC: Final[Mapping[str, str]] = {"min.insync.replicas": "2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """A topic as it is; settings that Kafka did not tell are missing."""

    name: str
    brokers: int
    replicas: int
    settings: Mapping[str, str]


def settings_for(replication: int) -> dict[str, str]:
    """All that a new topic should have; -1 replicas is the broker's number, unknown yet."""
    own = {**BASE, "retention.bytes": "-1", "unclean.leader.election.enable": "false"}
    return {**own, **IN_SYNC} if replication >= _ENOUGH_REPLICAS else own


def lacks_in_sync(topic: FoundTopic) -> bool:
    """True if one replica may take a letter alone where two could be asked for."""
    in_sync = topic.settings.get("min.insync.replicas", "")
    return topic.replicas >= _ENOUGH_REPLICAS and in_sync == "1"


def weaknesses(topic: FoundTopic) -> list[str]:
    """By what letters in *topic* could be lost, each with what to do."""
    given = topic.settings
    told = [
        f"{name}={given[name]} (set it to -1)"
        for name in ("retention.ms", "retention.bytes")
        if given.get(name, "-1") != "-1"
    ]
    if "compact" in given.get("cleanup.policy", ""):
        told.append(f"cleanup.policy={given['cleanup.policy']} (set it to delete)")
    if given.get("unclean.leader.election.enable") == "true":
        told.append("unclean.leader.election.enable=true (set it to false)")
    if topic.replicas == 1:
        told.append(_ONE_REPLICA)
    if lacks_in_sync(topic):
        told.append("min.insync.replicas=1 (set it to 2)")
    return told


def is_worth_a_warning(topic: FoundTopic) -> bool:
    """False for the one replica of a single broker, which is a laptop's or was chosen."""
    return topic.brokers > 1 or weaknesses(topic) != [_ONE_REPLICA]


#: Seconds between two looks for a topic that was created a moment ago.
_PAUSE: Final = 0.2
#: Topics that one line names.
_NAMED: Final = 5


class TopicCheck:
    """Judges each topic once a process, in a thread of its own: no letter waits for it.

    It needs the right to describe topics and their settings; without it says nothing.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
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

    def _judge(self, admin: Any, topic: FoundTopic, created: frozenset[str]) -> None:
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

    def found(self, admin: Any, names: list[str]) -> list[FoundTopic]:
        """*names* as they are; those that are not there within the time-out are left out."""
        seen, replicas = self._seen(admin, names)
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in replicas]
        told = self._all(admin.describe_configs, asked)
        return [
            FoundTopic(
                name=topic.name,
                brokers=len(seen.brokers),
                replicas=replicas[topic.name],
                settings={key: str(entry.value) for key, entry in settings.items()},
            )
            for topic, settings in told.items()
        ]

    def _seen(self, admin: Any, names: list[str]) -> tuple[Any, dict[str, int]]:
        """The cluster and how many replicas each of *names* has in its least partition.

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
        """The answer for each of *resources*; one that is refused raises KafkaException."""
        if not resources:
            return {}
        futures = ask(resources, request_timeout=self._cluster.timeout)
        return {one: future.result() for one, future in futures.items()}


#: Answers of a hosted Kafka where some settings cannot be chosen.
_NOT_YOURS_TO_SET: Final = frozenset({KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION})
_MISSING: Final = (
    "its topic {} does not exist and is not to be created (dlq.create_missing is false): create it"
)


class KafkaTopics:
    """Sees to it that topics are there; safe from any thread."""

    def __init__(
        self,
        cluster: KafkaCluster,
        *,
        partitions: int,
        replication: int,
        create_missing: bool = True,
    ) -> None:
        self._cluster = cluster
        self._create_missing = create_missing
        self._partitions = partitions
        self._replication = replication
        self._ready: frozenset[str] = frozenset()
        self._check = TopicCheck(cluster)

    def ensure(self, names: set[str], client: Producer) -> dict[str, str]:
        """Those of *names* that are not there, each with why; raises KafkaException."""
        self._check.say()
        wanted = names - self._ready
        if not wanted:
            return {}
        found = client.list_topics(timeout=self._cluster.timeout).topics.keys()
        created, refused = self._create(wanted - found)
        ready = wanted - refused.keys()
        self._ready |= ready
        self._check.begin(ready, created=created)
        return refused

    def forget(self) -> None:
        """Look again when a topic is next needed."""
        self._ready = frozenset()

    def _create(self, names: Collection[str]) -> tuple[set[str], dict[str, str]]:
        """Those of *names* that were created by us, and why others are not there."""
        if not self._create_missing:
            return set(), {name: _MISSING.format(name) for name in names}
        if not names:
            return set(), {}
        errors = self._asked(names, settings_for(self._replication))
        if few := [n for n, error in errors.items() if _code(error) in _NOT_YOURS_TO_SET]:
            errors |= self._asked(few, BASE)
        refused = {
            name: f"Kafka refused to create its topic: {reason_of(error)}"
            for name, error in errors.items()
            if error is not None and error.code() != KafkaError.TOPIC_ALREADY_EXISTS
        }
        return {name for name, error in errors.items() if error is None}, refused

    def _asked(self, names: Collection[str], settings: Mapping[str, str]) -> dict[str, Any]:
        """Ask for *names* with *settings*; return the error of each, or None."""
        new = [
            NewTopic(
                name,
                num_partitions=self._partitions,
                replication_factor=self._replication,
                config=dict(settings),
            )
            for name in sorted(names)
        ]
        bound = self._cluster.timeout
        admin = AdminClient(self._cluster.settings())
        asked = admin.create_topics(new, operation_timeout=bound, request_timeout=bound)
        return {name: _error(future) for name, future in asked.items()}


def _error(created: Any) -> Any:
    try:
        created.result()
    except KafkaException as error:
        return error.args[0]
    return None


def _code(error: Any) -> int | None:
    return None if error is None else error.code()
