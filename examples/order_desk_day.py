"""A day at the order desk: what is asked for, and whether goods, points and orders add up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from order_desk import POINTS, Care, PlaceOrder, app
from order_parts import CloseAccount, Customer, Deliver, OpenAccount, Stock
from reckoning import Ask, Reckoning, Told, roots_of, told

ARTICLES, CUSTOMERS, LEAVING = 6, 16, 6  # so many customers may go
MAILBOX = 3
#: The command by whose rejection the day is told.
STORY = "ReserveStock"
OPENED = 1  # where a customer's book is once it is opened


def opening(desk: str) -> list[Ask]:
    """Return what is done before the doors open; *desk* begins all names."""
    shelves = [
        Ask(Deliver(quantity=15 + 10 * number), "stock", f"{desk}-a{number}")
        for number in range(ARTICLES)
    ]
    customers = [
        Ask(OpenAccount(mailbox=MAILBOX), "customer", f"{desk}-c{number:02}")
        for number in range(CUSTOMERS)
    ]
    return [*shelves, *customers]


def wishes(desk: str, count: int, seed: int) -> Iterator[Ask]:
    """Yield *count* wishes, the same ones for the same *seed*."""
    dice = random.Random(f"day {seed}")
    for number in range(count):
        kind = dice.choices((_order, _delivery, _farewell), (12, 2, 2))[0]
        yield kind(f"{desk}-o{number:05}", desk, dice)


def _order(order_id: str, desk: str, dice: random.Random) -> Ask:
    articles = dice.sample(range(ARTICLES), dice.choice((1, 2, 2, 3)))
    wish = PlaceOrder(
        customer_id=f"{desk}-c{dice.randrange(CUSTOMERS):02}",
        lines={f"{desk}-a{article}": dice.randint(1, 3) for article in articles},
    )
    return Ask(wish, "order", order_id)


def _delivery(_order_id: str, desk: str, dice: random.Random) -> Ask:
    """Let somebody deliver who looked at the shelf long ago: COMMUTATIVE, he is served."""
    wish = Deliver(quantity=dice.randint(1, 9))
    return Ask(wish, "stock", f"{desk}-a{dice.randrange(ARTICLES)}", expected=OPENED)


def _farewell(_order_id: str, desk: str, dice: random.Random) -> Ask:
    """Let a customer go; one who saw no points is not let go if there are some now: STRICT."""
    looked = dice.random() < 1 / 2
    customer = f"{desk}-c{dice.randrange(LEAVING):02}"
    expected = OPENED if looked else None
    return Ask(CloseAccount(), "customer", customer, expected, may_be_refused=looked)


def goods(shelves: Sequence[Stock]) -> dict[str, int]:
    """Return what there is of each article, on hand, reserved or shipped: all that ever came."""
    return {
        shelf.address.root: shelf.state.on_hand
        + sum(shelf.state.reserved.values())
        + shelf.state.shipped
        for shelf in shelves
    }


def reckon(asks: Sequence[Ask]) -> Reckoning:
    """Return what became of *asks*, which include those of the opening."""
    found = Reckoning()
    orders = {ask.root: ask.command for ask in asks if isinstance(ask.command, PlaceOrder)}
    events = [*told(app, "order", orders), *told(app, "fulfilment", orders)]
    confirmed = {root: orders[root] for root in _orders(found, events, list(orders))}
    _goods(found, asks, confirmed)
    _points(found, roots_of(asks, "customer"), confirmed)
    _receipts(found, confirmed)
    return found


def _orders(found: Reckoning, events: list[Told], orders: Sequence[str]) -> list[str]:
    """Let each order and its process have one end; return those that were confirmed."""
    count = Counter((event.type, event.root) for event in events)
    reasons = {
        event.root: event.data["reason"] for event in events if event.type == "OrderCancelled"
    }
    for root in orders:
        found.one_end(
            f"order {root}",
            ["order confirmed"] * count["OrderConfirmed", root]
            + [f"order cancelled: {reasons.get(root)}"] * count["OrderCancelled", root],
        )
        for end, of_process in (
            ("OrderConfirmed", "FulfilmentCompleted"),
            ("OrderCancelled", "FulfilmentFailed"),
        ):
            found.same(f"{of_process} of {root}", count[of_process, root], count[end, root])
    return [root for root in orders if count["OrderConfirmed", root]]


def _goods(found: Reckoning, asks: Sequence[Ask], confirmed: dict[str, PlaceOrder]) -> None:
    """Let all that came be on hand or shipped, and what was shipped be ordered."""
    delivered: Counter[str] = Counter()
    for ask in asks:
        if isinstance(ask.command, Deliver):
            delivered[ask.root] += ask.command.quantity
    shelves = [app.load(Stock, root) for root in delivered]
    found.same("goods", goods(shelves), dict(delivered))
    for shelf in shelves:
        root = shelf.address.root
        found.same(f"reserved of {root}", shelf.state.reserved, {})
        ordered = sum(order.lines.get(root, 0) for order in confirmed.values())
        found.same(f"shipped of {root}", shelf.state.shipped, ordered)


def _points(found: Reckoning, customers: Sequence[str], confirmed: dict[str, PlaceOrder]) -> None:
    """Let customers have points for what was confirmed, and for nothing else."""
    for root in customers:
        earned = {
            order_id: sum(order.lines.values())
            for order_id, order in confirmed.items()
            if order.customer_id == root
        }
        found.same(f"{POINTS} of {root}", app.load(Customer, root).state.points, earned)


def _receipts(found: Reckoning, confirmed: dict[str, PlaceOrder]) -> None:
    """Let each confirmed order have a receipt, in the customer's mailbox or on paper."""
    for order_id, order in confirmed.items():
        filed = order_id in app.load(Customer, order.customer_id).state.receipts
        noted = order_id in app.load(Care, order.customer_id).state.notes
        found.one_end(
            f"receipt of {order_id}",
            ["receipt in the mailbox"] * filed + ["receipt on paper"] * noted,
        )
