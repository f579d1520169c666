from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from adapters.kafka_faults import end, write_record
from adapters.kafka_gateway import KafkaGateway
from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.names import queue_name
from angzarr.errors import DeadLetterQueueUnavailable
from contracts.dead_letters import PATIENCE, a_letter, ids, letters_of, take

OUT_OF_ORDER = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = KafkaError.FENCED_INSTANCE_ID


#: Seconds: less than a member needs to be missed, 45.
NOT_MISSED = 40


@pytest.fixture
def domain() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def group() -> str:
    return f"angzarr-test-{uuid.uuid4().hex}"


@pytest.fixture
def port(kafka_brokers: str) -> int:
    return int(kafka_brokers.rpartition(":")[2])


@pytest.fixture
def queue(kafka_brokers: str, group: str) -> Iterator[KafkaDeadLetterQueue]:
    queue = KafkaDeadLetterQueue(kafka_brokers, group=group, partitions=1)
    yield queue
    queue.close()


def producer_of(queue: KafkaDeadLetterQueue) -> Any:
    return queue._producer.held()


def consumer_of(queue: KafkaDeadLetterQueue) -> Any:
    return queue._consumer.held()


def test_letters_that_a_client_refuses_for_good_are_written_by_a_new_one(
    queue: KafkaDeadLetterQueue, domain: str
) -> None:
    assert queue.put([a_letter(domain, 0)]) == [None]
    first = producer_of(queue)
    end(first, OUT_OF_ORDER)
    assert queue.put([a_letter(domain, 1), a_letter(domain, 2)]) == [None, None]
    assert producer_of(queue) is not first
    assert ids(take(queue, [domain], 3)) == [f"{domain}-{n}" for n in range(3)]


def test_a_letter_under_way_when_its_client_fails_for_good_is_written_by_a_new_one(
    queue: KafkaDeadLetterQueue, port: int, domain: str
) -> None:
    letter = a_letter(domain, 1, metadata={"mark": "<mark-1>"})
    answers: list[str | None] = []
    # What is marked is refused by the broker, so that nothing but a second try can write it.
    with KafkaGateway(port, mark=b"<mark-1>", wait=10) as gateway:
        through = KafkaDeadLetterQueue(f"127.0.0.1:{gateway.port}", partitions=1)
        putting = threading.Thread(target=lambda: answers.extend(through.put([letter])))
        putting.start()
        assert gateway.damaged.wait(60)
        end(producer_of(through), OUT_OF_ORDER)
        putting.join()
        through.close()
    assert answers == [None]
    assert ids(take(queue, [domain], 1)) == [letter.id]


def test_threads_that_share_a_client_that_fails_for_good_lose_nothing(
    queue: KafkaDeadLetterQueue, domain: str
) -> None:
    queue.put([a_letter(domain, 0)])
    confirmed: list[str] = []

    def put(thread: int) -> None:
        for number in range(20):
            letter = a_letter(domain, 1 + thread * 20 + number)
            while not _is_put(queue, letter):
                pass
            confirmed.append(letter.id)

    threads = [threading.Thread(target=put, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        already = len(confirmed)
        deadline = time.monotonic() + PATIENCE
        while len(confirmed) < min(already + 10, 80) and time.monotonic() < deadline:
            time.sleep(0.005)
        if (client := producer_of(queue)) is not None:
            end(client, OUT_OF_ORDER)
    for thread in threads:
        thread.join()
    wanted = {f"{domain}-{number}" for number in range(81)}
    assert set(confirmed) | {f"{domain}-0"} == wanted
    found: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while found != wanted and time.monotonic() < deadline:
        found |= set(ids(queue.receive([domain], limit=100, wait=timedelta(seconds=1))))
    assert found == wanted


def test_a_header_whose_name_is_no_text_holds_up_no_letter(
    queue: KafkaDeadLetterQueue, port: int, group: str, domain: str
) -> None:
    queue.put([a_letter(domain, 0)])
    offset = write_record(port, queue_name(domain), b"raw \xff", [(b"\xff", b"any")])
    queue.put([a_letter(domain, 1)])
    taken = take(queue, [domain], 3)
    assert [receipt.letter and receipt.letter.id for receipt in taken] == [
        f"{domain}-0",
        None,
        f"{domain}-1",
    ]
    assert taken[1].raw == b"raw \xff"
    assert taken[1].problem == "the letter's headers cannot be read"
    queue.done(taken)
    assert _committed(queue, group, domain) == offset + 2


def test_many_headers_that_are_no_text_crash_nothing(
    queue: KafkaDeadLetterQueue, port: int, domain: str
) -> None:
    # Python leaves a check out in code that has run often, and an unchecked list has holes.
    queue.put(letters_of(domain, 40))
    for _ in range(20):
        write_record(port, queue_name(domain), b"raw", [(b"any", b"1"), (b"\xff", b"2")])
    taken = take(queue, [domain], 60)
    assert len(taken) == 60
    assert sum(receipt.letter is None for receipt in taken) == 20


def test_a_record_written_by_hand_is_read_with_its_headers(
    queue: KafkaDeadLetterQueue, port: int, domain: str
) -> None:
    queue.put([a_letter(domain, 0)])
    write_record(port, queue_name(domain), b"{}", [(b"content-type", b"text/odd")])
    [_, receipt] = take(queue, [domain], 2)
    assert (receipt.raw, receipt.content_type) == (b"{}", "text/odd")


def test_letters_in_hand_are_given_out_when_reading_on_fails_and_the_rest_comes(
    queue: KafkaDeadLetterQueue, domain: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put(letters_of(domain, 4))
    monkeypatch.setattr("angzarr.adapters.kafka.letter_consumer.Consumer", _FailsOnReadingOn)
    taken = queue.receive([domain], limit=9, wait=timedelta(seconds=PATIENCE))
    assert ids(taken) == [f"{domain}-0"], "the client dropped what it took when it failed"
    failed = consumer_of(queue)
    assert failed.dropped > 0
    queue.done(taken)
    monkeypatch.undo()
    rest = take(queue, [domain], 3)
    assert ids(rest) == [f"{domain}-{n}" for n in (1, 2, 3)]
    assert consumer_of(queue) is not failed
    queue.done(rest)
    assert _committed(queue, group, domain) == 4


def test_what_is_done_after_a_failure_never_passes_over_what_the_failure_dropped(
    queue: KafkaDeadLetterQueue, domain: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put(letters_of(domain, 3))
    monkeypatch.setattr("angzarr.adapters.kafka.letter_consumer.Consumer", _FailsAtOnce)
    with pytest.raises(DeadLetterQueueUnavailable):
        take(queue, [domain], 1)
    monkeypatch.undo()
    queue.put([a_letter(domain, 3)])
    taken = take(queue, [domain], 4)
    assert ids(taken) == [f"{domain}-{n}" for n in range(4)]
    queue.done(taken)
    assert _committed(queue, group, domain) == 4


def test_a_consumer_that_fails_for_good_is_replaced_and_reading_goes_on(
    queue: KafkaDeadLetterQueue, domain: str
) -> None:
    queue.put([a_letter(domain, 0)])
    queue.done(take(queue, [domain], 1))
    first = consumer_of(queue)
    end(first, FENCED)
    queue.put([a_letter(domain, 1)])
    taken: list[Any] = []
    refusals: list[str] = []
    deadline = time.monotonic() + NOT_MISSED
    while not taken and time.monotonic() < deadline:
        try:
            taken = queue.receive([domain], limit=5, wait=timedelta(seconds=1))
            if taken and consumer_of(queue) is first:  # given out beside the error
                queue.done(taken)
                queue.put([a_letter(domain, 2)])
                taken = []
        except DeadLetterQueueUnavailable as error:
            refusals.append(str(error))
    assert ids(taken) in ([f"{domain}-1"], [f"{domain}-2"], [f"{domain}-1", f"{domain}-2"])
    assert consumer_of(queue) is not first
    assert len(refusals) <= 1
    queue.done(taken)


def test_closing_a_consumer_that_failed_for_good_ends(
    queue: KafkaDeadLetterQueue, domain: str
) -> None:
    queue.put([a_letter(domain, 0)])
    take(queue, [domain], 1)
    end(consumer_of(queue), FENCED)
    closing = threading.Thread(target=queue.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def _is_put(queue: KafkaDeadLetterQueue, letter: DeadLetter) -> bool:
    try:
        return queue.put([letter]) == [None]
    except DeadLetterQueueUnavailable:
        return False


class _FailsOnReadingOn(Consumer):
    """As confluent-kafka where a callback raises: it drops the messages of that call."""

    dropped = 0

    def consume(self, limit: int, timeout: float) -> Any:
        messages = super().consume(limit, timeout=timeout)
        if limit == 1 or self.dropped:
            return messages
        deadline = time.monotonic() + PATIENCE
        while not messages and time.monotonic() < deadline:
            messages = super().consume(limit, timeout=0.1)
        self.dropped = len(messages)
        raise KafkaException(KafkaError(KafkaError._STATE))


class _FailsAtOnce(Consumer):
    def consume(self, limit: int, timeout: float) -> Any:
        if super().consume(limit, timeout=timeout):
            raise KafkaException(KafkaError(KafkaError._STATE))
        return []


def _committed(queue: KafkaDeadLetterQueue, group: str, domain: str) -> int:
    reader = Consumer({"bootstrap.servers": queue._cluster.brokers, "group.id": group})
    try:
        [place] = reader.committed([TopicPartition(queue_name(domain), 0)], 10)
    finally:
        reader.close()
    return int(place.offset)
