"""Redis through redis-py."""

from __future__ import annotations

from tools.corpus.cases import both, defect, ill, misconfigured, unseen, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import redis_places as places
from tools.corpus.places import web
from tools.corpus.scenario import scenario

CACHE = "cache"


@scenario(both(CACHE, "the server is down", "it was restarted"))
def down(order: OrderPlaced) -> None:
    places.client(f"redis://{web.LOOPBACK}:{web.closed_port()}").get(order.sku)


@scenario(both(CACHE, "it does not answer: it is swapping", "it answers again"))
def timeout(order: OrderPlaced) -> None:
    server = places.server()
    client = places.client(server.url_for(user="shop", password="right"), socket_timeout=0.1)
    client.ping()
    server.pause()
    try:
        client.get(order.sku)
    finally:
        server.resume()


@scenario(misconfigured("the password in our settings is wrong"))
def wrong_password(order: OrderPlaced) -> None:
    places.client(places.server().url_for(user="shop", password="wrong")).get(order.sku)


@scenario(misconfigured("the server wants a password, and our settings have none"))
def no_password(order: OrderPlaced) -> None:
    places.client(places.saying(b"-NOAUTH Authentication required.\r\n")).get(order.sku)


@scenario(misconfigured("our user may read and not write"))
def no_permission(order: OrderPlaced) -> None:
    places.client(places.server().url_for(user="reader", password="right")).set(order.sku, 1)


@scenario(
    both(CACHE, "it is full and drops nothing", "a day's keys ran out"),
    unseen("it is full, and no breaker says since when"),
)
def full(order: OrderPlaced) -> None:
    places.client(places.locked().url).set(order.sku, b"x" * 2_000_000)


@scenario(both(CACHE, "it reads its data from disk after a start", "it has read it"))
def loading(order: OrderPlaced) -> None:
    said = b"-LOADING Redis is loading the dataset in memory\r\n"
    places.client(places.saying(said)).get(order.sku)


@scenario(well("the write met a replica during a failover", CACHE, group_events=9))
def read_only(order: OrderPlaced) -> None:
    said = b"-READONLY You can't write against a read only replica.\r\n"
    places.client(places.saying(said)).set(order.sku, 1)


@scenario(ill("it cannot write its snapshot: the disk is full", CACHE))
def no_snapshot(order: OrderPlaced) -> None:
    said = b"-MISCONF Redis is unable to persist its RDB snapshot to disk.\r\n"
    places.client(places.saying(said)).set(order.sku, 1)


@scenario(defect("two parts of the code keep different things under one key"))
def wrong_type(order: OrderPlaced) -> None:
    client = places.client(places.server().url)
    client.set("seen", 1)
    client.lpush("seen", order.sku)


@scenario(defect("None is given where Redis takes text or numbers"))
def none_given(_order: OrderPlaced) -> None:
    places.client(places.server().url).set("last", None)


@scenario(defect("the script has a typing error"))
def broken_script(order: OrderPlaced) -> None:
    places.client(places.server().url).eval("return redis.cal('get', KEYS[1])", 1, order.sku)


@scenario(misconfigured("the server lacks the module whose command we use"))
def unknown_command(order: OrderPlaced) -> None:
    places.client(places.server().url).execute_command("JSON.GET", order.sku)


@scenario(misconfigured("the host name in our settings is misspelt"))
def unknown_host(order: OrderPlaced) -> None:
    places.client("redis://cache.internal.invalid:6379/0").get(order.sku)
