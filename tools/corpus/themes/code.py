"""Bugs of the handler itself: what happens to one event happens to all that come that way."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import requests
from tools.corpus.cases import NEXT_RELEASE, RELEASE, breaker, defect, other, rare_defect, recent
from tools.corpus.events import OrderPlaced
from tools.corpus.places import web
from tools.corpus.scenario import scenario

from angzarr.analysis.ledger.entry import FailureClass

FIXED = {"running_releases": (RELEASE, NEXT_RELEASE), "handler_recent": recent(77, 0)}
PRICES: dict[str, dict[str, Any]] = {"SKU-7": {"net": 1900}}


class Coupon:
    percent = 10


def coupon_of(_sku: str) -> Coupon | None:
    return None


@scenario(
    defect("the coupon is never checked for None"),
    defect("the same, after the release that mends it", **FIXED),
    rare_defect("few orders have no coupon; it is a bug all the same"),
    defect("two orders of three have one", group_events=500, handler_recent=recent(200, 90)),
    defect("an unrelated dependency is ill meanwhile", breakers=breaker("mail", "open", 0.9)),
)
def none_has_no_percent(order: OrderPlaced) -> int:
    return coupon_of(order.sku).percent


@scenario(defect("it asks for a key that the price table never had"))
def wrong_key(order: OrderPlaced) -> int:
    return PRICES[order.sku]["gross"]


@scenario(defect("a number is added to a text"), defect("mended meanwhile", **FIXED))
def number_and_text(order: OrderPlaced) -> str:
    return "order " + order.total


@scenario(rare_defect("an order of nothing has no average: nobody thought of it"), event={
    "order_id": "o-1", "customer_id": "c-1", "sku": "SKU-7", "total": 0,
})  # fmt: skip
def average_of_none(order: OrderPlaced) -> float:
    return 1900 / order.total


@scenario(rare_defect("it takes the third part of a SKU that may have two"))
def third_part(order: OrderPlaced) -> str:
    return order.sku.split("-")[2]


def _category(depth: int) -> int:
    return _category(depth + 1)


@scenario(defect("its recursion has no end"))
def endless(_order: OrderPlaced) -> int:
    return _category(0)


@scenario(defect("an assertion of ours does not hold"))
def assertion(order: OrderPlaced) -> None:
    lines: list[str] = []
    assert lines, f"order {order.order_id} has no lines"


@scenario(defect("a variable is set in one branch only"))
def unbound(order: OrderPlaced) -> int:
    if order.total < 0:
        rate = 7
    return order.total * rate


@scenario(defect("a name that was renamed everywhere but here"))
def unknown_name(order: OrderPlaced) -> int:
    return order.total * VAT_RATE  # noqa: F821 - the bug


@scenario(defect("a part of it was never written"))
def not_written(_order: OrderPlaced) -> None:
    raise NotImplementedError("refunds in instalments")


@scenario(rare_defect("it writes labels as ASCII, and customers have umlauts"), event={
    "order_id": "o-1", "customer_id": "Jürgen", "sku": "SKU-7", "total": 3,
})  # fmt: skip
def ascii_label(order: OrderPlaced) -> bytes:
    return f"To: {order.customer_id}".encode("ascii")


@scenario(defect("a date is given to a JSON writer that knows none"))
def date_as_json(order: OrderPlaced) -> str:
    return json.dumps({"order": order.order_id, "at": datetime.now(UTC)})


@scenario(defect("a time with a zone is compared with one without"))
def two_kinds_of_time(_order: OrderPlaced) -> bool:
    return datetime.now(UTC) > datetime(2026, 1, 1)  # noqa: DTZ001 - the bug


@scenario(defect("a table is changed while it is gone through"))
def changed_meanwhile(_order: OrderPlaced) -> None:
    seen = {"a": 1, "b": 2}
    for name in seen:
        seen[f"{name}!"] = 1


@scenario(rare_defect("it unpacks two parts, and this SKU has three"), event={
    "order_id": "o-1", "customer_id": "c-1", "sku": "SKU-7-XL", "total": 3,
})  # fmt: skip
def unpacked(order: OrderPlaced) -> str:
    kind, number = order.sku.split("-")
    return kind + number


@scenario(defect("a decimal is multiplied by a float"))
def decimal_and_float(order: OrderPlaced) -> Decimal:
    return Decimal(order.total) * 0.19


@scenario(defect("an argument that the function lost in the last release"), defect(
    "the release was taken back", running_releases=("2026.04.9",), handler_recent=recent(61, 0)
))  # fmt: skip
def lost_argument(order: OrderPlaced) -> Coupon | None:
    return coupon_of(order.sku, strict=True)


@scenario(defect("it starts an event loop inside one"))
async def loop_in_loop(_order: OrderPlaced) -> None:
    async def step() -> None: ...

    waiting = step()
    try:
        asyncio.run(waiting)
    finally:
        waiting.close()


@scenario(defect("it reads a line break into a header: the client refuses it, for every order"))
def broken_header(order: OrderPlaced) -> None:
    address = web.url(f"/stock/{order.sku}")
    requests.get(address, headers={"X-Order": f"{order.order_id}\n"}, timeout=30)


@scenario(defect("it writes None as a header's value"))
def none_header(order: OrderPlaced) -> None:
    httpx.get(web.url(f"/stock/{order.sku}"), headers={"X-Coupon": None}, timeout=30)


@scenario(defect("the answer has another form than the code believes: a list, not a mapping"))
def answer_of_another_form(order: OrderPlaced) -> int:
    answer = requests.get(web.url(f"/stock/{order.sku}", body=b"[3]"), timeout=30).json()
    return answer["free"]


@scenario(
    defect("someone catches everything and tells nothing; it happens to every order"),
    other(
        FailureClass.UNKNOWN,
        "it says nothing, it happened to one order of many, and never since",
        group_events=1,
    ),
)
def something_went_wrong(_order: OrderPlaced) -> None:
    raise Exception("something went wrong")


@scenario(
    other(FailureClass.UNKNOWN, "a runtime error without a word about its cause, once"),
)
def runtime_error(_order: OrderPlaced) -> None:
    raise RuntimeError("unexpected state 3")


@scenario(other(FailureClass.UNKNOWN, "an extension that says an error occurred, once"))
def system_error(_order: OrderPlaced) -> None:
    raise SystemError("error return without exception set")
