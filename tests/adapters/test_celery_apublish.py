"""Coroutines publish to real brokers: all arrives, and a broker that is away stops no loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from urllib.parse import urlsplit

import pytest
from tests.apps import apps
from tools.tcp_proxy import LossyProxy

from angzarr import Publication
from angzarr.errors import BrokerUnavailable
from angzarr.events import headers as names


def ignore(event):
    """Handle it."""


@pytest.fixture(params=["redis_url", "amqp_url"])
def broker(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def proxy(broker):
    there = urlsplit(broker)
    with LossyProxy(there.hostname, there.port) as proxy:
        yield proxy


@pytest.fixture
def app(broker, proxy, unique_name):
    def prepare(app):
        app.conf.task_default_queue = unique_name
        app.conf.task_publish_retry_policy = {"max_retries": 1, "interval_start": 0}
        app.handler("placed", name="one")(ignore)

    there = urlsplit(broker)
    login = f"{there.username}:{there.password}@" if there.username else ""
    url = there._replace(netloc=f"{login}127.0.0.1:{proxy.port}").geturl()
    with apps(prepare, broker=url, store="redis://127.0.0.1:1") as make:
        yield make()


def publish(app, name):
    return app.apublish({"n": name}, type="placed", id=name)


def ids_in(app):
    found = []
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        while (message := channel.basic_get(app.conf.task_default_queue, no_ack=True)) is not None:
            found.append(channel.message_to_python(message).headers[names.EVENT_ID])
    return found


def test_hundreds_side_by_side_arrive_once(app):
    async def main():
        return await asyncio.gather(*(publish(app, f"e-{n}") for n in range(300)))

    published = asyncio.run(main())
    assert Counter(ids_in(app)) == Counter(event.id for event in published)


def test_many_keep_their_order(app):
    many = [Publication({"n": n}, type="placed", id=f"e-{n}") for n in range(600)]
    asyncio.run(app.apublish_many(many))
    assert ids_in(app) == [f"e-{n}" for n in range(600)]


def test_the_loop_goes_on_while_the_broker_is_mute(app, proxy):
    async def main():
        await publish(app, "first")
        proxy.stall()
        calls = [asyncio.create_task(publish(app, f"e-{n}")) for n in range(20)]
        await asyncio.sleep(0.05)
        assert not any(call.done() for call in calls)
        proxy.mend()  # only a loop that goes on comes here
        await asyncio.gather(*calls)

    asyncio.run(main())
    assert set(ids_in(app)) == {"first", *(f"e-{n}" for n in range(20))}


def test_a_broker_that_is_away_is_the_error_of_each_call_with_its_id(app, proxy):
    async def main():
        await publish(app, "first")
        proxy.cut()
        calls = [publish(app, f"e-{n}") for n in range(20)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {BrokerUnavailable}
        assert [error.event_id for error in errors] == [f"e-{n}" for n in range(20)]
        proxy.mend()
        await asyncio.gather(*(publish(app, error.event_id) for error in errors))

    asyncio.run(main())
    assert set(ids_in(app)) == {"first", *(f"e-{n}" for n in range(20))}
