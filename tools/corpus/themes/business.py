"""A rule of the business says no. Nothing is broken."""

from __future__ import annotations

import json

from tools.corpus.cases import defect, recent, rejected
from tools.corpus.events import OrderPlaced
from tools.corpus.scenario import ORDER, scenario

from angzarr import GiveUp
from angzarr.errors import CommandRejectedError
from angzarr.resilience.category import Category
from angzarr.resilience.taxonomy import Rule


class OutOfStock(Exception):
    """A rule of the shop; nobody told the taxonomy."""

    __module__ = "shop.business"


class CreditLimitExceeded(Exception):
    """A rule of the shop that the taxonomy was told of."""

    __module__ = "shop.business"


@scenario(
    rejected("the handler gives up: the order was cancelled"),
    rejected("a campaign's orders are refused by hundreds; it is a rule all the same",
             group_events=640, handler_recent=recent(20, 200)),
)  # fmt: skip
def gives_up(order: OrderPlaced) -> None:
    raise GiveUp(f"order {order.order_id} was cancelled")


@scenario(rejected("it gives up, and says which error it understood as a refusal"))
def gives_up_because(order: OrderPlaced) -> None:
    try:
        json.loads(order.sku)
    except ValueError as error:
        raise GiveUp("the customer's note is not for us") from error


@scenario(rejected("the aggregate rejects the command"))
def command_rejected(order: OrderPlaced) -> None:
    raise CommandRejectedError(f"order {order.order_id} is closed")


@scenario(
    rejected("a rule of the shop, raised as an exception of its own"),
    defect("the stock table is empty since the last release: every order is out of stock",
           group_events=2100),
)  # fmt: skip
def out_of_stock(order: OrderPlaced) -> None:
    raise OutOfStock(f"{order.sku} is sold out")


@scenario(
    rejected("a rule of the shop, and the app's taxonomy knows it"),
    rules=(Rule(matches=CreditLimitExceeded, category=Category.CLIENT, code="CREDIT_LIMIT"),),
)
def credit_limit(order: OrderPlaced) -> None:
    raise CreditLimitExceeded(f"customer {order.customer_id} has no credit left")


@scenario(rejected("the total is negative, which the rules forbid"), event={**ORDER, "total": -3})
def negative_total(order: OrderPlaced) -> None:
    if order.total < 0:
        raise GiveUp("a total must not be negative")
