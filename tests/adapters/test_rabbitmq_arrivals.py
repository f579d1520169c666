"""A loop reads what RabbitMQ has sent, shows it together, and acknowledges in one write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import amqp
import pytest
from kombu import Exchange, Queue
from kombu.asynchronous import Hub
from tests.contracts.message_lines import LoopOfLine, MessageLineContract

from adapters.tls_proxy import TlsProxy
from angzarr.adapters.celery.connection import AngzarrConnection
from angzarr.adapters.celery.worker.message_receiver import NamingConsumer
from angzarr.adapters.rabbitmq import frame_reader, transport
from certificates import make_certificates
from polling import wait_until

PREFETCH = 20


class Loop(LoopOfLine):
    def __init__(self, url: str, queue: Queue, prefetch: int, tls: Any = None) -> None:
        super().__init__()
        hub = Hub()
        self.connection = AngzarrConnection(url, ssl=tls, transport_options=self.heard())
        self.connection.connect()
        self.channel = self.connection.channel()
        self.connection.transport.register_with_event_loop(self.connection.connection, hub)
        self.line = self.connection.connection.arrivals
        self.consumer = NamingConsumer(
            self.channel, [queue], reread=self.read_again, on_message=self.on_message,
            accept=["json"], prefetch_count=prefetch,
        )  # fmt: skip
        self.begin(hub)

    def fill_line(self, count: int) -> None:
        """Read as an answer to something else does, which hands nothing out."""
        reads = self.connection.connection.drain_events

        def came() -> bool:
            with suppress(TimeoutError):
                reads(timeout=0.1)
            return len(self.line.line) >= count

        wait_until(came)

    def lose_connection(self) -> None:
        self.connection.connection.collect()

    def close(self) -> None:
        self.connection.close()
        self.hub.close()


@pytest.fixture(params=["quorum", "classic"])
def queue(request: pytest.FixtureRequest, unique_name: str) -> Queue:
    return Queue(
        unique_name, Exchange(""), unique_name, queue_arguments={"x-queue-type": request.param}
    )


@pytest.fixture
def publish(amqp_url: str, queue: Queue) -> Iterator[Any]:
    with AngzarrConnection(amqp_url, transport_options={"confirm_publish": True}) as connection:
        queue(connection.channel()).declare()
        producer = connection.Producer()

        def send(count: int) -> None:
            for n in range(count):
                producer.publish(n, exchange="", routing_key=queue.name, serializer="json")

        yield send
        queue(connection.channel()).delete()


@pytest.fixture
def open_loop(amqp_url: str, queue: Queue) -> Iterator[Any]:
    made: list[Loop] = []

    def open_loop(prefetch: int = PREFETCH, url: str = amqp_url, tls: Any = None) -> Loop:
        made.append(Loop(url, queue, prefetch, tls))
        return made[-1]

    yield open_loop
    for loop in made:
        loop.close()


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is acknowledged, as it is written: (tag, multiple)."""
    written: list[Any] = []
    ack = amqp.Channel.basic_ack

    def noted(self: Any, tag: int, **options: Any) -> Any:
        written.append((tag, options.get("multiple", False)))
        return ack(self, tag, **options)

    monkeypatch.setattr(amqp.Channel, "basic_ack", noted)
    return written


def left(loop: Loop, queue: Queue) -> int:
    return int(queue(loop.channel).queue_declare(passive=True).message_count)


class TestRabbitMQLine(MessageLineContract):
    @pytest.fixture
    def send(self, publish):
        return publish

    @pytest.fixture
    def ready(self, amqp_url, queue):
        with AngzarrConnection(amqp_url) as connection:
            channel = connection.channel()
            yield lambda: queue(channel).queue_declare(passive=True).message_count


@pytest.fixture(scope="module")
def secure(amqp_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """How to reach the broker over TLS."""
    files = make_certificates(tmp_path_factory.mktemp("tls") / "files")
    plain = urlsplit(amqp_url)
    own = {"ca_certs": files.authority, "certfile": files.certificate, "keyfile": files.key}
    with TlsProxy(plain.hostname, plain.port, files) as proxy:
        netloc = f"{plain.username}:{plain.password}@127.0.0.1:{proxy.port}"
        url = plain._replace(scheme="amqps", netloc=netloc).geturl()
        yield {"url": url, "tls": {**own, "server_hostname": "127.0.0.1"}}


def test_over_tls_all_that_has_come_is_read_though_nothing_more_comes(
    publish, open_loop, secure, monkeypatch
):
    """What TLS has decrypted makes no descriptor readable; nor is it looked for now and then."""
    monkeypatch.setattr(transport, "HEARD_EVERY", 3600)
    monkeypatch.setattr(frame_reader, "_CHUNK", 100)  # less than one record, and than one message
    publish(30)
    loop = open_loop(prefetch=30, **secure)
    loop.consumer.consume()
    assert loop.messages(30) == list(range(30))


def test_what_a_turn_acknowledges_is_one_frame_where_nothing_before_it_is_open(
    publish, open_loop, frames
):
    publish(6)
    loop = open_loop()
    loop.consumer.consume()
    loop.messages(6)
    for message in (*loop.taken[:3], loop.taken[4]):
        message.ack()
    assert not frames
    loop.turn()
    first = loop.taken[0].delivery_tag
    assert frames == [(first + 2, True), (first + 4, False)]
    loop.taken[5].ack()
    loop.turn()
    assert frames[2:] == [(first + 5, False)], "the fourth is open still"
    loop.taken[3].reject(requeue=True)
    loop.messages(7)
    assert loop.taken[-1].payload == 3
    assert loop.shown[-1] != [3], "it came before, and is claimed by its run"


def test_what_was_not_acknowledged_comes_again_and_nothing_else(publish, open_loop, queue):
    publish(4)
    loop = open_loop()
    loop.consumer.consume()
    loop.messages(4)
    for n in (3, 1, 2):
        loop.taken[n].ack()
    loop.turn()
    loop.close()
    again = open_loop()
    again.consumer.consume()
    assert again.messages(1) == [0]
    again.taken[0].ack()
    again.close()
    assert left(open_loop(), queue) == 0


def test_what_is_to_be_acknowledged_is_when_the_channel_is_closed(publish, open_loop, queue):
    publish(2)
    loop = open_loop()
    loop.consumer.consume()
    loop.messages(2)
    for message in loop.taken:
        message.ack()
    loop.channel.close()
    loop.channel = loop.connection.channel()
    wait_until(lambda: left(loop, queue) == 0)
    again = open_loop()
    again.consumer.consume()
    publish(1)
    again.messages(1)
    assert not again.taken[0].delivery_info["redelivered"]


@pytest.fixture
def drained(amqp_url: str, queue: Queue) -> Iterator[Any]:
    """A connection that no loop turns, as a worker on gevent has it; see `Drained`."""
    made = Drained(amqp_url, queue)
    yield made
    made.connection.close()


class Drained:
    def __init__(self, url: str, queue: Queue) -> None:
        self.shown: list[list[Any]] = []
        self.put_back: list[Any] = []
        self.taken: list[Any] = []
        self.take = self.taken.append
        heard = {"on_fetched": self.see, "on_put_back": self.put_back.extend}
        self.connection = AngzarrConnection(url, transport_options=heard)
        self.channel = self.connection.channel()
        self.consumer = NamingConsumer(
            self.channel, [queue], reread=lambda _queue, _identity, make, _packed: make(),
            on_message=self._take, accept=["json"],
            prefetch_count=PREFETCH,
        )  # fmt: skip

    def see(self, messages: list[Any]) -> None:
        self.shown.append([message.payload for message in messages])

    def _take(self, message: Any) -> None:
        self.take(message)

    def drain(self, count: int) -> list[Any]:
        def came() -> bool:
            with suppress(TimeoutError):
                self.connection.drain_events(timeout=0.1)
            return len(self.taken) >= count

        wait_until(came)
        return [message.payload for message in self.taken]


def test_without_a_loop_what_has_come_is_shown_together_before_the_first_is_handed_out(
    publish, drained
):
    publish(5)
    drained.take = lambda message: (
        drained.shown or pytest.fail("unseen"),
        drained.taken.append(message),
    )
    drained.consumer.consume()
    assert drained.drain(5) == list(range(5))
    assert [n for together in drained.shown for n in together] == list(range(5))
    drained.taken[0].reject(requeue=True)
    assert drained.drain(6)[-1] == 0
    assert sum(map(len, drained.shown)) == 5, "it came before, and is claimed by its run"


def test_without_a_loop_a_connection_that_is_lost_frees_the_claims_of_what_was_not_handed_out(
    publish, drained
):
    def fail(_message: Any) -> None:
        drained.take = drained.taken.append
        msg = "lost"
        raise ConnectionResetError(msg)

    publish(3)
    drained.take = fail
    drained.consumer.consume()
    # What an answer brings while the worker waits for something else is handed out at once.
    wait_until(lambda: drained.channel.prefetch_count == PREFETCH)
    with pytest.raises(ConnectionResetError):
        drained.drain(1)
    assert drained.put_back
    shown = [n for together in drained.shown for n in together]
    assert [message.payload for message in drained.put_back] == shown
    assert not drained.taken
