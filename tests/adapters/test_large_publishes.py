"""Publishes of bodies that are too large for the broker, while the payload store comes and goes."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel

from angzarr.errors import PayloadStoreUnavailable
from angzarr.events.publication import NotAllPublished
from angzarr.payloads.claim_check import HEADER, check_in
from apps import apps


class Page(BaseModel):
    n: int
    text: str = ""


@pytest.fixture(params=["redis", "amqp"])
def app(request, redis_url, amqp_url, tmp_path):
    broker = {"redis": redis_url, "amqp": amqp_url}[request.param]
    given = {"url": (tmp_path / "payloads").as_uri(), "over": 10_000}
    with apps(broker=broker, store=redis_url) as make:
        app = make(payloads=given, dlq={"backend": "amqp", "amqp_url": amqp_url})

        @app.handler(Page, name="one")
        def one(_event: Page) -> None:
            """Take the event."""

        @app.handler(Page, name="two")
        def two(_event: Page) -> None:
            """Take the event."""

        yield app


def received(app):
    """Return the messages of the app's queue, as the broker has them."""
    found = []
    with app.connection_for_read() as connection:
        queue = app.amqp.queues[app.conf.task_default_queue](connection.default_channel)
        queue.declare()
        while (message := queue.get(no_ack=True)) is not None:
            found.append(message)
    return found


def stored(tmp_path):
    return [path for path in (tmp_path / "payloads").rglob("*") if path.is_file()]


def test_all_handlers_of_an_event_share_one_stored_body(app, tmp_path):
    app.publish(Page(n=1, text="x" * 20_000), id="e-1")
    messages = received(app)
    assert len(messages) == 2
    assert len({message.headers[HEADER] for message in messages}) == 1
    assert all(len(message.body) < 2000 for message in messages)
    assert len(stored(tmp_path)) == 1


def test_small_bodies_are_sent_as_ever(app, tmp_path):
    app.publish(Page(n=1), id="e-1")
    app.publish_many([Page(n=2), Page(n=3)])
    messages = received(app)
    assert len(messages) == 6
    assert not any(HEADER in message.headers for message in messages)
    assert json.loads(messages[0].body)[0] == [{"n": 1, "text": ""}]
    assert stored(tmp_path) == []


def test_while_the_store_is_away_nothing_is_sent(app, tmp_path):
    (tmp_path / "payloads").touch()  # no folder can be made
    large = Page(n=1, text="x" * 20_000)
    with pytest.raises(PayloadStoreUnavailable, match="cannot be written"):
        app.publish(large, id="e-1")
    with pytest.raises(PayloadStoreUnavailable):
        app.publish_many([Page(n=0), large])
    with pytest.raises(PayloadStoreUnavailable):
        app.tasks["one"].delay(large.model_dump())
    assert received(app) == []
    (tmp_path / "payloads").unlink()
    app.publish(large, id="e-1")
    assert len(received(app)) == 2


def test_a_store_that_goes_away_amid_many_events_is_accounted_for(app, tmp_path):
    events = [Page(n=n, text=f"{n}" * 700_000) for n in range(3)]  # each in a chunk of its own
    offloader = app._runtime.offloader()
    put, puts = offloader.store.put, []

    def fail_later(body, name=None):
        puts.append(body)
        if len(puts) == 2:
            raise PayloadStoreUnavailable("the payload store is away")
        return put(body, name)

    offloader.store.put = fail_later
    with pytest.raises(NotAllPublished) as caught:
        app.publish_many(events)
    assert [event.data["n"] for event in caught.value.confirmed] == [0]
    assert [event.data["n"] for event in caught.value.unsent] == [1, 2]
    app.publish_many(caught.value.unconfirmed)
    messages = received(app)
    assert len(messages) == 6
    assert len({check_in(message.headers).reference.uri for message in messages}) == 3
    assert len(stored(tmp_path)) == 3
