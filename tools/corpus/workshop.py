"""Workshop: publishes an event, takes it as a worker does, and returns the letter that is written.

Broker, claims and dead letters are the in-memory ones of stand-alone mode; publisher, codec,
pipeline, judge, autopsy and settler are production's. Only the two processes of a worker are one.
"""

from __future__ import annotations

import gc
import os
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from celery.exceptions import InvalidTaskError
from kombu.exceptions import ContentDisallowed, DecodeError
from tools.corpus.cases import RELEASE
from tools.corpus.events import OrderPlaced
from tools.corpus.normal import normal
from tools.corpus.scenario import Scenario

from angzarr import Angzarr, Policy
from angzarr.adapters.celery.envelope import Envelope, delivery_of, message_of
from angzarr.adapters.celery.message_check import check_headers, checked_body
from angzarr.dead_letters.codec import decode
from angzarr.dead_letters.letter import DeadLetter
from angzarr.errors import DecodeError as OurDecodeError
from angzarr.events import headers as names

#: When everything in the set happened.
AT = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
QUEUE, DOMAIN = "orders", "order"
#: Each message comes as its fifth and last attempt, so that its failure is a letter at once.
ATTEMPTS = 5
LAST = Policy(
    name="shop", base=timedelta(seconds=1), max_delay=timedelta(minutes=1), max_attempts=ATTEMPTS
)


class NoLetter(AssertionError):
    """The scenario did not fail as it should, or its failure is no letter."""


def provoke(scenario: Scenario) -> DeadLetter:
    """Let *scenario* fail for real, and return its letter in a form fit to be recorded."""
    if scenario.written is not None:
        return decode(*scenario.written())
    try:
        with shop(scenario) as app:
            (scenario.road or take_one)(app, scenario)
            letter = _written(app, scenario)
    finally:
        _let_go()
    return normal(letter, AT)


def _let_go() -> None:
    """Close what failing clients left open, or Python would complain of it in some later test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@contextmanager
def shop(scenario: Scenario) -> Iterator[Any]:
    """Yield an app with the scenario's handler and one message for it in its queue."""
    with (
        tempfile.TemporaryDirectory(prefix="corpus-") as folder,
        patch.dict(os.environ, {"ANGZARR_RELEASE": RELEASE}),
    ):
        app = Angzarr(
            "shop",
            broker="memory://corpus",  # whose letters no other test of the process reads
            store="memory://",
            facts={"url": f"sqlite:///{folder}/facts.db"},
            dlq={"backend": "channel"},
            rules=scenario.rules,
        )
        app.conf.task_default_queue = QUEUE
        try:
            _register(app, scenario)
            app._parts.claims.leases.renew(app._runtime.owner, timedelta(hours=1))
            _publish(app, scenario)
            yield app
        finally:
            app.close()


def _register(app: Any, scenario: Scenario) -> None:
    options = {"domain": DOMAIN, "policy": LAST, "name": f"shop.{scenario.name}"}
    app.handler(OrderPlaced.__name__, **options | scenario.options)(scenario.handler)


def _publish(app: Any, scenario: Scenario) -> None:
    event_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"corpus:{scenario.name}"))
    app.publish(
        dict(scenario.event),
        type=OrderPlaced.__name__,
        id=event_id,
        correlation_id=event_id,
        occurred_at=AT - timedelta(minutes=9),
        check=False,
    )
    if scenario.damage is not None:
        _damage(app, scenario)


def _damage(app: Any, scenario: Scenario) -> None:
    """Send the message again as the scenario changes it, on any road that a publisher may take."""
    with app.connection_for_write() as connection, connection.Producer() as producer:
        found = connection.default_channel.basic_get(QUEUE, no_ack=True)
        body, headers = scenario.damage(found.body, dict(found.headers))
        content = {"content_type": found.content_type, "content_encoding": found.content_encoding}
        content |= {key: headers.pop(key) for key in tuple(content) if key in headers}
        producer.publish(
            body,
            routing_key=QUEUE,
            headers=headers,
            priority=0,
            correlation_id=found.properties.get("correlation_id"),
            **content,
        )


# -- a worker's parent and child -------------------------------------------------------------


def take_one(app: Any, _scenario: Scenario, failed: Exception | None = None) -> Any:
    """Take the message off its queue as a worker does; *failed*: how it ended before its handler.

    The order of checks is that of `AngzarrConsumer` and `AngzarrRequest`.
    """
    found = fetched(app)
    envelope = envelope_of(app, found)
    try:
        payload = found.payload
    except ContentDisallowed as error:
        return app._runtime.bury(message_of(app, envelope), error, "INVALID_TASK")
    except DecodeError as error:
        return app._runtime.bury(message_of(app, envelope), error, "UNDECODABLE")
    if "task" not in envelope.headers:
        error = OurDecodeError("it names no task: it is no Celery message")
        return app._runtime.bury(message_of(app, envelope), error, "FOREIGN_MESSAGE")
    try:
        check_headers(envelope.headers)
        args, kwargs, _ = checked_body(payload)
    except InvalidTaskError as error:
        return app._runtime.bury(message_of(app, envelope), error, "INVALID_TASK")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a client has to say of itself is not our subject
        return app._runtime.executor().take(delivery_of(app, envelope, args, kwargs), failed)


def fetched(app: Any) -> Any:
    """Return the message as kombu gives it."""
    with app.connection_for_read() as connection:
        found = connection.default_channel.basic_get(QUEUE, no_ack=True)
        found.accept = {"application/json", "json"}
        return found


def envelope_of(app: Any, found: Any) -> Envelope:
    headers = {names.ATTEMPT: ATTEMPTS, **found.headers}
    return Envelope(
        uuid.uuid4().hex, app._runtime.owner, found.body, found.content_type,
        found.content_encoding, headers, found.properties, found.delivery_info,
    )  # fmt: skip


def _written(app: Any, scenario: Scenario) -> DeadLetter:
    queue = app.ops.open_dead_letter_queue()
    receipts = queue.receive([DOMAIN, "unknown"], limit=2, wait=timedelta(0))
    queue.done(receipts)
    if len(receipts) != 1 or receipts[0].letter is None:
        raise NoLetter(f"{scenario.name} wrote {len(receipts)} letters")
    return receipts[0].letter
