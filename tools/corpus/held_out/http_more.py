"""HTTP answers and settings that the other themes do not have."""

from __future__ import annotations

import urllib.request
from typing import Any

import httpx
import requests
import urllib3
from tools.corpus.cases import both, corrupt, defect, ill, misconfigured, rejected, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import web
from tools.corpus.scenario import scenario

API = "carrier-api"


def _get(path: str, status: int, **answer: Any) -> None:
    address = web.url(f"/more{path}", status, **answer)
    httpx.get(address, timeout=30, trust_env=False).raise_for_status()


@scenario(misconfigured("the proxy on the way wants credentials"))
def proxy_login(order: OrderPlaced) -> None:
    _get(f"/407/{order.sku}", 407)


@scenario(rejected("the order changed since we read it: their rule"))
def precondition(order: OrderPlaced) -> None:
    _get(f"/412/{order.sku}", 412)


@scenario(both(API, "the record is locked by their night run", "the run is over"))
def locked(order: OrderPlaced) -> None:
    _get(f"/423/{order.sku}", 423)


@scenario(both(API, "their disk is full", "it has room again"))
def insufficient_storage(order: OrderPlaced) -> None:
    _get(f"/507/{order.sku}", 507)


@scenario(ill("they ask us to come later", API))
def too_early(order: OrderPlaced) -> None:
    _get(f"/425/{order.sku}", 425)


@scenario(both(API, "the origin does not answer their content network", "it does again"))
def origin_slow(order: OrderPlaced) -> None:
    address = web.url(f"/more/524/{order.sku}", 524)
    requests.get(address, timeout=30).raise_for_status()


@scenario(misconfigured("they want a newer TLS than our settings speak"))
def upgrade(order: OrderPlaced) -> None:
    _get(f"/426/{order.sku}", 426)


@scenario(corrupt("what one event says makes an address that is too long"))
def address_too_long(order: OrderPlaced) -> None:
    _get(f"/414/{order.sku}", 414)


@scenario(rejected("the offer has ended for good; others go through"))
def gone(order: OrderPlaced) -> None:
    urllib.request.urlopen(web.url(f"/more/410/{order.sku}", 410), timeout=30)


@scenario(misconfigured("the account was closed: nobody paid"))
def unpaid(order: OrderPlaced) -> None:
    _get(f"/402/{order.sku}", 402)


@scenario(misconfigured("the port in our settings is no number"))
def no_port(order: OrderPlaced) -> None:
    httpx.get(f"http://carrier.internal:port/{order.sku}", trust_env=False)


@scenario(misconfigured("the host in our settings is empty"))
def no_host(order: OrderPlaced) -> None:
    requests.get(f"http:///{order.sku}", timeout=30)


@scenario(misconfigured("the proxy in our settings has a scheme that is none"))
def proxy_scheme(order: OrderPlaced) -> None:
    httpx.get(web.url(f"/more/{order.sku}"), proxy="ftp://proxy.internal:21", trust_env=False)


@scenario(misconfigured("the scheme in our settings is misspelt"))
def wrong_scheme(order: OrderPlaced) -> None:
    urllib.request.urlopen(f"htps://carrier.example/{order.sku}")


@scenario(misconfigured("the certificate is another host's"))
def other_host(order: OrderPlaced) -> None:
    address, trusted = web.misnamed(f"/{order.sku}")
    urllib3.PoolManager(ca_certs=trusted).request("GET", address, retries=False)


@scenario(misconfigured("their certificate ran out a year ago"))
def expired(order: OrderPlaced) -> None:
    address, trusted = web.expired(f"/{order.sku}")
    import ssl

    context = ssl.create_default_context(cafile=trusted)
    urllib.request.urlopen(address, context=context, timeout=30)


@scenario(both(API, "the body ends before its length", "it was mended"))
def cut_off(order: OrderPlaced) -> None:
    web.url(f"/more/cut/{order.sku}", body=b"{", missing=99)
    address = f"http://{web.LOOPBACK}:{web.plain_port()}/more/cut/{order.sku}"
    urllib.request.urlopen(address, timeout=30).read()


@scenario(ill("all connections of our pool wait for them", API))
def pool_empty(order: OrderPlaced) -> None:
    pool = urllib3.HTTPConnectionPool(web.LOOPBACK, web.plain_port(), maxsize=1, block=True)
    first = pool.urlopen("GET", "/", preload_content=False)
    try:
        pool.urlopen("GET", "/", pool_timeout=0.05, retries=False)
    finally:
        first.close()


@scenario(well("it was slow for a minute", API))
def slow_urllib3(order: OrderPlaced) -> None:
    address = web.url(f"/more/slow/{order.sku}", pause=1.0)
    urllib3.PoolManager(timeout=0.1).request("GET", address, retries=1)


@scenario(defect("it reads an answer that it closed"))
def closed_stream(order: OrderPlaced) -> Any:
    with httpx.Client(trust_env=False) as client:
        with client.stream("GET", web.url(f"/more/stream/{order.sku}")) as answer:
            pass
        return answer.read()


@scenario(defect("it uses a client that it closed"))
def closed_client(order: OrderPlaced) -> Any:
    client = httpx.Client(trust_env=False)
    client.close()
    return client.get(web.url(f"/more/{order.sku}"))


@scenario(both(API, "a page comes instead of JSON while they are down", "they are back"))
def page(order: OrderPlaced) -> Any:
    address = web.url(f"/more/page/{order.sku}", body=b"<html>We will be right back")
    return httpx.get(address, timeout=30, trust_env=False).json()
