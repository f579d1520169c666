from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic

from adapters.kafka_gateway import KafkaGateway
from angzarr.adapters.kafka import client
from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.adapters.kafka.fetched_messages import PartitionProgress
from angzarr.dead_letters.depth import QueueDepth, TellsDepth, depths_of
from angzarr.dead_letters.names import queue_name
from angzarr.dead_letters.queue import DeadLetterQueue, TooLarge
from angzarr.dead_letters.transfer import name_of
from angzarr.errors import ConfigurationError
from angzarr.runtime.failures import LogThrottle
from contracts.dead_letters import (
    CheckedDeadLetterQueueContract,
    CountedLettersContract,
    ForeignRecordsContract,
    RawLettersContract,
    ServerDeadLetterQueueContract,
    a_letter,
    ids,
    letters_of,
    take,
)
from polling import wait_until


class TestKafkaDeadLetterQueue(
    ForeignRecordsContract,
    RawLettersContract,
    CountedLettersContract,
    ServerDeadLetterQueueContract,
):
    @pytest.fixture(autouse=True)
    def backend(self, kafka_brokers: str) -> None:
        self.brokers = kafka_brokers
        self.group = f"angzarr-test-{uuid.uuid4().hex}"

    def open(self) -> DeadLetterQueue:
        return KafkaDeadLetterQueue(self.brokers, group=self.group)

    def open_away(self, port: int) -> DeadLetterQueue:
        secret = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "s3cret",
            "sasl.password": "s3cret",
        }
        return KafkaDeadLetterQueue(
            f"127.0.0.1:{port}", group=self.group, timeout=timedelta(seconds=1), options=secret
        )

    def put_raw(self, domain: str, raw: bytes, content_type: str | None) -> None:
        headers = [("content-type", content_type.encode())] if content_type else []
        producer = Producer({"bootstrap.servers": self.brokers})
        producer.produce(queue_name(domain), raw, headers=headers)
        assert producer.flush(10) == 0

    def put_record(self, domain: str, raw: bytes | None, name: str) -> None:
        headers = [("name", name.encode()), ("name", b"\xff"), ("none", None)]
        producer = Producer({"bootstrap.servers": self.brokers})
        producer.produce(queue_name(domain), raw, key=name, headers=headers)
        assert producer.flush(10) == 0

    def test_tombstones_of_several_keys_are_several(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        queue.put([a_letter(domain)])
        queue.done(take(queue, [domain], 1))
        for name in ("customer-1", "customer-2", "customer-2"):
            self.put_record(domain, None, name)
        taken = take(queue, [domain], 3)
        assert len({name_of(one) for one in taken}) == 3
        records = [one.record for one in taken if one.record is not None]
        assert sorted(one.key or b"" for one in records) == [
            b"customer-1",
            b"customer-2",
            b"customer-2",
        ]
        assert all(one.properties["tombstone"] for one in records)
        assert {one.place["topic"] for one in records} == {queue_name(domain)}
        assert {tuple(one.headers[1:]) for one in records} == {(("name", b"\xff"), ("none", None))}

    def committed(self, domain: str, partition: int) -> int:
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": self.group})
        try:
            [place] = consumer.committed([TopicPartition(queue_name(domain), partition)], 10)
        finally:
            consumer.close()
        return int(place.offset)

    def test_the_log_tells_since_when_the_first_waits_and_what_it_keeps(self, queue, domain):
        assert isinstance(queue, TellsDepth)
        before = datetime.now(UTC) - timedelta(minutes=1)
        queue.put(letters_of(domain, 5))
        wait_until(lambda: depths_of(queue, [domain])[domain].oldest_at, "the first is looked at")
        oldest = depths_of(queue, [domain])[domain].oldest_at
        assert before <= oldest <= datetime.now(UTC) + timedelta(minutes=1)
        queue.done(take(queue, [domain], 5))
        wait_until(lambda: depths_of(queue, [domain])[domain] == QueueDepth(0, 5), "read, and kept")

    def test_the_topic_keeps_letters_for_ever(self, queue: DeadLetterQueue, domain: str) -> None:
        queue.put([a_letter(domain)])
        admin = AdminClient({"bootstrap.servers": self.brokers})
        topic = ConfigResource(ConfigResource.Type.TOPIC, queue_name(domain))
        [settings] = [future.result(60) for future in admin.describe_configs([topic]).values()]
        assert settings["retention.ms"].value == "-1"
        assert settings["retention.bytes"].value == "-1"
        assert settings["retention.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        assert settings["unclean.leader.election.enable"].value == "false"
        assert (
            len(admin.list_topics(queue_name(domain), 10).topics[queue_name(domain)].partitions)
            == 3
        )

    def test_letters_of_one_root_keep_their_order(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        event = a_letter(domain).event
        letters = [a_letter(domain, number, event=event) for number in range(9)]
        queue.put(letters)
        taken = take(queue, [domain], 9)
        assert [receipt.letter for receipt in taken] == letters
        assert len({receipt.handle.partition for receipt in taken}) == 1

    def test_a_letter_too_large_for_the_broker_is_refused_alone(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        large = a_letter(domain, 1, metadata={"large": "x" * 2_000_000})
        answers = queue.put([a_letter(domain, 0), large, a_letter(domain, 2)])
        assert answers[0] is None
        assert "too large" in str(answers[1])
        assert isinstance(answers[1], TooLarge)
        assert answers[2] is None
        assert queue.put([a_letter(domain, 3)]) == [None]
        assert ids(take(queue, [domain], 3)) == [f"{domain}-0", f"{domain}-2", f"{domain}-3"]

    def test_small_letters_are_not_refused_for_the_size_of_their_batch(self, domain: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        small = NewTopic(queue_name(domain), 1, config={"max.message.bytes": "20000"})
        admin.create_topics([small])[queue_name(domain)].result(60)
        queue = self.open()
        letters = [a_letter(domain, n, metadata={"some": f"{n}" * 5_000}) for n in range(9)]
        assert queue.put(letters) == [None] * 9
        queue.close()

    def test_a_topic_that_cannot_be_created_is_a_refusal_with_the_reason(self, domain: str) -> None:
        queue = KafkaDeadLetterQueue(self.brokers, group=self.group, replication=9)
        [answer] = queue.put([a_letter(domain)])
        assert "refused to create its topic" in str(answer)
        queue.close()

    def test_only_what_is_done_without_a_gap_is_committed(self, domain: str) -> None:
        queue = KafkaDeadLetterQueue(self.brokers, group=self.group, partitions=1)
        queue.put(letters_of(domain, 4))
        taken = take(queue, [domain], 4)
        queue.done(taken[2:3])
        assert self.committed(domain, 0) <= 0
        queue.done(taken[0:1])
        assert self.committed(domain, 0) == 1
        queue.done(taken[1:2])
        assert self.committed(domain, 0) == 3
        queue.close()

    def test_what_is_read_ahead_waits_and_comes_to_the_next_reader(self, domain: str) -> None:
        queue = KafkaDeadLetterQueue(self.brokers, group=self.group, partitions=1)
        queue.put(letters_of(domain, 40))
        for _ in range(2):
            taken = take(queue, [domain], 10)
            assert queue.waiting([domain])[domain] == 40 - taken[-1].handle.offset - 1
            queue.done(taken)
        assert self.committed(domain, 0) == 20
        assert queue.waiting([domain]) == {domain: 20}
        queue.close()
        after = self.open()
        assert [one.letter.id for one in take(after, [domain], 20) if one.letter] == [
            f"{domain}-{number}" for number in range(20, 40)
        ]
        after.close()

    def test_what_is_read_ahead_of_a_domain_is_not_lost_while_others_are_asked_for(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        other = f"{domain}-other"
        queue.put([*letters_of(domain, 60), *letters_of(other, 60)])
        seen: set[str] = set()
        asked = [[domain, other], [other], [domain, other]]
        for domains in (asked[0], asked[0], asked[1], *asked[2:] * 30):
            receipts = queue.receive(domains, limit=20, wait=timedelta(seconds=5))
            seen |= {one.letter.id for one in receipts if one.letter}
            queue.done(receipts)
            if len(seen) == 120:
                break
        assert len(seen) == 120
        assert queue.waiting([domain, other]) == {domain: 0, other: 0}

    def test_letters_of_a_batch_that_was_refused_are_not_taken_for_written(
        self, domain: str
    ) -> None:
        # A partition without a producer's state takes any first sequence number (KAFKA-15591):
        # were a second batch under way, its success would be taken for that of the first.
        first, second = (a_letter(domain, n, metadata={"mark": f"<mark-{n}>"}) for n in (1, 2))
        port = int(self.brokers.rpartition(":")[2])
        answers: dict[str, list[str | None]] = {}
        with KafkaGateway(port, mark=b"<mark-1>") as gateway:
            queue = KafkaDeadLetterQueue(
                f"127.0.0.1:{gateway.port}", group=self.group, partitions=1
            )
            puts = [
                threading.Thread(target=lambda one=one: answers.update({one.id: queue.put([one])}))
                for one in (first, second)
            ]
            puts[0].start()
            assert gateway.damaged.wait(60)
            puts[1].start()
            for put in puts:
                put.join()
            queue.close()
        reader = self.open()
        assert answers == {first.id: [None], second.id: [None]}
        assert ids(take(reader, [domain], 2)) == [first.id, second.id]
        reader.close()

    def test_a_forked_child_that_uses_no_letters_ends_in_good_order(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        script = f"""
import os, sys
from datetime import UTC, datetime, timedelta
from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
queue = KafkaDeadLetterQueue({self.brokers!r}, group={self.group!r})
queue.receive([{domain!r}], limit=1, wait=timedelta(seconds=1))
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        assert (
            subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
        )


class TestKafkaThatCreatesNothing(CheckedDeadLetterQueueContract):
    @pytest.fixture(autouse=True)
    def backend(self, kafka_brokers: str) -> None:
        self.brokers = kafka_brokers
        self.group = f"angzarr-test-{uuid.uuid4().hex}"

    def open_checking(self) -> DeadLetterQueue:
        return KafkaDeadLetterQueue(
            self.brokers, group=self.group, create_missing=False, timeout=timedelta(seconds=2)
        )

    def open_creating(self) -> DeadLetterQueue:
        return KafkaDeadLetterQueue(self.brokers)

    def exists(self, domain: str) -> bool:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        return queue_name(domain) in admin.list_topics(timeout=10).topics

    def delete(self, domain: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.delete_topics([queue_name(domain)])[queue_name(domain)].result(60)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"no.such.setting": 1}, r"no\.such\.setting"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.username"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nonexistent"}, "ssl.ca.location"),
    ],
)
def test_options_that_do_not_work_are_told_at_start(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        KafkaDeadLetterQueue("127.0.0.1:9", options=options)


def test_progress_stops_at_the_first_letter_that_is_not_done() -> None:
    progress = PartitionProgress()
    for offset in (3, 4, 7):  # offsets may have holes
        progress.take(offset)
    progress.done(4)
    assert progress.position == 3
    progress.done(3)
    assert progress.position == 7
    progress.done(7)
    assert progress.position == 8


def test_a_kafka_that_is_away_is_one_line_a_minute_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SELDOM", LogThrottle())
    for said in (
        *["Connect to ipv4#127.0.0.1:9 failed: Connection refused"] * 20,
        "Configuration property x is a consumer property and will be ignored by this producer",
    ):
        client._LOG.warning("%s [%s] %s", "FAIL", "rdkafka#consumer-1", said)  # as librdkafka does
    client._LOG.warning("%s [%s] %s", "CONFWARN", "rdkafka#producer-1", said)
    assert [line.args[-1][:7] for line in caplog.records] == ["Connect"]
