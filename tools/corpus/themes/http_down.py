"""HTTP dependencies that are down, slow or broken, through each of the three clients."""

from __future__ import annotations

import json
import urllib.request

import httpx
import requests
from requests.adapters import HTTPAdapter
from tools.corpus.cases import both, breaker, ill, recent, unseen, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import web
from tools.corpus.scenario import scenario
from urllib3.util.retry import Retry

STOCK = "stock-api"


@scenario(
    both(STOCK, "nobody listens on the port: the service is down", "it was down; it answers again"),
    ill(
        "replayed three times into a service that is still down",
        STOCK,
        replays=3,
    ),
    ill("somebody isolated it by hand", STOCK, breakers=breaker(STOCK, "isolated", 0.0)),
    ill("it is being probed: nobody knows yet", STOCK, breakers=breaker(STOCK, "half_open", 0.4)),
    ill("its breaker could not be asked", STOCK, breakers=breaker(STOCK, "unknown", 0.0)),
    ill(
        "its breaker is not open yet, and most calls fail",
        STOCK,
        breakers=breaker(STOCK, "closed", 0.45),
        handler_recent=recent(20, 17),
    ),
)
def refused(order: OrderPlaced) -> None:
    requests.post(web.refused("/reservations"), json={"sku": order.sku}, timeout=30)


@scenario(
    both(STOCK, "the same through another client", "the service was restarted"),
    well(
        "it is well again, but for a few calls in a hundred",
        STOCK,
        breakers=breaker(STOCK, "closed", 0.03),
        handler_recent=recent(190, 2),
    ),
    ill(
        "the stock is well, and prices, which the handler needs too, are down",
        STOCK,
        breakers={**breaker(STOCK, "closed", 0.0), **breaker("prices", "open", 0.97)},
    ),
    well(
        "both that the handler needs are well",
        STOCK,
        breakers={**breaker(STOCK, "closed", 0.0), **breaker("prices", "closed", 0.01)},
    ),
    ill(
        "the breaker has closed, and not one event went through since",
        STOCK,
        breakers=breaker(STOCK, "closed", 0.0),
        handler_recent=recent(0, 21),
    ),
)
def refused_httpx(order: OrderPlaced) -> None:
    httpx.post(web.refused("/reservations"), json={"sku": order.sku}, timeout=30, trust_env=False)


@scenario(
    unseen("the service is down, and this handler has no breaker to ask"),
    well("it was down; the breaker closed after a probe", STOCK, group_events=2),
)
def refused_urllib(order: OrderPlaced) -> None:
    urllib.request.urlopen(web.refused(f"/stock/{order.sku}"), timeout=30)


@scenario(both(STOCK, "its backlog is full: it takes nobody any more", "the load is over"))
def connect_timeout(order: OrderPlaced) -> None:
    requests.get(web.full(f"/stock/{order.sku}"), timeout=0.3)


@scenario(ill("it answers too late", STOCK), unseen("too slow for us, and nobody watches it"))
def read_timeout(order: OrderPlaced) -> None:
    requests.get(web.url(f"/slow/{order.sku}", pause=1.5), timeout=0.2)


@scenario(both(STOCK, "it answers too late", "it was slow for a while"))
def read_timeout_httpx(order: OrderPlaced) -> None:
    httpx.get(web.url(f"/slow/{order.sku}", pause=1.5), timeout=0.2, trust_env=False)


@scenario(ill("it answers too late", STOCK))
def read_timeout_urllib(order: OrderPlaced) -> None:
    urllib.request.urlopen(web.url(f"/slow/{order.sku}", pause=1.5), timeout=0.2)


@scenario(both(STOCK, "it hangs up without a word", "it was being deployed"))
def hung_up(order: OrderPlaced) -> None:
    requests.get(web.url(f"/gone/{order.sku}", hangs_up=True), timeout=30)


@scenario(ill("the connection broke in the middle of the answer", STOCK))
def truncated(order: OrderPlaced) -> None:
    requests.get(web.url(f"/half/{order.sku}", body=b'{"free": [', missing=400), timeout=30)


@scenario(well("the connection broke in the middle of the answer, once", STOCK, group_events=1))
def truncated_httpx(order: OrderPlaced) -> None:
    address = web.url(f"/half/{order.sku}", body=b'{"free": [', missing=400)
    httpx.get(address, timeout=30, trust_env=False)


@scenario(
    both(STOCK, "overloaded: it says so with 503", "it was overloaded"),
    unseen("it said 503, and nobody watches it"),
)
def unavailable(order: OrderPlaced) -> None:
    answer = requests.get(web.url(f"/stock/{order.sku}", 503), timeout=30)
    answer.raise_for_status()


@scenario(both(STOCK, "the proxy finds no living server behind it", "the servers are back"))
def bad_gateway(order: OrderPlaced) -> None:
    httpx.get(web.url(f"/stock/{order.sku}", 502), timeout=30, trust_env=False).raise_for_status()


@scenario(ill("the proxy waited in vain", STOCK), well("it waited in vain, once", STOCK))
def gateway_timeout(order: OrderPlaced) -> None:
    urllib.request.urlopen(web.url(f"/stock/{order.sku}", 504), timeout=30)


@scenario(both(STOCK, "the other side breaks on every call", "their fix is out"))
def server_error(order: OrderPlaced) -> None:
    requests.post(
        web.url("/reservations", 500), json={"sku": order.sku}, timeout=30
    ).raise_for_status()


@scenario(both("geocoder", "we ask more often than we may", "the window is over"))
def rate_limited(_order: OrderPlaced) -> None:
    address = web.url("/geocode", 429, headers={"Retry-After": "30"})
    httpx.get(address, timeout=30, trust_env=False).raise_for_status()


@scenario(ill("urllib3 tried three times and had a 503 each time", STOCK))
def retries_used_up(order: OrderPlaced) -> None:
    session = requests.Session()
    again = Retry(total=2, status_forcelist=[503], backoff_factor=0)
    session.mount("http://", HTTPAdapter(max_retries=again))
    session.get(web.url(f"/stock/{order.sku}", 503), timeout=30)


MAINTENANCE = b"<html><body><h1>Down for maintenance</h1></body></html>"


@scenario(both(STOCK, "its maintenance page says 200 and is no JSON", "the maintenance is over"))
def maintenance_page(order: OrderPlaced) -> None:
    answer = requests.get(web.url(f"/stock/{order.sku}", body=MAINTENANCE), timeout=30)
    answer.raise_for_status()
    answer.json()


@scenario(
    ill("the same page: what is no JSON is their answer, not our event", STOCK),
    well("the same page; the maintenance is over", STOCK),
)
def maintenance_page_urllib(order: OrderPlaced) -> None:
    with urllib.request.urlopen(
        web.url(f"/stock/{order.sku}", body=MAINTENANCE), timeout=30
    ) as answer:
        json.load(answer)
