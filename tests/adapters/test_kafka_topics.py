from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from angzarr.adapters.kafka.client import KafkaCluster
from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.adapters.kafka.topics import (
    FoundTopic,
    TopicCheck,
    lacks_in_sync,
    settings_for,
    weaknesses,
)
from angzarr.dead_letters.names import queue_name
from angzarr.runtime.failures import LogThrottle
from contracts.dead_letters import a_letter
from polling import PATIENCE, wait_until

SAFE = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "unclean.leader.election.enable": "false",
    "min.insync.replicas": "2",
}
LINE = "Kafka could lose or delete dead letters"


@pytest.fixture
def domain() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def admin(kafka_brokers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_brokers})


@pytest.fixture
def queue(kafka_brokers: str, caplog: pytest.LogCaptureFixture) -> Iterator[KafkaDeadLetterQueue]:
    caplog.set_level(logging.DEBUG, "angzarr.adapters.kafka")
    queue = KafkaDeadLetterQueue(kafka_brokers)
    yield queue
    queue.close()


def create(admin: AdminClient, domain: str, **settings: str) -> None:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    new = NewTopic(queue_name(domain), 1, config=given)
    admin.create_topics([new])[queue_name(domain)].result(60)


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if LINE in record.getMessage()]


def wait_for_lines(caplog: pytest.LogCaptureFixture, count: int) -> list[logging.LogRecord]:
    wait_until(lambda: len(lines(caplog)) >= count, f"{count} lines")
    return lines(caplog)


def found(replicas: int = 3, **changes: str) -> FoundTopic:
    given = {name.replace("_", "."): value for name, value in changes.items()}
    return FoundTopic(name="angzarr-dlq-order", brokers=3, replicas=replicas, settings=SAFE | given)


def test_a_topic_that_expires_letters_is_told_once_with_what_to_do(
    queue: KafkaDeadLetterQueue,
    admin: AdminClient,
    domain: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create(admin, domain, retention_ms="3600000", retention_bytes="1000000")
    for number in range(3):
        assert queue.put([a_letter(domain, number)]) == [None]
    [line] = wait_for_lines(caplog, 1)
    assert line.levelno == logging.WARNING
    assert f"{queue_name(domain)}: retention.ms=3600000 (set it to -1)" in line.getMessage()
    assert "retention.bytes=1000000 (set it to -1)" in line.getMessage()
    assert "one replica (give it 3" in line.getMessage()


def test_one_replica_where_there_is_one_broker_is_no_warning(
    queue: KafkaDeadLetterQueue, domain: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert queue.put([a_letter(domain)]) == [None]
    [line] = wait_for_lines(caplog, 1)
    assert line.levelno == logging.INFO
    assert "one replica" in line.getMessage()


def test_a_second_topic_is_told_a_minute_after_the_first(
    queue: KafkaDeadLetterQueue,
    admin: AdminClient,
    domain: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = [1000.0]
    check = queue._topics._check
    check._seldom = LogThrottle(monotonic=lambda: clock[0])
    create(admin, domain, retention_ms="1000000")
    other = f"{domain}x"
    create(admin, other, retention_ms="2000000")
    queue.put([a_letter(domain)])
    assert queue_name(domain) in wait_for_lines(caplog, 1)[0].getMessage()
    queue.put([a_letter(other)])
    wait_until(lambda: check._unsaid, "the other to be known")
    queue.put([a_letter(other)])
    assert len(lines(caplog)) == 1
    clock[0] += 60
    queue.put([a_letter(other)])
    assert "retention.ms=2000000" in wait_for_lines(caplog, 2)[1].getMessage()


def test_a_topic_that_cannot_be_asked_about_is_nothing_but_a_debug_line(
    queue: KafkaDeadLetterQueue,
    domain: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(AdminClient, "describe_configs", _denying(denied))
    assert queue.put([a_letter(domain)]) == [None]
    wait_until(lambda: "could not be looked at" in caplog.text, "the line")
    [line] = [one for one in caplog.records if "could not be looked at" in one.getMessage()]
    assert line.levelno == logging.DEBUG
    assert lines(caplog) == []


def test_a_topic_is_created_where_nobody_may_choose_all_of_its_settings(
    queue: KafkaDeadLetterQueue,
    admin: AdminClient,
    domain: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A hosted Kafka refuses settings that are not the user's, as this broker does a wrong value.
    refused = {**SAFE, "min.insync.replicas": "none"}
    monkeypatch.setattr("angzarr.adapters.kafka.topics.settings_for", lambda _number: refused)
    assert queue.put([a_letter(domain)]) == [None]
    topic = ConfigResource(ResourceType.TOPIC, queue_name(domain))
    [settings] = [future.result(60) for future in admin.describe_configs([topic]).values()]
    assert settings["retention.ms"].value == "-1"


def test_letters_wait_for_no_look_at_their_topic(
    queue: KafkaDeadLetterQueue, domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put([a_letter(f"{domain}x")])
    looks: list[int] = []
    over = threading.Event()
    mute = lambda *_args, **_named: looks.append(1) or over.wait(10 * PATIENCE)  # noqa: E731
    monkeypatch.setattr("angzarr.adapters.kafka.topics.TopicCheck.found", mute)
    assert queue.put([a_letter(domain)]) == [None]
    assert queue.put([a_letter(domain)]) == [None]
    wait_until(lambda: bool(looks), "the look that does not end")
    over.set()


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        (found(), []),
        (found(replicas=2, min_insync_replicas="1"), []),
        (found(replicas=1), ["one replica (give it 3 and min.insync.replicas=2)"]),
        (found(min_insync_replicas="1"), ["min.insync.replicas=1 (set it to 2)"]),
        (found(retention_ms="604800000"), ["retention.ms=604800000 (set it to -1)"]),
        (found(retention_bytes="1"), ["retention.bytes=1 (set it to -1)"]),
        (
            found(cleanup_policy="compact,delete"),
            ["cleanup.policy=compact,delete (set it to delete)"],
        ),
        (
            found(unclean_leader_election_enable="true"),
            ["unclean.leader.election.enable=true (set it to false)"],
        ),
        (FoundTopic(name="any", brokers=3, replicas=3, settings={}), []),
    ],
)
def test_what_could_lose_letters_is_told_with_what_to_do(
    topic: FoundTopic, told: list[str]
) -> None:
    assert weaknesses(topic) == told


def test_two_replicas_are_asked_for_where_there_are_three() -> None:
    assert settings_for(3)["min.insync.replicas"] == "2"
    assert "min.insync.replicas" not in settings_for(2)
    assert "min.insync.replicas" not in settings_for(-1)
    assert lacks_in_sync(found(min_insync_replicas="1"))
    assert not lacks_in_sync(found(min_insync_replicas="2"))
    assert not lacks_in_sync(found(replicas=2, min_insync_replicas="1"))


class Three:
    """An admin of three brokers as `TopicCheck` sees it; a real one was tried by hand."""

    def __init__(self, refusal: KafkaError | None = None) -> None:
        self.refusal = refusal
        self.set: list[tuple[str, str, str]] = []

    def list_topics(self, timeout: float) -> SimpleNamespace:
        partition = SimpleNamespace(replicas=[1, 2, 3])
        topic = SimpleNamespace(partitions={0: partition})
        return SimpleNamespace(brokers={1: 0, 2: 0, 3: 0}, topics={"angzarr-dlq-order": topic})

    def describe_configs(self, resources: list[ConfigResource], **_: object):
        told = SAFE | {"min.insync.replicas": "1"}
        entries = {name: SimpleNamespace(value=value) for name, value in told.items()}
        return {resource: _answered(entries) for resource in resources}

    def incremental_alter_configs(self, resources: list[ConfigResource], **_: object):
        for resource in resources:
            for entry in resource.incremental_configs:
                self.set.append((resource.name, entry.name, entry.value))
        return {resource: _answered(None, self.refusal) for resource in resources}


@pytest.mark.parametrize("created", [True, False])
def test_a_topic_of_ours_whose_three_replicas_the_broker_chose_wants_two_in_sync(
    *, created: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Three()
    _look_at(admin, monkeypatch, created=created)
    assert admin.set == ([("angzarr-dlq-order", "min.insync.replicas", "2")] if created else [])
    assert len(lines(caplog)) == (0 if created else 1)


def test_who_may_not_set_how_many_are_in_sync_is_told_what_to_set(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    _look_at(Three(refusal), monkeypatch, created=True)
    [line] = lines(caplog)
    assert "min.insync.replicas=1 (set it to 2)" in line.getMessage()


def _look_at(admin: Three, monkeypatch: pytest.MonkeyPatch, *, created: bool) -> None:
    monkeypatch.setattr("angzarr.adapters.kafka.topics.AdminClient", lambda _settings: admin)
    check = TopicCheck(KafkaCluster(brokers="any", timeout=1, options={}))
    name = "angzarr-dlq-order"
    check._look([name], frozenset([name] if created else []))


def _answered(result: object, error: KafkaError | None = None) -> Future[object]:
    future: Future[object] = Future()
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(KafkaException(error))
    return future


def _denying(error: KafkaError):
    def describe(_admin: AdminClient, resources: list[ConfigResource], **_: object):
        return {resource: _answered(None, error) for resource in resources}

    return describe
