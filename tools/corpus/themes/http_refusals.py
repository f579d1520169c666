"""HTTP dependencies that are well and say no: to a rule, a setting, or damaged data."""

from __future__ import annotations

import urllib.request

import httpx
import requests
from tools.corpus.cases import breaker, corrupt, misconfigured, recent, rejected
from tools.corpus.events import OrderPlaced
from tools.corpus.places import web
from tools.corpus.scenario import scenario

CLOSED = {"breakers": breaker("crm", "closed", 0.0)}


@scenario(
    misconfigured("the API key in our settings is not theirs", **CLOSED),
    misconfigured(
        "their key ran out last night: every call since",
        group_events=900,
        handler_recent=recent(0, 300),
    ),
)
def unauthorized(order: OrderPlaced) -> None:
    address = web.url(f"/crm/customers/{order.customer_id}", 401)
    requests.get(address, headers={"Authorization": "Bearer old"}, timeout=30).raise_for_status()


@scenario(misconfigured("our account there lacks the right to write orders", **CLOSED))
def forbidden(order: OrderPlaced) -> None:
    address = web.url("/crm/orders", 403)
    httpx.post(address, json={"id": order.order_id}, timeout=30, trust_env=False).raise_for_status()


@scenario(misconfigured("the company's proxy wants credentials that are not set"))
def proxy_wants_login(order: OrderPlaced) -> None:
    urllib.request.urlopen(web.url(f"/via-proxy/{order.sku}", 407), timeout=30)


@scenario(
    rejected("that customer was deleted there; others are found", **CLOSED),
)
def customer_not_found(order: OrderPlaced) -> None:
    address = web.url(f"/crm/customers/{order.customer_id}", 404)
    requests.get(address, timeout=30).raise_for_status()


@scenario(
    misconfigured("the base URL names a path that does not exist: nothing is ever found", **CLOSED)
)
def path_not_found(order: OrderPlaced) -> None:
    address = web.url(f"/crn/v1/customers/{order.customer_id}", 404)
    requests.get(address, timeout=30).raise_for_status()


@scenario(rejected("one customer is unknown to them; the others go through"))
def customer_not_found_httpx(order: OrderPlaced) -> None:
    address = web.url(f"/loyalty/{order.customer_id}", 404)
    httpx.get(address, timeout=30, trust_env=False).raise_for_status()


@scenario(misconfigured("the API version in our settings was switched off: 404 for all"))
def version_not_found(order: OrderPlaced) -> None:
    address = web.url(f"/v1/loyalty/{order.customer_id}", 404)
    urllib.request.urlopen(address, timeout=30)


@scenario(rejected("the order was shipped already: their rule", **CLOSED))
def already_shipped(order: OrderPlaced) -> None:
    address = web.url(f"/orders/{order.order_id}/cancel", 409)
    requests.post(address, timeout=30).raise_for_status()


@scenario(rejected("the offer has ended for good"))
def offer_gone(order: OrderPlaced) -> None:
    address = web.url(f"/offers/{order.sku}", 410)
    httpx.get(address, timeout=30, trust_env=False).raise_for_status()


@scenario(rejected("their rule: no more than two of these for one customer", **CLOSED))
def limit_exceeded(order: OrderPlaced) -> None:
    address = web.url("/reservations", 422, b'{"title": "at most two per customer"}')
    requests.post(address, json={"sku": order.sku, "n": order.total}, timeout=30).raise_for_status()


@scenario(rejected("the customer's card was declined", group_events=14))
def card_declined(order: OrderPlaced) -> None:
    address = web.url("/charges", 422, b'{"title": "card declined"}')
    httpx.post(address, json={"of": order.order_id}, timeout=30, trust_env=False).raise_for_status()


@scenario(misconfigured("our plan's quota is used up: somebody must pay or raise it", **CLOSED))
def quota_used_up(_order: OrderPlaced) -> None:
    requests.get(web.url("/geocode", 402), timeout=30).raise_for_status()


@scenario(
    corrupt("the event's sku has a line break, which they cannot read", **CLOSED),
    event={"order_id": "o-1", "customer_id": "c-1", "sku": "SKU\n7", "total": 3},
)
def malformed_request(order: OrderPlaced) -> None:
    address = web.url("/reservations", 400, b'{"title": "sku: control character"}')
    requests.post(address, json={"sku": order.sku}, timeout=30).raise_for_status()


@scenario(corrupt("the event has a negative total, which their schema excludes"))
def malformed_request_httpx(order: OrderPlaced) -> None:
    address = web.url("/invoices", 400, b'{"title": "total: must be positive"}')
    body = {"total": -order.total}
    httpx.post(address, json=body, timeout=30, trust_env=False).raise_for_status()


@scenario(misconfigured("http and https send each other round: their proxy is set up wrongly"))
def redirect_loop(order: OrderPlaced) -> None:
    path = f"/moved/{order.sku}"
    requests.get(web.url(path, 301, headers={"Location": path}), timeout=30)


@scenario(misconfigured("the method is one that this deployment of theirs does not have"))
def not_implemented(order: OrderPlaced) -> None:
    requests.put(web.url(f"/stock/{order.sku}", 501), timeout=30).raise_for_status()
