"""Bugs of other kinds, and two that only look like bugs."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from tools.corpus.cases import corrupt, defect, rare_defect
from tools.corpus.events import OrderPlaced
from tools.corpus.scenario import ORDER, scenario


@scenario(rare_defect("a customer without an address, for which nobody wrote a branch"))
def none_has_no_street(order: OrderPlaced) -> str:
    customers: dict[str, Any] = {}
    return customers.get(order.customer_id).street


@scenario(defect("the new release calls the method with one argument more"))
def too_many_arguments(order: OrderPlaced) -> str:
    return order.sku.upper(1)


@scenario(defect("it changed the list while it walked over it"))
def lookup_in_list(order: OrderPlaced) -> str:
    return order.sku.split("-")[5]


@scenario(defect("a group of tasks failed, each of them by a bug"))
async def group_of_bugs(order: OrderPlaced) -> None:
    async def price() -> Any:
        return order.sku + 1

    async with asyncio.TaskGroup() as group:
        group.create_task(price())


@scenario(defect("the pattern repeats what may not be repeated"))
def bad_pattern(order: OrderPlaced) -> Any:
    return re.compile("*SKU").match(order.sku)


@scenario(defect("the code asks for a member that the enumeration never had"))
def no_member(_order: OrderPlaced) -> Any:
    import enum

    class Colour(enum.Enum):
        RED = "red"

    return Colour.BLUE


@scenario(
    corrupt("one event has a list where a mapping is due"), event={**ORDER, "sku": '["SKU-7"]'}
)
def list_for_mapping(order: OrderPlaced) -> Any:
    import json

    return json.loads(order.sku)["sku"]


@scenario(defect("a key of the code's own table is missing"))
def missing_in_table(order: OrderPlaced) -> Any:
    return {"DE": 19}[order.sku]
