"""Rules of a domain, in the ways that applications and others write them."""

from __future__ import annotations

from typing import Any

import requests
from tools.corpus.cases import defect, rejected
from tools.corpus.events import OrderPlaced
from tools.corpus.places import grpc_place, web
from tools.corpus.scenario import scenario

from angzarr import GiveUp


class DomainError(Exception):
    __module__ = "shop.domain"


class CreditExceeded(DomainError):
    __module__ = "shop.domain.credit"

    def __init__(self, limit: int) -> None:
        super().__init__(f"the credit of {limit} is used up")


@scenario(rejected("the customer's credit is used up"))
def credit(_order: OrderPlaced) -> None:
    raise CreditExceeded(500)


@scenario(rejected("the handler refuses, and says from what"))
def refused_from(order: OrderPlaced) -> None:
    try:
        {"DE": 1}[order.sku]
    except KeyError as error:
        raise GiveUp(f"{order.sku} is sold in no country") from error


@scenario(rejected("the other service has a rule: no delivery on Sundays"))
def grpc_rule(_order: OrderPlaced) -> None:
    grpc_place.call("BSunday", "FAILED_PRECONDITION", "no delivery on Sundays")


@scenario(rejected("the other service has that order already"))
def grpc_exists(_order: OrderPlaced) -> None:
    grpc_place.call("BExists", "ALREADY_EXISTS", "order o-4711 exists")


@scenario(rejected("their rule says no, with a problem document"))
def problem(order: OrderPlaced) -> None:
    body = b'{"type": "https://shop.example/out-of-stock", "title": "Out of stock"}'
    kind = {"Content-Type": "application/problem+json"}
    address = web.url(f"/b/{order.sku}", 422, body, headers=kind)
    requests.post(address, timeout=30).raise_for_status()


@scenario(rejected("the reservation was made before"))
def conflict(order: OrderPlaced) -> None:
    requests.post(web.url(f"/b/409/{order.sku}", 409), timeout=30).raise_for_status()


@scenario(defect("since the release every order is said to be closed"))
def all_closed(order: OrderPlaced) -> Any:
    raise DomainError(f"{order.order_id} is closed")
