"""Publishing for coroutines: the loop goes on, no more than some run, and nothing ends unseen."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections import Counter

import httpx
import pytest
from celery import signals
from fastapi import BackgroundTasks, FastAPI
from pydantic import BaseModel
from tests.apps import apps

from angzarr import Angzarr, Publication
from angzarr.adapters.celery.memory_transport import memory_broker
from angzarr.adapters.celery.publish import publisher as publishing
from angzarr.app.async_publisher import THREADS, AsyncPublisher
from angzarr.errors import BrokerUnavailable, NoSubscriber
from angzarr.events import NotAllPublished
from angzarr.events import headers as names
from polling import wait_until

PATIENCE = 120


class Placed(BaseModel):
    order_id: str


def ignore(event):
    """Handle it."""


@pytest.fixture
def app(unique_name):
    with apps(broker=f"memory://{unique_name}", store="memory://") as make:
        app = make()
        app.handler(Placed, name="one")(ignore)
        yield app


@pytest.fixture
def waiting(app, unique_name):
    """The messages on the broker."""
    return lambda: memory_broker(unique_name).waiting()


def ids_in(app, unique_name):
    queue = memory_broker(unique_name).queues[app.conf.task_default_queue]
    return [message["headers"][names.EVENT_ID] for message in queue.queue]


class Gate:
    """Every publish stops at it, on its thread, until it is open."""

    def __init__(self):
        self.opened = threading.Event()
        self.came = threading.Semaphore(0)
        self.fails = None
        self.count = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, **_told):
        with self._lock:
            self.count += 1
            self.most = max(self.most, self.count)
        self.came.release()
        try:
            assert self.opened.wait(PATIENCE)
            if self.fails is not None:
                raise self.fails
        finally:
            with self._lock:
                self.count -= 1

    async def reached(self, times=1):
        """Wait until *times* more publishes stand at it."""
        for _ in range(times):
            assert await asyncio.to_thread(self.came.acquire, timeout=PATIENCE)


@pytest.fixture
def gate(app):
    gate = Gate()
    real = app.send_task

    def send_task(*args, **options):
        gate()
        return real(*args, **options)

    app.send_task = send_task
    yield gate
    gate.opened.set()


def test_it_publishes_and_returns_what_publish_does(app, unique_name):
    event = asyncio.run(app.apublish(Placed(order_id="o-1"), id="e-1", root="o-1"))
    assert (event.id, event.root, event.type) == ("e-1", "o-1", "Placed")
    many = asyncio.run(app.apublish_many([Publication(Placed(order_id="o-2"), id="e-2")]))
    assert [one.id for one in many] == ["e-2"]
    assert ids_in(app, unique_name) == ["e-1", "e-2"]


def test_a_framework_sees_that_it_must_be_awaited(app):
    assert inspect.iscoroutinefunction(app.apublish)
    assert inspect.iscoroutinefunction(app.apublish_many)
    assert (app.apublish.__name__, app.apublish_many.__name__) == ("apublish", "apublish_many")


def test_the_loop_goes_on_while_the_broker_lets_it_wait(app, gate, waiting):
    async def main():
        publish = asyncio.create_task(app.apublish(Placed(order_id="o-1")))
        await gate.reached()
        gate.opened.set()  # only a loop that goes on comes here
        await publish

    asyncio.run(main())
    assert waiting() == 1


def test_no_more_than_some_publish_at_a_time_and_all_arrive(app, gate, unique_name):
    async def main():
        calls = [app.apublish(Placed(order_id="o"), id=f"e-{n}") for n in range(5 * THREADS)]
        publishes = asyncio.gather(*calls)
        await gate.reached(THREADS)
        assert not gate.came.acquire(blocking=False)
        gate.opened.set()
        return await publishes

    published = asyncio.run(main())
    assert gate.most == THREADS
    assert Counter(ids_in(app, unique_name)) == Counter(event.id for event in published)
    assert len(published) == 5 * THREADS


def test_a_call_that_is_cancelled_before_its_turn_has_sent_nothing(app, gate, unique_name):
    async def main():
        before = [
            asyncio.create_task(app.apublish(Placed(order_id="o"), id=f"e-{n}"))
            for n in range(THREADS)
        ]
        await gate.reached(THREADS)
        late = asyncio.create_task(app.apublish(Placed(order_id="o"), id="late"))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        gate.opened.set()
        await asyncio.gather(*before)
        await app.apublish(Placed(order_id="o"), id="next")

    asyncio.run(main())
    assert sorted(ids_in(app, unique_name)) == sorted([*(f"e-{n}" for n in range(THREADS)), "next"])


def test_a_cancelled_call_returns_at_once_and_keeps_its_thread_until_it_has_ended(
    app, gate, unique_name
):
    async def main():
        calls = [
            asyncio.create_task(app.apublish(Placed(order_id="o"), id=f"e-{n}"))
            for n in range(THREADS)
        ]
        await gate.reached(THREADS)
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        late = asyncio.create_task(app.apublish(Placed(order_id="o"), id="late"))
        await asyncio.sleep(0)
        assert not gate.came.acquire(blocking=False), "no thread is free for it"
        gate.opened.set()
        await late

    asyncio.run(main())
    app.close()
    wanted = [*(f"e-{n}" for n in range(THREADS)), "late"]
    assert sorted(ids_in(app, unique_name)) == sorted(wanted), "the cancelled ones were sent"


def test_the_failure_of_a_cancelled_call_is_logged(app, gate, caplog):
    gate.fails = BrokerUnavailable("it confirmed nothing of event e-1", "e-1")

    async def main():
        call = asyncio.create_task(app.apublish(Placed(order_id="o"), id="e-1"))
        await gate.reached()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.opened.set()

    with caplog.at_level(logging.WARNING, "angzarr.publishing"):
        asyncio.run(main())
        wait_until(lambda: "publish_failed_unseen" in caplog.text, "the failure in the log")
    assert "e-1" in caplog.text


def test_a_failure_that_is_raised_is_not_logged_besides(app, caplog):
    with pytest.raises(NoSubscriber):
        asyncio.run(app.apublish({"n": 1}, type="unknown"))
    assert "publish_failed_unseen" not in caplog.text


def test_errors_are_those_of_publish(app, gate):
    gate.opened.set()
    gate.fails = publishing.unconfirmed("no confirm", OSError("gone"), "e-1")
    with pytest.raises(BrokerUnavailable) as caught:
        asyncio.run(app.apublish(Placed(order_id="o"), id="e-1"))
    assert caught.value.event_id == "e-1"
    many = [Placed(order_id="o"), Placed(order_id="p")]
    with pytest.raises(NotAllPublished):
        asyncio.run(app.apublish_many(many))


def test_the_context_goes_along(app):
    seen = []
    said = contextvars.ContextVar("said")

    def note(**_told):
        seen.append(said.get())

    signals.before_task_publish.connect(note)

    async def main():
        said.set("here")
        await app.apublish(Placed(order_id="o"))

    asyncio.run(main())
    signals.before_task_publish.disconnect(note)
    assert seen == ["here"]


def test_a_web_app_publishes_in_its_requests_and_behind_them(app, unique_name):
    api = FastAPI()

    @api.post("/orders/{name}")
    async def place(name: str, later: BackgroundTasks) -> str:
        event = await app.apublish(Placed(order_id=name), id=name)
        later.add_task(app.apublish, Placed(order_id=name), id=f"{name}-later")
        return event.id

    async def main():
        shop = httpx.ASGITransport(app=api)
        async with httpx.AsyncClient(transport=shop, base_url="http://shop") as client:
            calls = [client.post(f"/orders/o-{n}") for n in range(5)]
            return [answer.json() for answer in await asyncio.gather(*calls)]

    answers = asyncio.run(main())
    assert answers == [f"o-{n}" for n in range(5)]
    assert sorted(ids_in(app, unique_name)) == sorted(
        [*answers, *(f"{one}-later" for one in answers)]
    )


def test_a_loop_that_is_closed_meanwhile_harms_no_other(app, gate, unique_name):
    async def leave():
        call = asyncio.create_task(app.apublish(Placed(order_id="o"), id="left"))
        await gate.reached()
        call.cancel()

    asyncio.run(leave())
    gate.opened.set()
    asyncio.run(app.apublish(Placed(order_id="o"), id="next"))
    app.close()
    assert sorted(ids_in(app, unique_name)) == ["left", "next"]


def test_loops_of_several_threads_share_an_app(app, unique_name):
    async def many(first):
        await asyncio.gather(
            *(app.apublish(Placed(order_id="o"), id=f"e-{first + n}") for n in range(40))
        )

    threads = [threading.Thread(target=asyncio.run, args=(many(40 * n),)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids_in(app, unique_name)) == sorted(f"e-{n}" for n in range(120))


def test_close_waits_for_what_is_being_published_and_a_later_call_opens_it_again(
    app, gate, unique_name
):
    async def main():
        call = asyncio.create_task(app.apublish(Placed(order_id="o"), id="e-1"))
        await gate.reached()
        closing = asyncio.create_task(asyncio.to_thread(app.close))
        await asyncio.sleep(0)
        gate.opened.set()
        await closing
        assert ids_in(app, unique_name) == ["e-1"]
        await call
        await app.apublish(Placed(order_id="o"), id="e-2")

    asyncio.run(main())
    assert ids_in(app, unique_name) == ["e-1", "e-2"]


def test_a_subclass_that_publishes_in_its_own_way_is_asked(unique_name):
    class Tenants(Angzarr):
        def publish(self, event, **said):
            return super().publish(event, **said, tenant_id="t-1")

    with Tenants("shop", broker=f"memory://{unique_name}", set_as_current=False) as app:
        app.handler(Placed, name="one")(ignore)
        assert asyncio.run(app.apublish(Placed(order_id="o"))).tenant_id == "t-1"


def test_a_pool_that_was_closed_since_it_was_looked_up_is_replaced():
    publisher = AsyncPublisher()
    publisher._pool.get().shutdown()
    with pytest.raises(RuntimeError):  # as at the end of the process: it is not replaced for ever
        asyncio.run(publisher.run(lambda: 1))
    publisher.close()
    assert asyncio.run(publisher.run(lambda: 1)) == 1
    publisher.close()
