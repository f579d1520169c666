"""An order desk with event books: orders, stock and customers, and a process between them.

An order is placed; the process `Fulfilment` reserves each article and books points for the
customer, all at once. Where one part is refused, what the others did is undone, and what they
still do; the order is cancelled. Else all is shipped and the order is confirmed.
"""

from __future__ import annotations

from order_parts import (
    BookPoints,
    FileReceipt,
    OfOrder,
    PointsBooked,
    ReleaseStock,
    ReserveStock,
    ShipStock,
    StockReserved,
    TakePointsBack,
    app,
)
from pydantic import BaseModel, Field

from angzarr import (
    Aggregate,
    CommandRejectedError,
    Context,
    Event,
    ProcessManager,
    Saga,
    Send,
    applies,
    handles,
    reacts_to,
    rejected,
)
from angzarr.aggregates import MergeStrategy, merge_strategy
from angzarr.sagas import (
    CompensationContext,
    Flags,
    SagaCompensationFailed,
    pm_emit_compensation_events,
)

POINTS = "points"  # the part of an order that is no article


# -- orders --------------------------------------------------------------------------------------


class PlaceOrder(BaseModel):
    customer_id: str
    lines: dict[str, int] = Field(min_length=1)  # by article


class ConfirmOrder(BaseModel):
    pass


class CancelOrder(BaseModel):
    reason: str


class OrderPlaced(OfOrder, PlaceOrder):
    pass


class OrderConfirmed(OfOrder):
    customer_id: str


class OrderCancelled(OfOrder):
    reason: str


class Placed(BaseModel):
    customer_id: str = ""
    end: str = ""


@app.aggregate("order")
class Order(Aggregate[Placed]):
    @handles(PlaceOrder)
    def place(self, command: PlaceOrder) -> OrderPlaced:
        if self.state.customer_id:
            raise CommandRejectedError("it is placed already")
        return OrderPlaced(order_id=self.address.root, **command.model_dump())

    @handles(ConfirmOrder)
    def confirm(self, _command: ConfirmOrder) -> OrderConfirmed:
        return OrderConfirmed(order_id=self.address.root, customer_id=self.state.customer_id)

    @handles(CancelOrder)
    def cancel(self, command: CancelOrder) -> OrderCancelled:
        return OrderCancelled(order_id=self.address.root, reason=command.reason)

    @rejected("customer", "FileReceipt")
    def not_filed(self, _refused: CompensationContext) -> Flags:
        # The parcel is on its way, so nothing is undone: people are told, and every listener.
        reason = "the receipt must be sent on paper"
        return Flags(escalate=True, emit_system_revocation=True, reason=reason)

    @applies(OrderPlaced)
    def on_placed(self, event: OrderPlaced) -> None:
        self.state.customer_id = event.customer_id

    @applies(OrderConfirmed)
    def on_confirmed(self, _event: OrderConfirmed) -> None:
        self.state.end = "confirmed"

    @applies(OrderCancelled)
    def on_cancelled(self, _event: OrderCancelled) -> None:
        self.state.end = "cancelled"


# -- the process of one order --------------------------------------------------------------------


class FulfilmentStarted(OfOrder):
    customer_id: str
    parts: list[str]  # articles, and points


class PartDone(OfOrder):
    part: str


class FulfilmentCompleted(OfOrder):
    parts: list[str]


class FulfilmentFailed(OfOrder):
    reason: str


class PartsDropped(FulfilmentStarted):
    """These were done, and are to be undone."""


class Progress(BaseModel):
    customer_id: str = ""
    missing: list[str] = []
    done: list[str] = []
    failed: bool = False


@app.process_manager("fulfilment")
class Fulfilment(ProcessManager[Progress]):
    @classmethod
    def root_of(cls, event: Event) -> str:
        return str(event.data["order_id"])

    @reacts_to(OrderPlaced)
    def start(self, order: OrderPlaced) -> list[object]:
        asked = {"order_id": order.order_id}
        articles = [
            Send(ReserveStock(**asked, quantity=quantity), domain="stock", root=article)
            for article, quantity in order.lines.items()
        ]
        points = BookPoints(**asked, points=sum(order.lines.values()))
        return [
            FulfilmentStarted(**asked, customer_id=order.customer_id, parts=[*order.lines, POINTS]),
            *articles,
            Send(points, domain="customer", root=order.customer_id),
        ]

    @reacts_to(StockReserved)
    def reserved(self, event: StockReserved) -> list[object]:
        return self._done(event.order_id, event.article)

    @reacts_to(PointsBooked)
    def booked(self, event: PointsBooked) -> list[object]:
        return self._done(event.order_id, POINTS)

    def _done(self, order_id: str, part: str) -> list[object]:
        if self.state.failed:  # another part was refused before
            return [self._dropped(order_id, [part])]
        done = PartDone(order_id=order_id, part=part)
        if self.state.missing != [part]:
            return [done]
        return [done, FulfilmentCompleted(order_id=order_id, parts=[*self.state.done, part])]

    def _dropped(self, order_id: str, parts: list[str]) -> PartsDropped:
        return PartsDropped(order_id=order_id, customer_id=self.state.customer_id, parts=parts)

    @rejected("stock", ReserveStock)
    @rejected("customer", BookPoints)
    def refused(self, refused: CompensationContext) -> object:
        if self.state.failed:
            return Flags(reason="the order is cancelled already")
        order_id = self.address.root
        failed = FulfilmentFailed(order_id=order_id, reason=refused.rejection_reason)
        return pm_emit_compensation_events([failed, self._dropped(order_id, self.state.done)])

    @applies(FulfilmentStarted)
    def on_started(self, event: FulfilmentStarted) -> None:
        self.state.customer_id, self.state.missing = event.customer_id, event.parts

    @applies(PartDone)
    def on_done(self, event: PartDone) -> None:
        self.state.missing.remove(event.part)
        self.state.done.append(event.part)

    @applies(FulfilmentFailed)
    def on_failed(self, _event: FulfilmentFailed) -> None:
        self.state.failed = True


@app.saga("order-ends", source="fulfilment")
class OrderEnds(Saga):
    @reacts_to(FulfilmentCompleted)
    def ship(self, event: FulfilmentCompleted) -> list[Send]:
        shipped = [
            Send(ShipStock(order_id=event.order_id), domain="stock", root=part)
            for part in event.parts
            if part != POINTS
        ]
        return [*shipped, Send(ConfirmOrder(), domain="order", root=event.order_id)]

    @reacts_to(FulfilmentFailed)
    def cancel(self, event: FulfilmentFailed) -> Send:
        return Send(CancelOrder(reason=event.reason), domain="order", root=event.order_id)

    @reacts_to(PartsDropped)
    def undo(self, event: PartsDropped) -> list[Send]:
        return [
            Send(TakePointsBack(order_id=event.order_id), domain="customer", root=event.customer_id)
            if part == POINTS
            else Send(ReleaseStock(order_id=event.order_id), domain="stock", root=part)
            for part in event.parts
        ]


# -- receipts, and what becomes of those that nobody can file ------------------------------------


@app.saga("receipts", source="order")
class Receipts(Saga):
    @reacts_to(OrderConfirmed)
    def file(self, event: OrderConfirmed) -> Send:
        receipt = FileReceipt(order_id=event.order_id)
        return Send(receipt, domain="customer", root=event.customer_id)


class Note(OfOrder):
    text: str


class Noted(Note):
    """Somebody calls the customer."""


class Notes(BaseModel):
    notes: dict[str, str] = {}  # by order


@app.aggregate("care")
class Care(Aggregate[Notes]):
    @handles(Note)
    @merge_strategy(MergeStrategy.AGGREGATE_HANDLES)  # notes are a set: none is in another's way
    def note(self, command: Note) -> Noted:
        return Noted(**command.model_dump())

    @applies(Noted)
    def on_noted(self, event: Noted) -> None:
        self.state.notes[event.order_id] = event.text


@app.handler(SagaCompensationFailed, domain="care")
def tell_care(failed: SagaCompensationFailed, ctx: Context) -> None:
    order_id, customer_id = failed.triggering_aggregate.root, failed.rejected_command.root
    app.send_command(
        Note(order_id=order_id, text=failed.compensation_failure_reason),
        domain="care",
        root=customer_id,
        expected=0,  # believed to be empty, and it does not matter
        id=f"{ctx.event.id}:care",  # the same, should this run again
    )
