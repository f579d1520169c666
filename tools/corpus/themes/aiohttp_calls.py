"""HTTP through aiohttp, which keeps its status and its errors elsewhere than the others do."""

from __future__ import annotations

from typing import Any

import aiohttp
from tools.corpus.cases import both, corrupt, ill, misconfigured, rejected, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import talk, web
from tools.corpus.scenario import scenario

API = "stock-api"


async def _get(address: str, seconds: float = 2, **options: Any) -> Any:
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with (
        aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session,
        session.get(address, **options) as answer,
    ):
        return await answer.json()


@scenario(both(API, "nobody listens there", "it was restarted"))
async def refused(order: OrderPlaced) -> None:
    await _get(web.refused(f"/a/{order.sku}"))


@scenario(ill("it answers too late", API))
async def too_slow(order: OrderPlaced) -> None:
    await _get(web.url(f"/a/slow/{order.sku}", pause=1.0), seconds=0.1)


@scenario(both(API, "it hangs up without an answer", "it was mended"))
async def hung_up(order: OrderPlaced) -> None:
    await _get(web.url(f"/a/hang/{order.sku}", hangs_up=True))


@scenario(ill("the line is cut in the middle of an answer", API))
async def cut_off(order: OrderPlaced) -> None:
    await _get(web.url(f"/a/half/{order.sku}", body=b"{", missing=99))


@scenario(both(API, "it is being deployed", "it is deployed"))
async def unavailable(order: OrderPlaced) -> None:
    await _get(web.url(f"/a/503/{order.sku}", 503))


@scenario(well("we asked too often", API))
async def rate_limited(order: OrderPlaced) -> None:
    await _get(web.url(f"/a/429/{order.sku}", 429, headers={"Retry-After": "7"}))


@scenario(misconfigured("the token in our settings has run out"))
async def unauthorized(order: OrderPlaced) -> None:
    await _get(web.url(f"/a/401/{order.sku}", 401))


@scenario(rejected("one customer is unknown to them; the others go through"))
async def not_found(order: OrderPlaced) -> None:
    await _get(web.url(f"/a/404/{order.customer_id}", 404))


@scenario(corrupt("what the event says is no request that they understand"))
async def bad_request(order: OrderPlaced) -> None:
    await _get(web.url(f"/a/400/{order.sku}", 400))


@scenario(rejected("the order fits their schema, and a rule of theirs says no"))
async def unprocessable(order: OrderPlaced) -> None:
    await _get(web.url(f"/a/422/{order.sku}", 422))


@scenario(
    ill("a maintenance page comes instead of JSON", API),
    well("the same, and they are back", API),
)
async def no_json(order: OrderPlaced) -> None:
    page = {"Content-Type": "text/html"}
    await _get(web.url(f"/a/html/{order.sku}", body=b"<p>We are sorry", headers=page))


@scenario(misconfigured("the certificate's authority is unknown here"))
async def unknown_authority(order: OrderPlaced) -> None:
    await _get(web.secure(f"/a/{order.sku}"))


@scenario(misconfigured("the host name in our settings is misspelt"))
async def unknown_host(order: OrderPlaced) -> None:
    await _get(f"http://stock.internal.invalid/{order.sku}")


@scenario(misconfigured("the address in our settings has no scheme"))
async def no_address(order: OrderPlaced) -> None:
    await _get(f"stock.internal/{order.sku}")


@scenario(misconfigured("the peer's port speaks no HTTP: it is the mail server's"))
async def no_http(_order: OrderPlaced) -> None:
    await _get(f"http://{web.LOOPBACK}:{talk.saying('220 mail.example ESMTP')}/")
