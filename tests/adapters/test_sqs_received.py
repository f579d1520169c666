"""A loop shows together what SQS answered, deletes in batches, and polls when it has room."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Queue
from kombu.asynchronous import Hub, set_event_loop

from angzarr.adapters.celery.connection import AngzarrConnection
from angzarr.adapters.celery.worker.message_receiver import NamingConsumer
from angzarr.adapters.sqs import received
from angzarr.adapters.sqs.transport import SqsChannel
from polling import wait_until

pytestmark = [
    pytest.mark.server("localstack"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kombu.asynchronous.http.curl"),
]

#: Longer than any test: what waits for the polling interval waits for ever.
NEVER = 3600
VISIBILITY = {"visibility_timeout": 1800}


class Loop:
    """Turns one connection in a loop, as a worker does, and remembers what it was shown."""

    def __init__(self, url: str, queue: str, prefetch: int) -> None:
        self.shown: list[list[Any]] = []
        self.put_back: list[Any] = []
        self.taken: list[Any] = []
        self.reread: list[Any] = []
        self.take = self.taken.append
        self.hub = Hub()
        set_event_loop(self.hub)
        options = {
            "region": "us-east-1", "is_secure": False, "wait_time_seconds": 1,
            "polling_interval": NEVER, **VISIBILITY,
            "on_fetched": self.see, "on_put_back": self.put_back.extend,
        }  # fmt: skip
        self.connection = AngzarrConnection(url, transport_options=options)
        self.connection.connect()
        self.channel = self.connection.channel()
        self.connection.transport.register_with_event_loop(self.connection.connection, self.hub)
        self.hub.call_repeatedly(0.05, list)  # no turn waits for longer
        self.consumer = NamingConsumer(
            self.channel, [Queue(queue, routing_key=queue)], reread=self._reread,
            on_message=self._take, accept=["json"], prefetch_count=prefetch,
        )  # fmt: skip
        self._turns = self.hub.create_loop()

    def _reread(self, _queue: str, _identity: bytes, make: Any, _packed: Any) -> Any:
        message = make()
        self.reread.append(message.payload)
        return message

    def see(self, messages: list[Any]) -> None:
        self.shown.append([message.payload for message in messages])

    def _take(self, message: Any) -> None:
        self.take(message)

    def turn(self) -> None:
        next(self._turns)

    def messages(self, count: int) -> list[Any]:
        wait_until(lambda: (self.turn(), len(self.taken) >= count)[1])
        return sorted(message.payload for message in self.taken)

    def receive_without_handing_out(self, count: int) -> None:
        """Take turns until *count* messages are in line, and hand none out."""
        line = self.connection.connection.received
        line._registered = self.hub.remove(line._registered)
        wait_until(lambda: (self.turn(), len(line._line) >= count)[1])

    def close(self) -> None:
        self.connection.close()
        self.hub.close()
        set_event_loop(None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the blocking clients asked of SQS: operation, and entries."""
    noted: list[tuple[str, int]] = []
    real = SqsChannel._new_boto_client

    def note(request: Any, **_: Any) -> None:
        target = request.headers["X-Amz-Target"]
        operation = (target.decode() if isinstance(target, bytes) else target).rpartition(".")[2]
        noted.append((operation, len(json.loads(request.body).get("Entries", ()))))

    def new(channel: Any, *args: Any, **options: Any) -> Any:
        client = real(channel, *args, **options)
        client.meta.events.register("before-send.sqs", note)
        return client

    monkeypatch.setattr(SqsChannel, "_new_boto_client", new)
    return noted


@pytest.fixture
def url(sqs_endpoint: str) -> str:
    address = sqs_endpoint.removeprefix("http://")
    return f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{address}"


@pytest.fixture
def site(url: str, unique_name: str) -> Iterator[Any]:
    """Sends numbers to a queue, and says how many messages it has: ready, and in hand."""
    options = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1, **VISIBILITY}
    with AngzarrConnection(url, transport_options=options) as connection:
        yield Site(connection, unique_name)


class Site:
    def __init__(self, connection: Any, queue: str) -> None:
        self.queue = queue
        self._simple = connection.SimpleQueue(queue)
        self._channel = connection.default_channel

    def send(self, count: int) -> None:
        for n in range(count):
            self._simple.put(n)

    def count(self) -> tuple[int, int]:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        told = self._channel.sqs().get_queue_attributes(
            QueueUrl=self._channel._new_queue(self.queue), AttributeNames=names
        )["Attributes"]
        return int(told[names[0]]), int(told[names[1]])


@pytest.fixture
def open_loop(url: str, site: Site) -> Iterator[Any]:
    made: list[Loop] = []

    def open_loop(prefetch: int = 20) -> Loop:
        made.append(Loop(url, site.queue, prefetch))
        return made[-1]

    yield open_loop
    for loop in made:
        loop.close()


def test_what_sqs_answers_is_shown_together_before_the_first_is_handed_out(site, open_loop):
    site.send(5)
    loop = open_loop()
    loop.take = lambda message: (loop.shown or pytest.fail("unseen"), loop.taken.append(message))
    loop.consumer.consume()
    assert loop.messages(5) == list(range(5))
    assert sorted(n for together in loop.shown for n in together) == list(range(5))
    assert max(map(len, loop.shown)) > 1


def test_what_is_acknowledged_is_deleted_in_one_call(site, open_loop, asked):
    site.send(12)
    loop = open_loop()
    loop.consumer.consume()
    loop.messages(12)
    asked.clear()
    for message in loop.taken:
        message.ack()
    assert not asked
    wait_until(lambda: (loop.turn(), site.count() == (0, 0))[1])
    assert asked == [("DeleteMessageBatch", 10), ("DeleteMessageBatch", 2)]


def test_one_that_is_not_deleted_with_others_is_tried_singly(site, open_loop, asked):
    site.send(3)
    loop = open_loop()
    loop.consumer.consume()
    loop.messages(3)
    asked.clear()
    loop.taken[1].delivery_info["sqs_message"]["ReceiptHandle"] = "of another message"
    for message in loop.taken:
        message.ack()
    wait_until(lambda: (loop.turn(), site.count() == (0, 1))[1])
    assert asked == [("DeleteMessageBatch", 3), ("DeleteMessage", 0)]
    assert loop.channel.qos.can_consume_max_estimate() == 20, "its slot is free: it comes again"


def test_what_came_before_is_read_with_care_and_shown_to_nobody(site, open_loop):
    site.send(2)
    loop = open_loop()
    loop.consumer.consume()
    loop.messages(2)
    loop.taken[0].reject(requeue=True)
    loop.messages(3)
    assert loop.reread == [loop.taken[0].payload]
    assert sorted(n for together in loop.shown for n in together) == [0, 1]


def test_what_is_in_line_when_its_consumer_is_cancelled_goes_back(site, open_loop):
    site.send(4)
    loop = open_loop(prefetch=4)  # full: no poll is under way, which would take what goes back
    loop.consumer.consume()
    loop.receive_without_handing_out(4)
    loop.connection.connection.received._show()
    loop.consumer.cancel()
    assert sorted(message.payload for message in loop.put_back) == list(range(4))
    assert not loop.taken
    assert site.count() == (4, 0)


def test_a_connection_that_closes_deletes_what_ended_and_gives_back_the_rest(site, open_loop):
    site.send(4)
    loop = open_loop(prefetch=4)  # full: no poll is under way, which would take what goes back
    loop.consumer.consume()
    loop.messages(4)
    loop.taken[0].ack()
    loop.taken[1].ack()
    loop.connection.collect()
    assert site.count() == (2, 0)


def test_what_goes_back_while_a_poll_is_under_way_is_not_its_answer(site, open_loop):
    """SQS goes on with a poll whose client has left, and would hide the messages for 30 minutes."""
    site.send(4)
    loop = open_loop()
    loop.consumer.consume()
    loop.messages(4)
    wait_until(lambda: (loop.turn(), loop.channel._polled_at)[1])
    loop.connection.collect()
    wait_until(lambda: site.count() == (4, 0))


def test_a_connection_that_is_lost_while_a_message_is_handed_out_frees_its_claim(site, open_loop):
    def fail(_message: Any) -> None:
        msg = "lost"
        raise ConnectionResetError(msg)

    site.send(1)
    loop = open_loop()
    loop.take = fail
    loop.hub.propagate_errors = (OSError,)
    loop._turns = loop.hub.create_loop()
    loop.consumer.consume()
    with pytest.raises(ConnectionResetError):
        loop.messages(1)
    assert [message.payload for message in loop.put_back] == [0]


def test_who_is_shown_messages_and_fails_stops_none(site, open_loop, monkeypatch, caplog):
    monkeypatch.setattr(received, "LONGEST_TURN", -1.0)  # one message a turn
    site.send(4)
    loop = open_loop()
    loop.connection.connection.received._on_fetched = lambda _messages: 1 / 0
    loop.consumer.consume()
    assert loop.messages(4) == list(range(4))
    assert "fetched_messages_not_told" in caplog.text


def test_a_worker_that_has_room_again_polls_at_once(site, open_loop):
    """kombu looks for room once in a polling interval, which is an hour here."""
    site.send(5)
    loop = open_loop(prefetch=2)
    loop.consumer.consume()
    loop.messages(2)
    for count in (4, 5):
        for message in loop.taken[-2:]:
            message.ack()
        loop.messages(count)
