"""What a Kafka broker refuses is seen, with the reason, and nothing is taken for written.

Covered here, over a real broker: a login or a certificate that is not accepted, no right to write
or to create the topic; over librdkafka's mock: too few replicas in sync, and what else a broker
says to a batch. In test_kafka_dead_letters: a letter too large for
the topic, a topic that is missing or deleted, and one that cannot be created; a batch refused
amid others (KAFKA-15591). In test_kafka_faults: a client that fails for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from adapters.kafka_faults import refuse_on_mock
from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.dead_letters.names import queue_name
from angzarr.errors import DeadLetterQueueUnavailable
from contracts.dead_letters import a_letter
from kafka_servers import PASSWORD, PrivateKafka
from polling import wait_until

#: For what is refused or never answered, which the client says only at the end of it.
SOON = timedelta(seconds=2)
#: For what is answered, however busy the machine: the first login of a cold broker takes long.
IN_THE_END = timedelta(seconds=90)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateKafka]:
    with PrivateKafka(tmp_path_factory.mktemp("kafka") / "server") as server:
        allow(server, ResourceType.TOPIC, "angzarr-dlq-own", AclOperation.ALL)
        allow(server, ResourceType.GROUP, "own", AclOperation.READ)
        yield server


def allow(server: PrivateKafka, kind: ResourceType, prefix: str, operation: AclOperation) -> None:
    """Let `writer` do *operation* with what begins with *prefix*."""
    admin = AdminClient({"bootstrap.servers": server.url})
    rule = AclBinding(
        kind, prefix, ResourcePatternType.PREFIXED, "User:writer", "*", operation,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    [done] = admin.create_acls([rule]).values()
    done.result(60)


def queue_of(
    server: PrivateKafka, user: str, timeout: timedelta = IN_THE_END, **changes: str
) -> KafkaDeadLetterQueue:
    options = server.options(user, **changes)
    return KafkaDeadLetterQueue(
        f"127.0.0.1:{server.secure}", group="own", timeout=timeout, options=options
    )


def create(brokers: str, domain: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    given = {name.replace("_", "."): value for name, value in settings.items()}
    topic = NewTopic(queue_name(domain), 1, config=given)
    admin.create_topics([topic])[queue_name(domain)].result(60)


def test_letters_go_over_tls_with_a_password(server: PrivateKafka) -> None:
    queue = queue_of(server, "writer")
    assert queue.put([a_letter("own")]) == [None]
    queue.close()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl_password": "s3cret-and-wrong"}, "does not take dead letters"),
        ({"ssl_ca_location": "/etc/ssl/certs/ca-certificates.crt"}, "does not take dead letters"),
    ],
)
def test_a_login_or_a_certificate_that_is_refused_is_told_without_secrets(
    server: PrivateKafka, changes: dict[str, str], said: str
) -> None:
    queue = queue_of(server, "writer", SOON, **changes)
    with pytest.raises(DeadLetterQueueUnavailable, match=said) as caught:
        queue.put([a_letter("own")])
    assert "s3cret" not in str(caught.value)
    assert PASSWORD not in repr(queue._cluster)
    queue.close()


def test_a_topic_that_one_may_not_create_is_a_refusal_of_its_letters_only(
    server: PrivateKafka,
) -> None:
    queue = queue_of(server, "writer")
    answers = queue.put([a_letter("foreign"), a_letter("own", 1)])
    assert "refused to create its topic" in str(answers[0])
    assert "uthoriz" in str(answers[0])
    assert answers[1] is None
    queue.close()


def test_a_topic_that_one_may_see_and_not_write_is_a_refusal(server: PrivateKafka) -> None:
    create(server.url, "readable")
    allow(server, ResourceType.TOPIC, queue_name("readable"), AclOperation.DESCRIBE)
    queue = queue_of(server, "writer")
    answers = queue.put([a_letter("readable"), a_letter("own", 2)])
    assert "uthoriz" in str(answers[0])
    assert answers[1] is None
    queue.close()


def test_who_may_do_nothing_is_told_so(server: PrivateKafka) -> None:
    queue = queue_of(server, "stranger")
    [answer] = queue.put([a_letter("own", 3)])
    assert "uthoriz" in str(answer)
    queue.close()


#: Refusals that no broker of one node gives: of librdkafka's mock cluster.
MOCK = {"test.mock.num.brokers": 1}
FOR_GOOD = [
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_REQUIRED_ACKS,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
]
FOR_A_WHILE = [
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.KAFKA_STORAGE_ERROR,
]


@pytest.fixture
def mocked() -> Iterator[KafkaDeadLetterQueue]:
    queue = KafkaDeadLetterQueue("mock", timeout=timedelta(seconds=1), options=MOCK)
    yield queue
    queue.close()


@pytest.fixture
def patient() -> Iterator[KafkaDeadLetterQueue]:
    """With time to ask again, also on a machine that is busy."""
    queue = KafkaDeadLetterQueue("mock", timeout=timedelta(seconds=20), options=MOCK)
    yield queue
    queue.close()


@pytest.mark.parametrize("code", FOR_GOOD)
def test_a_refusal_for_good_is_told(mocked: KafkaDeadLetterQueue, code: int) -> None:
    refuse_on_mock(mocked._producer.client(), queue_name("any"), [code])
    try:
        [answer] = mocked.put([a_letter("any")])
    except DeadLetterQueueUnavailable as error:
        answer = str(error)
    assert answer is not None
    # What the client believes of a topic's rights it asks about again by itself.
    wait_until(lambda: mocked.put([a_letter("any")]) == [None], "the next one is taken")


@pytest.mark.parametrize("code", FOR_A_WHILE)
def test_a_refusal_that_passes_costs_nothing(patient: KafkaDeadLetterQueue, code: int) -> None:
    refuse_on_mock(patient._producer.client(), queue_name("any"), [code])
    assert patient.put([a_letter("any")]) == [None]


def test_too_few_replicas_in_sync_for_longer_are_no_success(mocked: KafkaDeadLetterQueue) -> None:
    codes = [KafkaError.NOT_ENOUGH_REPLICAS] * 200
    refuse_on_mock(mocked._producer.client(), queue_name("any"), codes)
    with pytest.raises(DeadLetterQueueUnavailable):
        mocked.put([a_letter("any")])
