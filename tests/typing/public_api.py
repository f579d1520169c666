"""Uses of the public API as a type checker must accept them: read by mypy, never run."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from pydantic import BaseModel

from angzarr import (
    Angzarr,
    AngzarrError,
    Category,
    CompensationAction,
    Context,
    Event,
    GiveUp,
    Limit,
    Policy,
    Postpone,
    Publication,
    RetryLater,
    Rule,
    Skip,
)
from angzarr.delivery import Batch, BatchContext, BatchResult
from angzarr.errors import BrokerUnavailable, ConfigurationVersionMissing
from angzarr.events import NotAllPublished, Priority
from angzarr.resilience import Jitter, Verdict, VerdictRule
from angzarr.resilience.switches import Selector, SwitchAction


class OrderPlaced(BaseModel):
    order_id: str


@dataclass
class OrderPaid:
    order_id: str


POLICY = Policy(
    name="crm",
    base=timedelta(seconds=1),
    max_delay=timedelta(minutes=1),
    max_attempts=5,
    jitter=Jitter.FULL,
    retry_on=frozenset({Category.TRANSIENT}),
)

app = Angzarr(
    "orders",
    broker="redis://localhost",
    store="redis://localhost/1",
    dlq={"backend": "kafka", "kafka_brokers": "localhost:9092"},
    rules=[Rule(matches="stripe.CardError", category=Category.CLIENT)],
    verdicts=[VerdictRule(category=Category.CLIENT, verdict=Verdict.SKIP)],
)


@app.handler(OrderPlaced, domain="order", policy=POLICY, breaker="crm", soft_time_limit=30)
def sync_to_crm(event: OrderPlaced, ctx: Context) -> str:
    if ctx.attempt == ctx.max_attempts or ctx.replay:
        raise GiveUp("negative total")
    if ctx.event.tenant_id is None:
        raise Skip("not our customer")
    if not event.order_id:
        raise RetryLater(timedelta(minutes=5), reason="not there yet")
    if ctx.headers.get("x-later"):
        raise Postpone(2)
    assert_type(ctx.event, Event)
    assert_type(ctx.retry(int, "1", base=2), int)
    return ctx.retry(str.upper, event.order_id, policy="grpc_connection")


@app.undo
def release(data: dict[str, str]) -> None: ...


@app.undo(name="shop.recall")
async def recall(data: str) -> None: ...


@app.handler(OrderPlaced, domain="stock", ordered_by="root", first_sequence=1)
def reserve(event: OrderPlaced, ctx: Context) -> None:
    ctx.register_compensation(
        CompensationAction("reserve stock", execute=release, data={"order_id": event.order_id})
    )
    assert_type(release({}), None)


@app.handler(OrderPlaced, domain="parcel")
async def ship(event: OrderPlaced, ctx: Context) -> None:
    await ctx.aregister_compensation(CompensationAction("ship", recall, event.order_id))


def keep_for_later(event: OrderPaid) -> None: ...


async def place(order_id: str) -> None:
    placed = OrderPlaced(order_id=order_id)
    assert_type(await app.apublish(placed, id=uuid.uuid4(), root=order_id, countdown=5), Event)
    assert_type(await app.apublish_many([placed, Publication(placed, root="o-2")]), list[Event])


async def address_of(order_id: str) -> str:
    return order_id


@app.handler(
    OrderPaid,
    operation="webhook",
    queue="mail",
    breaker=["smtp", "crm"],
    fallback=keep_for_later,
    limit=[Limit("mail", rate=5, per="tenant"), "smtp"],
)
async def send_mail(event: OrderPaid, ctx: Context) -> None:
    assert_type(await ctx.aretry(address_of, event.order_id, policy=POLICY), str)
    raise RetryLater(5.0)


smtp = app.breaker("smtp", errors=(OSError, TimeoutError))


@smtp
def send(address: str) -> int:
    return len(address)


@smtp
async def asend(address: str) -> int:
    return len(address)


@app.handler(OrderPaid, breaker={"crm": OSError})
async def with_breakers(event: OrderPaid, ctx: Context) -> None:
    assert_type(send(event.order_id), int)
    assert_type(await asend(event.order_id), int)
    assert_type(smtp.call(len, event.order_id), int)
    with ctx.breaker("crm"):
        send(event.order_id)
    with ctx.breaker("crm", key=ctx.event.tenant_id):
        send(event.order_id)
    assert_type(app.breaker("crm", key=event.order_id).call(send, event.order_id), int)
    async with smtp:
        await asend(event.order_id)


@app.handler("order.cancelled", idempotent=False, max_age=timedelta(hours=1))
def cancel(event: dict[str, str]) -> None:
    """Take what another service published."""


@app.task(bind=True, max_retries=3)
def plain(self: object, n: int) -> int:
    return n


def pause_while_the_crm_moves() -> str:
    controls = app.ops.switch_controls()
    put = controls.put(
        Selector(tenant="acme"), SwitchAction.PAUSE, by="me", until=timedelta(hours=1)
    )
    controls.resume([switch.id for switch in controls.switches()], by="me", reason="moved")
    return f"{put.id}: {[change.word for change in controls.history(10)]}"


def publish() -> str:
    sent = app.publish(OrderPlaced(order_id="o-1"), root=uuid.uuid4(), priority=Priority.REALTIME)
    assert_type(sent, Event)
    try:
        app.publish({"id": "o-1"}, type="order.cancelled", priority="background", countdown=5)
    except AngzarrError:
        raise
    plain.delay(1)
    return sent.id


def publish_many(orders: list[OrderPlaced]) -> list[Event]:
    app.publish_many(orders, priority=Priority.BACKGROUND, expires=60)
    said = (
        Publication(order, id=uuid.uuid4(), root=order.order_id, sequence=1) for order in orders
    )
    try:
        sent = app.publish_many(said, tenant_id="t")
    except NotAllPublished as error:
        assert_type(error.uncertain, tuple[Event, ...])
        assert_type(error.reasons, dict[str, BrokerUnavailable])
        return app.publish_many(error.unconfirmed)
    assert_type(sent, list[Event])
    return sent


@app.handler(OrderPlaced, batch=Batch(size=100, wait=0.05))
def index(orders: list[OrderPlaced], ctx: BatchContext) -> BatchResult | None:
    assert_type(ctx.events, list[Event])
    with ctx.breaker("search"):
        ctx.log.info("indexing")
    return BatchResult(errors={0: GiveUp(orders[0].order_id)})


@app.handler(OrderPlaced, batch=Batch(size=100, wait=0.05))
async def index_async(orders: list[OrderPlaced]) -> None: ...


@app.handler(OrderPaid, domain="billing")
def bill(_event: OrderPaid, ctx: Context) -> None:
    try:
        prices = ctx.config("pricing")
    except ConfigurationVersionMissing as error:
        raise GiveUp(str(error)) from error
    assert_type(ctx.config_version("pricing"), str)
    app.publish({"net": prices["net"]}, type="Billed", config_pins=["pricing"])
    app.publish({"net": prices["net"]}, type="Billed", config_pins={"pricing": "1"})
    app.publish_many([Publication({}, type="Billed", config_pins=("pricing",))])


@app.handler(OrderPaid, domain="billing", name="abill")
async def abill(_event: OrderPaid, ctx: Context) -> str:
    prices = await ctx.aconfig("pricing")
    return f"{prices} of {await ctx.aconfig_version('pricing')}"
