"""Where copies go: to the queue that their message was consumed from, whatever led it there."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import SimpleNamespace

import httpx
import pytest
from kombu import Exchange, Queue
from kombu.common import Broadcast
from tests.conftest import manage

from angzarr import Angzarr
from angzarr.adapters.celery.envelope import message_of
from angzarr.adapters.celery.publish.publisher import CelerySchedule
from angzarr.adapters.celery.worker.consumer import AngzarrConsumer
from angzarr.clock import SystemClock
from angzarr.delivery.delivery import read
from angzarr.delivery.schedule import copy_of
from angzarr.errors import BrokerUnavailable
from angzarr.events import headers as names
from angzarr.events.event import Message
from polling import PATIENCE
from redis_servers import wait_until

#: Header of a message that is put behind all that are in a queue.
LAST = "last"


@pytest.fixture(scope="module")
def amqp_url_of_these(amqp_url):
    """A virtual host of these tests' own: they look at all its queues."""
    with virtual_host(amqp_url, "ways") as url:
        yield url


@pytest.fixture
def fresh_amqp_url(amqp_url, unique_name):
    """A virtual host of this test's own, which no worker has seen."""
    with virtual_host(amqp_url, unique_name) as url:
        yield url


@contextmanager
def virtual_host(amqp_url, name):
    vhost = f"{amqp_url.rpartition('/')[2]}-{name}"
    manage("PUT", f"vhosts/{vhost}")
    manage("PUT", f"permissions/{vhost}/guest", dict.fromkeys(("configure", "write", "read"), ".*"))
    yield f"{amqp_url.rpartition('/')[0]}/{vhost}"
    manage("DELETE", f"vhosts/{vhost}")


class Site:
    """An app on a broker, a queue "mine" that is read, and one "other" that is looked at."""

    def __init__(self, url, name, **options):
        self.app = Angzarr("shop", broker=url, **options)
        self.app.conf.task_default_queue = f"{name}-default"
        self.name, self.waiting = name, []
        self.mine, self.other = f"{name}-mine", f"{name}-other"

        @self.app.task(name="t", lazy=False)
        def t():
            """Do it."""

    def bind(self, kind, mine, other, *, known=True, **of_queue):
        """Bind both queues to an exchange, by these keys or arguments."""
        exchange = Exchange(f"{self.name}-x", type=kind)
        queues = []
        for queue, how in ((self.mine, mine), (self.other, other)):
            key, arguments = ("", how) if isinstance(how, dict) else (how, None)
            queues.append(
                Queue(queue, exchange, routing_key=key, binding_arguments=arguments, **of_queue)
            )
        with self.app.connection_for_write() as connection:
            for queue in queues:
                queue(connection.default_channel).declare()
        for queue in queues if known else ():
            self.app.amqp.queues.add(queue)
        return exchange

    def send(self, exchange, key, **options):
        # Declared, since kombu's own exchanges are known to who declared them.
        self.app.tasks["t"].apply_async(
            exchange=exchange.name, exchange_type=exchange.type, routing_key=key,
            declare=[exchange], **options,
        )  # fmt: skip

    def take(self, queue):
        """Consume what is in *queue* as a worker does, and return the raw messages."""
        got, last = [], []
        consumed = Queue(queue, no_declare=True)
        consumer = SimpleNamespace(app=self.app)
        with self.app.connection_for_read() as connection:
            channel = connection.default_channel
            tasks = self.app.amqp.TaskConsumer(channel, queues=[consumed])

            def receive(message):
                if LAST in message.headers:
                    last.append(message)
                else:
                    got.append(message_of(self.app, AngzarrConsumer._envelope(consumer, message)))
                message.ack()

            tasks.on_message = receive
            connection.Producer(channel).publish("", routing_key=queue, headers={LAST: "1"})
            with tasks:
                until = time.monotonic() + PATIENCE
                while not last:
                    assert time.monotonic() < until, "the last one does not come"
                    with suppress(TimeoutError):
                        connection.drain_events(timeout=1)
        return got

    def retry(self, message, delay=timedelta(0)):
        """Send the copy that follows *message*."""
        delivery = read(message, args=[], kwargs={}, token="t", owner="o")
        clock = SystemClock()
        due = clock.now() + delay
        schedule = CelerySchedule(self.app, self.app.ops.open_publisher(), lambda: self, clock)
        schedule.put(copy_of(delivery, attempt=2, hop=1), due)

    def put(self, copy, at):
        self.waiting.append((copy, at))

    def queues(self):
        vhost = self.app.conf.broker_url.rpartition("/")[2]
        address = f"{os.environ['ANGZARR_TEST_AMQP_MANAGEMENT_URL']}/api/queues/{vhost}"
        found = {one["name"] for one in httpx.get(address).raise_for_status().json()}
        return {name for name in found if not name.startswith("celery_delayed_")}


@pytest.fixture
def site(request, unique_name):
    opened = []

    def make(broker, **options):
        url = {
            "rabbitmq": "amqp_url_of_these", "new rabbitmq": "fresh_amqp_url", "redis": "redis_url",
        }.get(broker)  # fmt: skip
        url = request.getfixturevalue(url) if url else f"memory://{unique_name}"
        options.setdefault("store", "memory://" if broker == "memory" else "redis://127.0.0.1:1")
        if broker == "redis":
            options["store"] = url
        opened.append(Site(url, unique_name, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.app.close()


#: How both queues are bound, and the key that a message is sent with, which may reach both.
BOUND = {
    "by a pattern": ("topic", "sport.#", "news.#", "sport.ski"),
    "by one key": ("topic", "sport.ski", "sport.ski", "sport.ski"),
    "by patterns that overlap": ("topic", "sport.#", "#.ski", "sport.ski"),
    "directly by one key": ("direct", "k", "k", "k"),
}
AMQP_ONLY = {
    "to all": ("fanout", "", "", ""),
    "to all by another's name": ("topic", "#", "#", "celery"),
    "by headers": ("headers", {"x-match": "any", "lang": "py"}, {"x-match": "any", "no": "1"}, ""),
}


#: kombu's own exchanges do not bind like the last ones.
CASES = [
    *((broker, bound, True) for broker in ("redis", "memory") for bound in BOUND),
    *(("rabbitmq", bound, known) for bound in (*BOUND, *AMQP_ONLY) for known in (True, False)),
]


@pytest.mark.parametrize(("broker", "bound", "known"), CASES)
def test_a_copy_goes_to_the_queue_that_its_message_was_consumed_from_and_no_other(
    site, broker, bound, known
):
    here = site(broker)
    kind, mine, other, key = (BOUND | AMQP_ONLY)[bound]
    exchange = here.bind(kind, mine, other, known=known)
    sent = {"headers": {"lang": "py"}} if kind == "headers" else {}
    here.send(exchange, key, **sent)
    before = here.queues() if broker == "rabbitmq" else None
    (message,) = here.take(here.mine)
    here.take(here.other)
    assert message.queue == here.mine
    here.retry(message)
    (copy,) = here.take(here.mine)
    assert copy.headers[names.HOP] == 1
    assert here.take(here.other) == []
    assert here.waiting == []
    if broker == "rabbitmq":
        assert here.queues() == before, "no stray queue"


@pytest.mark.parametrize("bound", [*BOUND, "to all"])
def test_a_copy_that_rabbitmq_delays_comes_out_in_its_own_queue_and_no_other(site, bound):
    here = site("new rabbitmq")
    kind, mine, other, key = (BOUND | AMQP_ONLY)[bound]
    exchange = here.bind(kind, mine, other, queue_arguments={"x-queue-type": "quorum"})
    here.send(exchange, key)
    (message,) = here.take(here.mine)
    here.take(here.other)
    here.retry(message, timedelta(seconds=1.5))
    if kind == "direct":  # these wait in the store
        assert len(here.waiting) == 1
        return
    assert here.waiting == []
    copies = []
    wait_until(lambda: copies.extend(here.take(here.mine)) or copies, "the copy")
    copies += here.take(here.mine)
    assert [copy.headers[names.HOP] for copy in copies] == [1]
    assert copies[0].queue == here.mine
    assert here.take(here.other) == []


def test_what_was_dead_lettered_into_a_queue_goes_on_there(site):
    """A team's own wait: a queue with a time to live, whose end is the queue that is read."""
    here = site("rabbitmq")
    here.bind("topic", "sport.#", "news.#")
    wait = Queue(
        f"{here.name}-wait",
        queue_arguments={"x-message-ttl": 1, "x-dead-letter-exchange": f"{here.name}-x"},
    )
    with here.app.connection_for_write() as connection:
        wait(connection.default_channel).declare()
        connection.default_channel.queue_bind(wait.name, "amq.topic", "sport.ski")
    here.send(Exchange("amq.topic", type="topic"), "sport.ski")
    found = []
    wait_until(lambda: found.extend(here.take(here.mine)) or found, "the end of the wait")
    assert found[0].queue == here.mine
    here.retry(found[0])
    (copy,) = here.take(here.mine)
    assert copy.headers[names.HOP] == 1
    assert "x-death" not in copy.headers


def test_a_header_that_names_another_queue_leads_nowhere(site):
    here = site("rabbitmq")
    exchange = here.bind("topic", "sport.#", "news.#")
    here.send(exchange, "sport.ski", headers={names.QUEUE: here.other})
    (message,) = here.take(here.mine)
    here.retry(message)
    assert len(here.take(here.mine)) == 1
    assert here.take(here.other) == []


def test_a_listener_of_a_broadcast_retries_for_itself(site):
    here = site("rabbitmq")
    theirs = Broadcast(f"{here.name}-all", queue=here.other)
    ours = Broadcast(f"{here.name}-all", queue=here.mine)
    here.app.amqp.queues.add(ours)
    with here.app.connection_for_write() as connection:
        for queue in (ours, theirs):
            queue.auto_delete = False
            queue(connection.default_channel).declare()
    here.app.send_task("t", queue=ours)
    (message,) = here.take(here.mine)
    here.take(here.other)
    here.retry(message)
    assert len(here.take(here.mine)) == 1
    assert here.take(here.other) == []


def test_where_the_queue_is_gone_a_copy_takes_the_way_that_its_message_came_by(site):
    here = site("rabbitmq")
    exchange = here.bind("topic", "sport.#", "sport.#", known=False)
    here.send(exchange, "sport.ski")
    (message,) = here.take(here.mine)
    here.take(here.other)
    with here.app.connection_for_write() as connection:
        connection.default_channel.queue_delete(here.mine)
    before = here.queues()
    here.retry(message)
    assert len(here.take(here.other)) == 1
    assert here.queues() == before


def test_what_no_queue_takes_waits_in_the_store_and_holds_nobody(site):
    here = site("rabbitmq")
    before = here.queues()
    gone = Message(
        body=b"[[], {}, {}]", content_type="application/json", content_encoding="utf-8",
        headers={"id": "1", "task": "t"}, queue="gone", exchange="gone", routing_key="gone",
    )  # fmt: skip
    here.retry(gone)
    ((copy, _),) = here.waiting
    assert copy.queue == "gone"
    assert here.queues() == before
    with pytest.raises(BrokerUnavailable) as caught:
        here.app.ops.open_publisher().publish(gone)
    assert caught.value.refused


# -- RabbitMQ's delay, where no worker declared it ---------------------------------------------


def by_apply(app, **options):
    app.tasks["one"].apply_async(({},), **options)


def by_publish(app, **options):
    app.publish({}, type="placed", **options)


def by_publish_many(app, **options):
    app.publish_many([{}], type="placed", **options)


def by_copy(app, countdown):
    message = Message(
        body=b"[[{}], {}, {}]", content_type="application/json", content_encoding="utf-8",
        headers={"id": "1", "task": "one"}, queue=app.conf.task_default_queue,
    )  # fmt: skip
    clock = SystemClock()

    def put(*_):
        raise BrokerUnavailable("it would wait as a row", refused=True)

    rows = SimpleNamespace(put=put)
    schedule = CelerySchedule(app, app.ops.open_publisher(), lambda: rows, clock)
    schedule.put(message, clock.now() + timedelta(seconds=countdown + 0.5))


each_way = pytest.mark.parametrize("send", [by_apply, by_publish, by_publish_many, by_copy])


@pytest.fixture
def shop(site):
    here = site("new rabbitmq")

    @here.app.handler("placed", name="one")
    def one(event):
        """Handle it."""

    return here


def arrived(here, count):
    found = []
    queue = here.app.conf.task_default_queue
    wait_until(lambda: found.extend(here.take(queue)) or len(found) >= count, "them")
    return len(found)


@each_way
def test_a_delay_works_before_any_worker_was_started(shop, send):
    """First deployment: web and beat start before the workers."""
    send(shop.app, countdown=1)
    assert arrived(shop, 1) == 1


@each_way
def test_a_delay_that_was_deleted_is_declared_anew(shop, send):
    send(shop.app, countdown=1)
    with shop.app.connection_for_write() as connection:
        connection.default_channel.exchange_delete("celery_delayed_27")
        connection.default_channel.exchange_delete("celery_delayed_delivery")
    with suppress(BrokerUnavailable):
        send(shop.app, countdown=1)
    send(shop.app, countdown=1)
    assert arrived(shop, 1) >= 1
