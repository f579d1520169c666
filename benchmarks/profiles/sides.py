"""Sides: an angzarr app and a bare Celery app, with messages as their own publish made them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, cast

from celery import Celery
from kombu.message import Message
from pydantic import BaseModel

from angzarr import Angzarr
from angzarr.adapters.celery.claim_batch import ClaimBatch
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.memory.idempotency import MemoryOwnerLeases
from angzarr.adapters.structlog.logs import dress
from angzarr.adapters.structlog.own_lines import StructlogFactLog
from angzarr.resilience.claim_memory import CompletedCache
from angzarr.resilience.idempotency import Claimed
from angzarr.runtime.processes import OncePerProcess
from angzarr.wiring.stores import Claims

#: No server: nothing connects to it.
NOWHERE = "redis://127.0.0.1:1/0"
NAME = "bench.noop"
_PARTS = ("body", "content_type", "content_encoding", "headers", "properties", "delivery_info")


class OrderPlaced(BaseModel):
    number: int
    order_id: str
    total: Decimal
    currency: str


class ReadyStore:
    """A claim store that takes no time: what is claimed is granted, what ends is ended."""

    def claim(self, claims: Sequence[Any], /) -> list[Any]:
        return [Claimed() for _ in claims]

    def owns(self, _key: str, _token: str, /, facts: Sequence[str] = ()) -> bool:  # noqa: ARG002 - the port's
        return True

    def settle(self, _key: str, _token: str, _ending: Any, /, facts: Sequence[str] = ()) -> bool:  # noqa: ARG002 - the port's
        return True

    def settle_all(self, ends: Sequence[Any], /) -> list[bool]:
        return [True for _ in ends]


class Side(NamedTuple):
    """One side of a pair."""

    app: Any
    task: Any
    raw: list[dict[str, Any]]
    #: Claims messages that were fetched together.
    claim: Callable[[list[Any]], Any] | None = None
    #: Lets a round find no event of the round before handled.
    forget: Callable[[], Any] = lambda: None

    def messages(self) -> list[Any]:
        """Return all messages as if they were just fetched."""
        return [
            Message(accept={"application/json"}, channel=None, delivery_tag="t", **raw)
            for raw in self.raw
        ]


def angzarr_side(events: int, *, rides: bool) -> Side:
    """Return ours; where it *rides*, claims are made with the fetch and ended with the ack."""
    side = side_of(_noop_app("memory://"), _noop_app(NOWHERE), events, rides=rides)
    assert isinstance(runtime_of(side.app).executor().settler.facts, StructlogFactLog)
    return side


def side_of(
    sender: Any,
    app: Any,
    events: int,
    *,
    rides: bool = False,
    publish_around: Callable[[Callable[[], Any]], Any] = lambda call: call(),
) -> Side:
    """Return the side of *app*, whose handler takes what *sender* publishes."""

    def publish(number: int) -> None:
        event = OrderPlaced(**body(number))
        publish_around(lambda: sender.publish(event, root=f"o-{number}"))

    raw = _published(sender, publish, events)
    cache = CompletedCache(ReadyStore())
    nobody = cast("Any", None)
    claims = Claims(cache, MemoryOwnerLeases(), *[nobody] * 4)  # no fleet, log, pin or fact
    parts = app._parts  # noqa: SLF001 - the one seam
    parts._claims = OncePerProcess(lambda: claims)  # noqa: SLF001
    app.conf.task_ignore_result = True
    app.finalize(auto=True)
    bounds = app.settings.message.bounds
    claim_batch = ClaimBatch(
        app.handlers,
        cache,
        parts.tenure,
        runtime_of(app).owner,
        bounds,
        lambda *given: given,
    )
    vars(runtime_of(app))["claim_batch"] = claim_batch
    claim = claim_batch.claim if rides else None
    return Side(app, app.tasks[NAME], raw, claim, cache._done.clear)  # noqa: SLF001


def angzarr_app(broker: str, **settings: Any) -> Any:
    """Return an app of ours whose claims and, unless *settings* say more, nothing else is kept."""
    settings.setdefault("dlq", {"backend": "none", "accept_loss": True})
    return Angzarr(f"bench-{uuid.uuid4().hex}", broker=broker, store="memory://", **settings)


def _noop_app(broker: str) -> Any:
    app = angzarr_app(broker)

    @app.handler(OrderPlaced, domain="order", name=NAME)
    def noop(event: OrderPlaced) -> None:
        pass

    return app


def celery_side(events: int) -> Side:
    """Return bare Celery with late ack."""
    app = Celery("bare", broker="memory://", set_as_current=False)
    app.conf.update(task_acks_late=True, task_ignore_result=True)

    @app.task(name=NAME)
    def noop(event: dict[str, Any]) -> None:
        pass

    app.finalize()
    raw = _published(app, lambda number: noop.delay(body(number)), events)
    return Side(app, app.tasks[NAME], raw)


def body(number: int) -> dict[str, Any]:
    """Return the event that both sides send."""
    return {"number": number, "order_id": f"o-{number}", "total": "9.90", "currency": "EUR"}


def _published(app: Any, send: Callable[[int], Any], events: int) -> list[dict[str, Any]]:
    """Publish to a broker in memory, and return what would stand on a real one."""
    app.conf.task_default_queue = f"bench-{uuid.uuid4().hex}"
    for number in range(events):
        send(number)
    with app.connection_for_read() as connection:
        simple = connection.SimpleQueue(app.amqp.queues[app.conf.task_default_queue])
        messages = [simple.get_nowait() for _ in range(events)]
        raw = [{name: getattr(message, name) for name in _PARTS} for message in messages]
        for message in messages:
            message.ack()
        simple.close()
    return raw


def log_to(path: Path, *, lines: bool) -> None:
    """Log as a worker does: facts, and warnings or (with *lines*) all lines, to a file as JSON."""
    root = logging.getLogger()
    root.addHandler(logging.StreamHandler(path.open("w", encoding="utf-8")))
    root.setLevel(logging.INFO if lines else logging.WARNING)
    logging.getLogger("angzarr.facts").setLevel(logging.INFO)
    dress(root, json=True)
