"""What RabbitMQ itself gives up, on a real one: a letter with its bytes, wherever letters go."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import redis
from celery import chain
from celery.backends.cache import CacheBackend
from kombu import Exchange, Queue
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    declare_native_delayed_delivery_exchanges_and_queues,
    level_name,
)
from tests.apps import apps
from tests.conftest import manage

from angzarr.adapters.celery.publish import amqp as amqp_queues
from angzarr.adapters.celery.publish.publisher import SingleConnectionPublisher
from angzarr.adapters.celery.worker import rejected_by_broker as dropped_hand
from angzarr.adapters.celery.worker.rejected_by_broker import RejectedMessageReader
from angzarr.adapters.celery.worker.worker import MoverThread
from angzarr.dead_letters.names import dropped_queue
from angzarr.errors import BrokerUnavailable, ConfigurationError, LetterTooLarge
from redis_servers import wait_until

PAGE = Path(__file__).parents[2] / "docs/how-to/move-a-celery-project.md"
LIMIT = 2


@pytest.fixture
def make_app(amqp_url, unique_name, monkeypatch):
    monkeypatch.setenv("ANGZARR_PREFIX", unique_name)

    def prepare(app):
        app.conf.task_default_queue = f"{unique_name}-tasks"
        app.handler("placed", name="one", domain=unique_name)(ignore)

    with apps(prepare, broker=amqp_url, store="redis://127.0.0.1:1") as make:
        yield make


@pytest.fixture
def app(make_app):
    return make_app()


def ignore(event):
    """Handle it."""


@pytest.fixture
def reading(app):
    """Read what was dropped into a list, or with a function that buries it."""
    started = []

    def reading(bury=None, app=app):
        taken = []
        name = dropped_queue(app.settings.prefix)
        reader = RejectedMessageReader(app, name, bury or (lambda *what: taken.append(what)))
        reader.start()
        started.append(reader)
        return taken

    yield reading
    for reader in started:
        reader.end()


def publish(app, number=1, **options):
    app.publish({"n": number}, type="placed", id=f"e-{number}", **options)


def take(app, **how):
    """Get one message of the task queue, as a worker would, and reject it."""
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        message = wait_until(lambda: channel.basic_get(app.conf.task_default_queue), "it")
        channel.basic_reject(message.delivery_tag, **how)


def declare_dropped(app):
    reader = RejectedMessageReader.of(app)
    reader.start()
    wait_until(lambda: waiting(app, dropped_queue(app.settings.prefix)) is not None, "the queue")
    reader.end()


def waiting(app, queue):
    """Return how many messages wait, None where there is no such queue."""
    with app.connection_for_read() as connection:
        try:
            told = connection.default_channel.queue_declare(queue, passive=True)
        except connection.channel_errors:
            return None
    return told.message_count


def test_what_came_back_too_often_is_a_letter_with_its_bytes(make_app, unique_name, monkeypatch):
    monkeypatch.setattr(amqp_queues, "DELIVERY_LIMIT", LIMIT)
    app = make_app()
    publish(app, 1)
    for _ in range(LIMIT + 1):
        take(app, requeue=True)
    reader, letters = RejectedMessageReader.of(app), app.ops.open_dead_letter_queue()
    reader.start()
    try:
        found = []
        wait_until(
            lambda: found.extend(
                letters.receive([unique_name], limit=1, wait=timedelta(seconds=1))
            ) or found,
            "the letter",
        )  # fmt: skip
        letters.done(found)
    finally:
        reader.end()
        letters.close()
    letter = found[0].letter
    assert letter.message.body == b'[[{"n": 1}], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'  # fmt: skip # noqa: E501
    assert (letter.handler, letter.domain, letter.error_code) == (
        "one", unique_name, "RABBITMQ_DELIVERY_LIMIT",
    )  # fmt: skip
    assert "x-death reason 'delivery_limit'" in letter.explanation
    assert letter.message.headers["x-death"], "what RabbitMQ said of it is kept"
    wait_until(lambda: waiting(app, dropped_queue(unique_name)) == 0, "it to be let go")


def test_what_rabbitmq_gave_up_ends_the_chain_behind_it(app, reading, monkeypatch):
    declare_dropped(app)
    backend = CacheBackend(app, backend="memory://")
    monkeypatch.setattr(app._local, "backend", backend, raising=False)
    monkeypatch.setattr(app.tasks["one"], "backend", backend)
    first = app.tasks["one"].s({"n": 1})
    result = chain(first, first.clone()).apply_async(compression="zlib")
    take(app, requeue=False)
    app._runtime.settlement.start()
    try:
        reading(app._runtime.bury)
        wait_until(result.ready, "the end of the chain")
        assert (result.state, result.parent.state) == ("FAILURE", "FAILURE")
        assert "RabbitMQ was told to drop it" in str(result.parent.result)
    finally:
        app._runtime.stop_settling()


def test_what_a_stranger_rejected_is_told_with_its_queue(app, reading):
    declare_dropped(app)
    publish(app, 1, compression="zlib")
    take(app, requeue=False)
    taken = reading()
    wait_until(lambda: taken, "the message")
    message, error, code = taken[0]
    assert (message.task, message.queue) == ("one", app.conf.task_default_queue)
    assert message.body.startswith(b'[[{"n": 1}]')
    assert (code, "drop it" in str(error)) == ("RABBITMQ_REJECTED", True)


def test_what_is_no_task_is_read_as_it_is(app, reading):
    declare_dropped(app)
    queue = app.amqp.queues[app.conf.task_default_queue]
    with app.connection_for_write() as connection:
        queue(connection.default_channel).declare()
        producer = connection.Producer(auto_declare=False)
        producer.publish(
            b"\xff{", routing_key=queue.name, exchange="", content_type="x/y",
            content_encoding="none",
        )  # fmt: skip
    take(app, requeue=False)
    taken = reading()
    wait_until(lambda: taken, "the message")
    message, _, code = taken[0]
    assert (message.body, message.content_type) == (b"\xff{", "x/y")
    assert (message.queue, code) == (queue.name, "RABBITMQ_REJECTED")


def test_a_delay_on_its_way_is_no_reason(app, reading):
    queue = app.amqp.queues[app.conf.task_default_queue]
    with app.connection_for_write() as connection:
        declare_native_delayed_delivery_exchanges_and_queues(connection, "quorum")
        bound = queue(connection.default_channel)
        bound.declare()
        bind_queue_to_native_delayed_delivery_exchange(connection, bound)
    publish(app, 1, countdown=1)
    take(app, requeue=False)
    taken = reading()
    wait_until(lambda: taken, "the message")
    message, _, code = taken[0]
    assert (message.queue, code) == (queue.name, "RABBITMQ_REJECTED")


def test_without_the_queue_rabbitmq_keeps_what_it_gave_up(app, reading):
    publish(app, 1)
    take(app, requeue=False)
    time.sleep(0.5)  # RabbitMQ tries to bring it to a queue that is not there
    taken = reading()
    wait_until(lambda: taken, "the message")


def test_what_cannot_be_buried_stays_in_the_queue_and_keeps_no_other(app, reading):
    declare_dropped(app)
    for number in (1, 2):
        publish(app, number)
        take(app, requeue=False)
    taken, tried, well = [], [], []

    def bury(message, _error, _code):
        tried.append(message.id)
        if tried[0] == message.id and not well:
            raise ConnectionError("the letters' queue is away")
        taken.append(message.id)

    reading(bury)
    wait_until(lambda: len(taken) == 1 and tried.count(tried[0]) > 1, "the other, and another try")
    assert tried[0] not in taken
    well.append(True)
    wait_until(lambda: len(taken) == 2, "the first as well")
    wait_until(lambda: waiting(app, dropped_queue(app.settings.prefix)) == 0, "them to be let go")


def put_dropped(app, *names):
    """Publish messages as RabbitMQ puts them where it drops to; return what it says of each."""
    death = {"queue": "orders", "reason": "rejected", "count": 1, "time": datetime(2026, 11, 1)}  # noqa: DTZ001 - as AMQP's client reads it
    with app.connection_for_write() as connection:
        producer = connection.Producer(auto_declare=False)
        for name in names:
            headers = {"task": "one", "id": name, "x-death": [death]}
            producer.publish(
                b"[[], {}, {}]", exchange="", routing_key=dropped_queue(app.settings.prefix),
                content_type="application/json", content_encoding="utf-8", headers=headers,
            )  # fmt: skip
    return [death]


def test_letters_that_are_too_large_keep_no_other_and_are_tried_again_as_they_were(
    make_app, redis_url, reading, monkeypatch
):
    """There are as many as a reader has in hand; they wait in the schedule, here for no time."""
    monkeypatch.setattr(dropped_hand, "TOO_LARGE_WAIT", timedelta(0))
    app = make_app(store=redis_url)
    declare_dropped(app)
    large = [f"large-{n}" for n in range(dropped_hand.PREFETCH)]
    death = put_dropped(app, *large, "small")
    buried, grown = {}, []

    def bury(message, _error, code):
        if message.id in large and not grown:
            msg = "larger than its queue takes"
            raise LetterTooLarge(msg)
        buried[message.id] = (message, code)

    reading(bury, app=app)
    wait_until(lambda: "small" in buried, "the one behind them")
    with redis.Redis.from_url(redis_url) as client:
        due = f"{app.settings.prefix}:{{schedule}}:due"
        wait_until(lambda: client.zcard(due) == len(large), "the large ones to be kept")
    grown.append(True)
    mover = MoverThread(
        app._runtime.schedule, SingleConnectionPublisher(app), pytest.fail, pytest.fail
    )
    mover.start()
    try:
        wait_until(lambda: len(buried) == len(large) + 1, "all of them")
    finally:
        mover.end()
        app._runtime.schedule.close()
    assert {(message.queue, code) for message, code in buried.values()} == {
        ("orders", "RABBITMQ_REJECTED")
    }
    assert all(message.headers["x-death"] == death for message, _ in buried.values())


def test_a_reader_that_loses_its_connection_comes_back(app, reading):
    declare_dropped(app)
    failures = [ConnectionError("away"), None]

    real = app.connection_for_read

    def flaky(*args, **options):
        error = failures.pop(0) if failures else None
        if error:
            raise error
        return real(*args, **options)

    app.connection_for_read = flaky
    taken = reading()
    wait_until(lambda: not failures, "it to connect")
    app.connection_for_read = real
    publish(app, 1)
    take(app, requeue=False)
    wait_until(lambda: taken, "the message")


# -- queues that exist -------------------------------------------------------------------------


@pytest.fixture
def existing(app):
    """A queue as an app of Celery's declares it."""
    name = app.conf.task_default_queue
    old = Queue(name, Exchange(name, "topic"), name, queue_arguments={"x-queue-type": "quorum"})
    with app.connection_for_write() as connection:
        old(connection.default_channel).declare()
    return name


def test_a_queue_with_other_arguments_is_refused_at_start_with_the_cure(app, existing):
    with pytest.raises(ConfigurationError, match="set amqp_queues to 'plain'") as caught:
        app._runtime.check_worker("prefork")
    assert repr(existing) in str(caught.value)
    assert "x-delivery-limit" in str(caught.value) or "x-dead-letter" in str(caught.value)


def test_publishing_to_it_is_an_error_with_the_cure(app, existing):
    with pytest.raises(BrokerUnavailable, match="set amqp_queues to 'plain'"):
        publish(app)


def test_plain_queues_are_taken_as_celery_declares_them(existing, make_app, monkeypatch):
    monkeypatch.setenv("ANGZARR_AMQP_QUEUES", "plain")
    plain = make_app()
    plain._runtime.check_worker("prefork")
    publish(plain)
    assert waiting(plain, existing) == 1


@pytest.fixture
def policy(amqp_url, unique_name):
    """The policy that the page tells users to set, for the queue of this test."""
    page = PAGE.read_text()
    (told,) = re.findall(r"rabbitmqctl set_policy .* '\^\(.*\)\$' '(\{.*\})'", page)
    assert json.loads(told)["delivery-limit"] == amqp_queues.DELIVERY_LIMIT
    definition = json.loads(told.replace("angzarr-dropped", dropped_queue(unique_name)))
    body = {"pattern": f"^{unique_name}-tasks$", "definition": definition, "apply-to": "queues"}
    path = f"policies/{amqp_url.rpartition('/')[2]}/{unique_name}"
    manage("PUT", path, body)
    yield
    manage("DELETE", path)


def test_the_policy_of_the_page_guards_a_queue_that_exists(
    policy, existing, make_app, monkeypatch, reading
):
    monkeypatch.setenv("ANGZARR_AMQP_QUEUES", "plain")
    plain = make_app()
    publish(plain)
    take(plain, requeue=False)
    time.sleep(0.5)  # nobody declared where it goes: RabbitMQ keeps it
    taken = reading(app=plain)
    wait_until(lambda: taken, "the message")
    assert taken[0][0].queue == existing


@pytest.fixture
def classic_delays(app):
    """The queues of RabbitMQ's delay as Celery declares them with the type 'classic'."""

    def delete():
        with app.connection_for_write() as connection:
            for level in range(28):
                connection.default_channel.queue_delete(level_name(level))

    delete()
    with app.connection_for_write() as connection:
        declare_native_delayed_delivery_exchanges_and_queues(connection, "classic")
    yield
    delete()


def test_delay_queues_that_may_lose_what_waits_are_refused_at_start(
    classic_delays, app, make_app, monkeypatch
):
    with pytest.raises(ConfigurationError, match="delete the queues celery_delayed_0 to"):
        app._runtime.check_worker("prefork")
    monkeypatch.setenv("ANGZARR_AMQP_QUEUES", "plain")
    undelayed = make_app()
    undelayed.conf.task_default_queue = f"{undelayed.conf.task_default_queue}-classic"
    undelayed.conf.task_default_queue_type = "classic"
    undelayed.conf.task_default_exchange_type = "direct"
    undelayed._runtime.check_worker("prefork")  # its delays wait in the store


def test_a_queue_that_fits_is_no_obstacle(app):
    app._runtime.check_worker("prefork")
    app._runtime.check_worker("prefork")


def test_a_broker_that_is_away_at_start_is_waited_for(make_app):
    make_app(broker="amqp://guest:guest@127.0.0.1:1//")._runtime.check_worker("prefork")
