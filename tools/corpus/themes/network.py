"""Networks and services, by clients and in ways that the other themes do not have."""

from __future__ import annotations

import asyncio
import ftplib
import http.client
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import grpc
import httpx
import kombu
import redis
import requests
import urllib3
from tools.corpus.cases import (
    both,
    breaker,
    corrupt,
    defect,
    ill,
    misconfigured,
    recent,
    rejected,
    unseen,
    well,
)
from tools.corpus.events import OrderPlaced
from tools.corpus.places import redis_places, talk, web
from tools.corpus.scenario import scenario

API = "partner-api"


@scenario(both(API, "the partner is down", "the partner is back"))
async def refused_asyncio(_order: OrderPlaced) -> None:
    await asyncio.open_connection(web.LOOPBACK, web.closed_port())


@scenario(both(API, "the partner takes its time", "it was slow for an hour"))
async def too_slow_asyncio(order: OrderPlaced) -> None:
    async with asyncio.timeout(0.1), httpx.AsyncClient(trust_env=False) as client:
        await client.get(web.url(f"/slow/{order.sku}", pause=1.5))


@scenario(ill("the partner is down", API))
async def refused_httpx_async(order: OrderPlaced) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(web.refused(f"/offers/{order.sku}"))


@scenario(
    both(API, "our pool's connections all wait for the partner", "the partner is quick again")
)
async def pool_exhausted(order: OrderPlaced) -> None:
    limits = httpx.Limits(max_connections=1)
    timeout = httpx.Timeout(2, pool=0.1)
    address = web.url(f"/slow/{order.sku}", pause=0.6)
    async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=timeout) as client:
        first = asyncio.create_task(client.get(address))
        await asyncio.sleep(0.05)
        try:
            await client.get(address)
        finally:
            await first


@scenario(well("the partner was being deployed", API, handler_recent=recent(77, 1)))
def refused_urllib3(order: OrderPlaced) -> None:
    urllib3.PoolManager().request("GET", web.refused(f"/offers/{order.sku}"), retries=1)


@scenario(ill("the line is cut in the middle of an answer", API))
def cut_off_http_client(order: OrderPlaced) -> None:
    web.url(f"/half/{order.sku}", body=b"{", missing=99)
    connection = http.client.HTTPConnection(web.LOOPBACK, web.plain_port(), timeout=30)
    connection.request("GET", f"/half/{order.sku}")
    connection.getresponse().read()


@scenario(both(API, "a load balancer resets connections", "the load balancer was mended"))
def reset(_order: OrderPlaced) -> None:
    with socket.create_connection((web.LOOPBACK, talk.resetting()), timeout=30) as line:
        line.sendall(b"RESERVE\n")
        line.recv(99)
        line.recv(99)


@scenario(misconfigured("the peer's port speaks no HTTP: it is the mail server's"))
def no_http_there(_order: OrderPlaced) -> None:
    requests.get(f"http://{web.LOOPBACK}:{talk.saying('220 mail.example ESMTP')}/", timeout=30)


@scenario(ill("the proxy on the way is down", "proxy"))
def proxy_down(order: OrderPlaced) -> None:
    address = f"http://partner.example/{order.sku}"
    requests.get(address, proxies={"http": web.refused()}, timeout=30)


@scenario(
    both("cdn", "the partner's content network cannot reach the partner", "it reaches it again"),
)
def cdn_error(order: OrderPlaced) -> None:
    requests.get(web.url(f"/offers/{order.sku}", 522), timeout=30).raise_for_status()


@scenario(rejected("this customer's account is suspended; the others' calls pass", group_events=2))
def suspended(order: OrderPlaced) -> None:
    address = web.url(f"/accounts/{order.customer_id}/orders", 403)
    requests.post(address, timeout=30).raise_for_status()


@scenario(misconfigured("the method is not allowed at that address: the wrong path is set"))
def method_not_allowed(order: OrderPlaced) -> None:
    address = web.url("/orders", 405)
    httpx.put(address, json={"id": order.order_id}, timeout=30, trust_env=False).raise_for_status()


@scenario(corrupt("one order's picture is larger than the partner takes"))
def too_large(order: OrderPlaced) -> None:
    requests.post(web.url(f"/pictures/{order.sku}", 413), timeout=30).raise_for_status()


@scenario(defect("it sends a form where they want JSON"))
def unsupported_type(order: OrderPlaced) -> None:
    requests.post(
        web.url("/orders", 415), data={"id": order.order_id}, timeout=30
    ).raise_for_status()


@scenario(rejected("they may not deliver to this country, by law"))
def for_legal_reasons(order: OrderPlaced) -> None:
    requests.post(web.url(f"/exports/{order.sku}", 451), timeout=30).raise_for_status()


@scenario(ill("their queue is full: try again later", API))
def too_early(order: OrderPlaced) -> None:
    requests.post(web.url(f"/jobs/{order.sku}", 408), timeout=30).raise_for_status()


# -- files of partners --------------------------------------------------------------


@scenario(misconfigured("the partner's file server does not know our login"))
def ftp_login_refused(_order: OrderPlaced) -> None:
    port = talk.saying("220 ready", "331 password, please", "530 login incorrect", shown=2121)
    ftp = ftplib.FTP(timeout=30)
    try:
        ftp.connect(web.LOOPBACK, port)
        ftp.login("shop", "wrong")
    finally:
        ftp.close()


@scenario(well("the partner's file server had too many users", "partner-ftp"))
def ftp_too_many_users(_order: OrderPlaced) -> None:
    port = talk.saying("421 too many users, try later", shown=2121)
    ftp = ftplib.FTP(timeout=30)
    try:
        ftp.connect(web.LOOPBACK, port)
    finally:
        ftp.close()


@scenario(misconfigured("the certificate's authority is unknown here, to a bare socket, too"))
def unknown_authority_socket(_order: OrderPlaced) -> None:
    port = int(web.secure().rpartition(":")[2])
    with socket.create_connection((web.LOOPBACK, port), timeout=30) as line:
        ssl.create_default_context().wrap_socket(line, server_hostname="localhost")


# -- brokers and stores ----------------------------------------------------------------------


@scenario(ill("the broker of another department is down", "their-broker"))
def publish_elsewhere(order: OrderPlaced) -> None:
    where = f"redis://{web.LOOPBACK}:{web.closed_port()}/0"
    with kombu.Connection(where, connect_timeout=30) as connection:
        policy = {"max_retries": 1, "interval_start": 0}
        connection.Producer().publish({}, routing_key=order.sku, retry=True, retry_policy=policy)


@scenario(misconfigured("the number of the database in our settings is beyond the server's last"))
def no_such_redis_database(order: OrderPlaced) -> None:
    redis_places.client(redis_places.server().url_for(database=99)).get(order.sku)


@scenario(both("cache", "all its places for clients are taken", "there is room again"))
def too_many_redis_clients(order: OrderPlaced) -> None:
    said = b"-ERR max number of clients reached\r\n"
    redis_places.client(redis_places.saying(said)).get(order.sku)


@scenario(well("two workers wanted one lock, five times", "cache", group_events=2))
def lock_taken(order: OrderPlaced) -> None:
    client = redis_places.client(redis_places.server().url)
    name = f"stock:{order.sku}"
    with client.lock(name, timeout=5), client.lock(name, timeout=5, blocking_timeout=0.05):
        pass


@scenario(well("somebody changed the key first, five times", "cache", group_events=2))
def watched_key_changed(order: OrderPlaced) -> None:
    client: redis.Redis[Any] = redis_places.client(redis_places.server().url)
    with client.pipeline() as pipe:
        pipe.watch("stock")
        client.incr("stock")
        pipe.multi()
        pipe.set("stock", order.total)
        pipe.execute()


# -- gRPC by asyncio -------------------------------------------------------------------------


@scenario(both(API, "nobody listens there", "it was restarted"))
async def grpc_refused_asyncio(_order: OrderPlaced) -> None:
    async with grpc.aio.insecure_channel(f"{web.LOOPBACK}:{web.closed_port()}") as channel:
        await channel.unary_unary("/shop.Offers/Get")(b"", timeout=30)


@scenario(ill("it was not ready in time", API))
def grpc_never_ready(_order: OrderPlaced) -> None:
    with grpc.insecure_channel(f"{web.LOOPBACK}:{web.closed_port()}") as channel:
        grpc.channel_ready_future(channel).result(timeout=0.1)


@scenario(unseen("the computation in the pool did not end in time, on every host"))
def future_too_slow(_order: OrderPlaced) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asyncio.run, asyncio.sleep(0.3))
        try:
            waiting.result(timeout=0.05)
        except FutureTimeoutError as error:
            raise TimeoutError("the price was not computed in time") from error


@scenario(
    ill(
        "the breaker is open; the handler wraps the error in one of its own",
        API,
        breakers=breaker(API, "open", 0.8),
    ),
    well("the same, and it has closed", API),
)
def wrapped_by_us(order: OrderPlaced) -> None:
    try:
        requests.get(web.refused(f"/offers/{order.sku}"), timeout=30)
    except requests.ConnectionError as error:
        raise OffersUnavailable("no offers at the moment") from error


class OffersUnavailable(Exception):
    __module__ = "shop.network"
