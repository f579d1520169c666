"""A loop shows together what SQS answered, deletes in batches, and polls when it has room."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Queue
from kombu.asynchronous import Hub, set_event_loop
from tests.contracts.message_lines import LoopOfLine, MessageLineContract

from angzarr.adapters.celery.connection import AngzarrConnection
from angzarr.adapters.celery.worker.message_receiver import NamingConsumer
from angzarr.adapters.sqs.transport import SqsChannel
from polling import wait_until

pytestmark = [
    pytest.mark.server("localstack"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kombu.asynchronous.http.curl"),
]

#: Longer than any test: what waits for the polling interval waits for ever.
NEVER = 3600
VISIBILITY = {"visibility_timeout": 1800}


class Loop(LoopOfLine):
    def __init__(self, url: str, queue: str, prefetch: int) -> None:
        super().__init__()
        hub = Hub()
        set_event_loop(hub)
        options = {
            "region": "us-east-1", "is_secure": False, "wait_time_seconds": 1,
            "polling_interval": NEVER, **VISIBILITY, **self.heard(),
        }  # fmt: skip
        self.connection = AngzarrConnection(url, transport_options=options)
        self.connection.connect()
        self.channel = self.connection.channel()
        self.connection.transport.register_with_event_loop(self.connection.connection, hub)
        self.line = self.connection.connection.received
        self.consumer = NamingConsumer(
            self.channel, [Queue(queue, routing_key=queue)], reread=self.read_again,
            on_message=self.on_message, accept=["json"], prefetch_count=prefetch,
        )  # fmt: skip
        self.begin(hub)

    def fill_line(self, count: int) -> None:
        """Take turns in which nothing is handed out."""
        self.hub.remove(self.line._registered)
        wait_until(lambda: (self.turn(), len(self.line.line) >= count)[1])
        self.hub.add_reader(self.line._registered, self.line._come_round)

    def lose_connection(self) -> None:
        self.connection.collect()

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


class TestSqsLine(MessageLineContract):
    """Where messages go back no poll is under way, which would take them: its room is full."""

    @pytest.fixture
    def send(self, site):
        return site.send

    @pytest.fixture
    def ready(self, site):
        return lambda: site.count()[0]


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
