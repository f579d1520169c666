"""What orders need: stock, and customers who collect points. See order_desk.py."""

from __future__ import annotations

from pydantic import BaseModel, Field

from angzarr import Aggregate, Angzarr, CommandRejectedError, applies, handles
from angzarr.aggregates import MergeStrategy, merge_strategy

app = Angzarr("order-desk")


class OfOrder(BaseModel):
    order_id: str


# -- stock: an aggregate for each article ----------------------------------------------------------


class Deliver(BaseModel):
    quantity: int = Field(gt=0)


class ReserveStock(OfOrder):
    quantity: int = Field(gt=0)


class ReleaseStock(OfOrder):
    pass


class ShipStock(OfOrder):
    pass


class StockMoved(OfOrder):
    on_hand: int  # absolute, as all that follows
    reserved: int
    shipped: int


class StockDelivered(BaseModel):
    on_hand: int


class StockReserved(StockMoved):
    article: str


class StockReleased(StockMoved):
    pass


class StockShipped(StockMoved):
    pass


class Shelf(BaseModel):
    on_hand: int = 0
    reserved: dict[str, int] = {}  # by order
    shipped: int = 0


@app.aggregate("stock", snapshot_every=50)
class Stock(Aggregate[Shelf]):
    @handles(Deliver)
    @merge_strategy(MergeStrategy.COMMUTATIVE)  # what comes in is added to whatever is there
    def deliver(self, command: Deliver) -> StockDelivered:
        return StockDelivered(on_hand=self.state.on_hand + command.quantity)

    @handles(ReserveStock)
    def reserve(self, command: ReserveStock) -> StockReserved:
        left = self.state.on_hand - command.quantity
        if left < 0:
            raise CommandRejectedError("out of stock")
        return StockReserved(
            order_id=command.order_id,
            article=self.address.root,
            on_hand=left,
            reserved=command.quantity,
            shipped=self.state.shipped,
        )

    @handles(ReleaseStock)
    def release(self, command: ReleaseStock) -> StockReleased:
        back = self.state.on_hand + self.state.reserved[command.order_id]
        shipped = self.state.shipped
        return StockReleased(order_id=command.order_id, on_hand=back, reserved=0, shipped=shipped)

    @handles(ShipStock)
    def ship(self, command: ShipStock) -> StockShipped:
        gone = self.state.shipped + self.state.reserved[command.order_id]
        on_hand = self.state.on_hand
        return StockShipped(order_id=command.order_id, on_hand=on_hand, reserved=0, shipped=gone)

    @applies(StockDelivered)
    def on_delivered(self, event: StockDelivered) -> None:
        self.state.on_hand = event.on_hand

    @applies(StockReserved)
    @applies(StockReleased)
    @applies(StockShipped)
    def on_moved(self, event: StockMoved) -> None:
        self.state.on_hand, self.state.shipped = event.on_hand, event.shipped
        self.state.reserved.pop(event.order_id, None)
        if event.reserved:
            self.state.reserved[event.order_id] = event.reserved


# -- customers and their points --------------------------------------------------------------------


class OpenAccount(BaseModel):
    mailbox: int = Field(ge=0)  # receipts that it has room for


class CloseAccount(BaseModel):
    pass


class BookPoints(OfOrder):
    points: int = Field(gt=0)


class TakePointsBack(OfOrder):
    pass


class FileReceipt(OfOrder):
    pass


class AccountOpened(OpenAccount):
    pass


class AccountClosed(BaseModel):
    pass


class PointsBooked(OfOrder):
    points: int


class PointsTakenBack(OfOrder):
    pass


class ReceiptFiled(OfOrder):
    pass


class Account(BaseModel):
    is_open: bool = False
    mailbox: int = 0
    receipts: set[str] = set()
    points: dict[str, int] = {}  # by order


@app.aggregate("customer")
class Customer(Aggregate[Account]):
    @handles(OpenAccount)
    def open(self, command: OpenAccount) -> AccountOpened:
        return AccountOpened(mailbox=command.mailbox)

    @handles(CloseAccount)
    @merge_strategy(MergeStrategy.STRICT)  # points are lost: only by who has seen how many
    def close(self, _command: CloseAccount) -> AccountClosed | None:
        return AccountClosed() if self.state.is_open else None

    @handles(BookPoints)
    def book(self, command: BookPoints) -> PointsBooked:
        if not self.state.is_open:
            raise CommandRejectedError("the customer is gone")
        return PointsBooked(order_id=command.order_id, points=command.points)

    @handles(TakePointsBack)
    def take_back(self, command: TakePointsBack) -> PointsTakenBack:
        return PointsTakenBack(order_id=command.order_id)

    @handles(FileReceipt)
    def file(self, command: FileReceipt) -> ReceiptFiled:
        if len(self.state.receipts) >= self.state.mailbox:
            raise CommandRejectedError("the mailbox is full")
        return ReceiptFiled(order_id=command.order_id)

    @applies(AccountOpened)
    def on_opened(self, event: AccountOpened) -> None:
        self.state.is_open, self.state.mailbox = True, event.mailbox

    @applies(AccountClosed)
    def on_closed(self, _event: AccountClosed) -> None:
        self.state.is_open = False

    @applies(PointsBooked)
    def on_booked(self, event: PointsBooked) -> None:
        self.state.points[event.order_id] = event.points

    @applies(PointsTakenBack)
    def on_taken_back(self, event: PointsTakenBack) -> None:
        self.state.points.pop(event.order_id, None)

    @applies(ReceiptFiled)
    def on_filed(self, event: ReceiptFiled) -> None:
        self.state.receipts.add(event.order_id)
