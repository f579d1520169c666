"""Connections whose other end is gone although TCP acknowledges what is sent.

A table over all that wait on a connection that lives long: each finds out by itself, goes on over a
new connection, and loses nothing.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from urllib.parse import urlencode, urlsplit

import grpc
import pytest
from kombu import Consumer, Queue
from sqlalchemy import Connection, text

from adapters.redis_loop import looped
from adapters.redis_sides import connect, publish
from angzarr import Angzarr
from angzarr.adapters.celery.connection import AngzarrConnection
from angzarr.adapters.celery.publish import replay_outcomes
from angzarr.adapters.celery.publish.publisher import CeleryPublisher
from angzarr.adapters.celery.publish.replay_outcomes import CeleryReplayOutcomes
from angzarr.adapters.celery.worker import rejected_by_broker as dropped
from angzarr.adapters.celery.worker.rejected_by_broker import RejectedMessageReader
from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.adapters.pubsub.client import CHANNEL
from angzarr.adapters.pubsub.dead_letters import PubSubDeadLetterQueue
from angzarr.adapters.rabbitmq import letter_receiver
from angzarr.adapters.rabbitmq import py_amqp as hearing
from angzarr.adapters.rabbitmq.dead_letters import RabbitMQDeadLetterQueue
from angzarr.adapters.sql.engine.engine import build_engine, in_transaction, patient
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.dead_letters.replay_outcome import ReplayOutcome
from angzarr.errors import BrokerUnavailable, DeadLetterQueueUnavailable, StoreUnavailable
from contracts.dead_letters import a_letter, ids, take
from polling import PATIENCE
from redis_servers import wait_until
from tcp_proxy import LossyProxy

#: Seconds. Long for a server beside us, short for a test.
ASKED, ANSWERED = 0.2, 3.0
#: Seconds that a server is waited for that will say nothing, or is soon called again.
ANSWERED_SOON = 1.0
#: Seconds of a line that is well: longer than anyone waits who is not answered.
REST = 1.3 * (ASKED + ANSWERED)
#: Seconds after which RabbitMQ itself begins to miss who is gone, and gives back what it had sent.
HEARTBEAT = 1
SOON = timedelta(milliseconds=100)


@pytest.fixture
def line(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    """A way to RabbitMQ that can go mute, which is noticed soon."""
    monkeypatch.setattr(hearing, "ASKED_AFTER", ASKED)
    monkeypatch.setattr(hearing, "ANSWERED_WITHIN", ANSWERED_SOON)
    monkeypatch.setattr(letter_receiver, "_HEARTBEAT", HEARTBEAT)
    monkeypatch.setattr(dropped, "HEARTBEAT", HEARTBEAT)
    monkeypatch.setattr(replay_outcomes, "HEARTBEAT", HEARTBEAT)
    place = urlsplit(amqp_url)
    with LossyProxy(place.hostname, place.port) as proxy:
        user = f"{place.username}:{place.password}@"
        proxy.url = place._replace(netloc=f"{user}127.0.0.1:{proxy.port}").geturl()
        yield proxy


def taken_by(queue: DeadLetterQueue, domain: str, seconds: float = PATIENCE) -> list[str]:
    """Receive as an analysis worker does, until there are letters."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        receipts = queue.receive([domain], limit=10, wait=SOON)
        if receipts:
            queue.done(receipts)
            return ids(receipts)
    return []


def taken_at_last(queue: DeadLetterQueue, domain: str) -> list[str]:
    """Receive until there are letters; meanwhile it may say that it reaches nobody."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        with suppress(DeadLetterQueueUnavailable):
            if found := taken_by(queue, domain, 5):
                return found
    return []


# -- RabbitMQ --------------------------------------------------------------------------------------


def test_a_receiver_of_letters_finds_out_and_reads_on(
    line: LossyProxy, amqp_url: str, unique_name: str
) -> None:
    near, far = RabbitMQDeadLetterQueue(amqp_url), RabbitMQDeadLetterQueue(line.url)
    letter = a_letter(unique_name)
    assert far.receive([unique_name], limit=10, wait=SOON) == []
    line.swallow()
    assert near.put([letter]) == [None]
    assert taken_by(far, unique_name) == [letter.id]
    far.close()
    near.close()


def test_a_receiver_of_letters_says_that_it_reaches_nobody(
    line: LossyProxy, unique_name: str
) -> None:
    far = RabbitMQDeadLetterQueue(line.url, timeout=timedelta(seconds=1))
    far.receive([unique_name], limit=10, wait=SOON)
    line.swallow(new=True)
    with pytest.raises(DeadLetterQueueUnavailable):
        assert taken_by(far, unique_name) == []
    line.mend()
    line.cut()
    line.mend()
    far.close()


def test_a_receiver_that_idles_long_on_a_line_that_is_well_keeps_its_connection(
    line: LossyProxy, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "ANSWERED_WITHIN", ANSWERED)
    monkeypatch.setattr(letter_receiver, "_HEARTBEAT", 60)  # RabbitMQ is not to close it first
    far = RabbitMQDeadLetterQueue(line.url)
    far.receive([unique_name], limit=10, wait=SOON)
    opened = far._receiver._links
    until = time.monotonic() + REST
    while time.monotonic() < until:
        far.receive([unique_name], limit=10, wait=SOON)
    assert far._receiver._links == opened
    far.close()


def test_a_publisher_of_letters_finds_out_and_the_next_letter_is_confirmed(
    line: LossyProxy, amqp_url: str, unique_name: str
) -> None:
    far = RabbitMQDeadLetterQueue(line.url, timeout=timedelta(seconds=1))
    assert far.put([a_letter(unique_name)]) == [None]
    line.swallow()
    assert far.put([a_letter(unique_name)]) != [None]
    assert far.put([a_letter(unique_name)]) == [None]
    far.close()
    near = RabbitMQDeadLetterQueue(amqp_url)
    assert len(take(near, [unique_name], 2)) == 2
    near.close()


def test_a_worker_s_loop_learns_that_rabbitmq_does_not_answer(
    line: LossyProxy, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "ANSWERED_WITHIN", ANSWERED)
    with looped(line.url, unique_name, make=AngzarrConnection) as worker:
        worker.rest(REST)  # idle, and well
        monkeypatch.setattr(hearing, "ANSWERED_WITHIN", ANSWERED_SOON)
        line.swallow()
        with pytest.raises(worker.connection.connection_errors, match="said nothing"):
            worker.rest(10)


def test_who_drains_without_a_loop_learns_it_too(line: LossyProxy, unique_name: str) -> None:
    """As gevent's workers do, and the analysis worker for the outcomes of replays."""
    with AngzarrConnection(line.url) as connection:
        queue = Queue(unique_name, channel=connection, auto_delete=True)
        with Consumer(connection, [queue], on_message=lambda _: None):
            line.swallow()
            with pytest.raises(connection.connection_errors, match="said nothing"):
                _drain(connection, 15)


def _drain(connection: AngzarrConnection, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(TimeoutError):
            connection.drain_events(timeout=0.2)


def test_what_rabbitmq_dropped_is_read_on(
    line: LossyProxy, amqp_url: str, unique_name: str
) -> None:
    app = Angzarr("half-open", broker=line.url)
    buried: list[object] = []
    done = threading.Event()

    def bury(*told: object, **_more: object) -> None:
        buried.append(told)
        done.set()

    reader = RejectedMessageReader(app, unique_name, bury)
    reader.start()
    try:
        with AngzarrConnection(amqp_url) as near:
            wait_until(lambda: _consumers(near, unique_name), "the reader")
            line.swallow()
            publish_amqp(near, unique_name, b"dropped")
            assert done.wait(60), "the reader waits on a connection that nobody answers on"
    finally:
        reader.end()
        with AngzarrConnection(amqp_url) as near:
            near.default_channel.queue_delete(unique_name)


def test_outcomes_of_replays_are_read_on(line: LossyProxy, amqp_url: str, unique_name: str) -> None:
    def ends(url: str) -> CeleryReplayOutcomes:
        app = Angzarr("half-open", broker=url)
        return CeleryReplayOutcomes(app, CeleryPublisher(app), unique_name)

    near, far = ends(amqp_url), ends(line.url)
    assert far.receive(limit=1, wait=SOON) == []
    line.swallow()
    near.put(ReplayOutcome(letter_id="l", outcome="handled", handler="h", event_id="e", replay=1))
    found: list[ReplayOutcome] = []
    until = time.monotonic() + PATIENCE
    while not found and time.monotonic() < until:
        try:
            found = far.receive(limit=1, wait=SOON)
        except BrokerUnavailable:
            continue
    assert [one.letter_id for one in found] == ["l"]
    far.done(found)
    far.close()
    near.close()


def _consumers(connection: AngzarrConnection, queue: str) -> int:
    with connection.channel() as channel:
        try:
            return int(channel.queue_declare(queue, passive=True).consumer_count)
        except connection.channel_errors:
            return 0


def publish_amqp(connection: AngzarrConnection, queue: str, body: bytes) -> None:
    connection.Producer().publish(body, routing_key=queue, content_type="application/data")


# -- Redis -----------------------------------------------------------------------------------------


def test_a_keyspace_listener_that_does_not_answer_is_replaced(
    proxy: LossyProxy, redis_broker: str, unique_name: str
) -> None:
    with looped(proxy.url, unique_name, health_check_interval=1) as worker:
        worker.rest()
        old = worker.channel.fetcher.listener.notices.connection
        proxy.swallow()
        worker.until(
            lambda: worker.channel.fetcher.listener.notices.connection not in {old, None},
            "another connection",
        )  # fmt: skip
        with connect(redis_broker) as near:
            publish(near, unique_name, ["heard"])
        worker.until(lambda: worker.bodies == ["heard"], "the message")


# -- PostgreSQL ------------------------------------------------------------------------------------


def test_a_database_that_answers_nothing_does_not_keep_its_caller(postgresql_url: str) -> None:
    place = urlsplit(postgresql_url)
    with LossyProxy(place.hostname, place.port) as proxy:
        netloc = f"{place.username}@127.0.0.1:{proxy.port}"
        url = place._replace(netloc=netloc).geturl()
        engine = build_engine(url, timeout=timedelta(seconds=1))
        ask: Callable[[], object] = lambda: in_transaction(  # noqa: E731
            engine, lambda connection: connection.scalar(text("SELECT 1"))
        )
        assert ask() == 1
        proxy.swallow(new=True)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            ask()
        assert time.monotonic() - began < 60
        proxy.mend()
        assert ask() == 1
        engine.dispose()


@pytest.mark.parametrize("options", ["-c search_path=public", "-c statement_timeout=2s"])
def test_nor_where_its_address_has_options_of_its_own(postgresql_url: str, options: str) -> None:
    place = urlsplit(postgresql_url)
    with LossyProxy(place.hostname, place.port) as proxy:
        netloc = f"{place.username}@127.0.0.1:{proxy.port}"
        url = place._replace(netloc=netloc, query=urlencode({"options": options})).geturl()
        engine = build_engine(url, timeout=timedelta(seconds=1))
        own = "2s" if "2s" in options else ""
        assert in_transaction(engine, _statement_timeout) == (own or "1s")
        with patient(engine) as slow:
            assert in_transaction(slow, _statement_timeout) == (own or "0")
        proxy.swallow(new=True)
        with pytest.raises(StoreUnavailable):
            in_transaction(engine, _statement_timeout)
        engine.dispose()


def _statement_timeout(connection: Connection) -> object:
    return connection.scalar(text("SHOW statement_timeout"))


# -- Kafka -----------------------------------------------------------------------------------------


class _KafkaLine(LossyProxy):
    """A way to a broker that tells its clients to come this way again."""

    def _told(self, data: bytes) -> bytes:
        host, port = self._target
        there, here = (host.encode() + struct.pack(">i", one) for one in (port, self.port))
        return data.replace(there, here)


def test_a_kafka_that_answers_nothing_is_said_to_be_away_and_read_on_from(
    kafka_brokers: str, unique_name: str
) -> None:
    host, _, port = kafka_brokers.partition(":")
    near = KafkaDeadLetterQueue(kafka_brokers)
    letter = a_letter(unique_name)
    with _KafkaLine(host, int(port)) as line:
        far = KafkaDeadLetterQueue(f"127.0.0.1:{line.port}", timeout=timedelta(seconds=1))
        assert near.put([a_letter(unique_name)]) == [None]
        assert len(taken_by(far, unique_name)) == 1
        line.swallow(new=True)
        assert near.put([letter]) == [None]
        with pytest.raises(DeadLetterQueueUnavailable):
            assert taken_by(far, unique_name) == []
        line.mend()
        line.cut()
        line.mend()
        assert taken_at_last(far, unique_name) == [letter.id]
        far.close()
    near.close()


# -- Pub/Sub ---------------------------------------------------------------------------------------


@pytest.fixture
def pubsub_line(pubsub_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    """A way to the emulator, by connections as those to Google are, which ask sooner.

    Google's client makes none of its own settings for an emulator.
    """
    soon = {
        "grpc.keepalive_time_ms": 10_000,
        "grpc.keepalive_timeout_ms": 2_000,
        "grpc.http2.ping_timeout_ms": 2_000,
    }
    assert soon.keys() < CHANNEL.keys()
    options = list({**CHANNEL, **soon}.items())
    make = grpc.insecure_channel
    monkeypatch.setattr(grpc, "insecure_channel", lambda target: make(target, options))
    host, _, port = pubsub_emulator.partition(":")
    with LossyProxy(host, int(port)) as proxy:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{proxy.port}")
        yield proxy


def test_a_reader_of_pubsub_finds_out_and_reads_on(
    pubsub_line: LossyProxy, pubsub_emulator: str, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = PubSubDeadLetterQueue("angzarr-tests", lease=timedelta(seconds=10))
    assert far.put([a_letter(unique_name)]) == [None]
    assert len(taken_by(far, unique_name)) == 1
    pubsub_line.swallow()
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_emulator)
    near, letter = PubSubDeadLetterQueue("angzarr-tests"), a_letter(unique_name, 1)
    assert near.put([letter]) == [None]
    assert taken_at_last(far, unique_name) == [letter.id]
    near.close()
    far.close()
