"""Certificates and host names: what a person has to set right."""

from __future__ import annotations

import smtplib
import ssl
import urllib.request

import httpx
import requests
from tools.corpus.cases import breaker, ill, misconfigured
from tools.corpus.events import OrderPlaced
from tools.corpus.places import web
from tools.corpus.scenario import scenario

HOST = "stok.internal.invalid"
OPEN = {"breakers": breaker("stock-api", "open", 1.0)}


@scenario(misconfigured("the authority that signed it is not among the trusted ones", **OPEN))
def unknown_authority(order: OrderPlaced) -> None:
    requests.get(web.secure(f"/stock/{order.sku}"), timeout=30)


@scenario(misconfigured("the same through another client"))
def unknown_authority_httpx(order: OrderPlaced) -> None:
    httpx.get(web.secure(f"/stock/{order.sku}"), timeout=30, trust_env=False)


@scenario(
    misconfigured("their certificate ran out: a person must renew it", **OPEN),
)
def expired_certificate(order: OrderPlaced) -> None:
    address, trusted = web.expired(f"/stock/{order.sku}")
    requests.get(address, verify=trusted, timeout=30)


@scenario(misconfigured("the certificate is for another name than the one in our settings", **OPEN))
def misnamed_certificate(order: OrderPlaced) -> None:
    address, trusted = web.misnamed(f"/stock/{order.sku}")
    context = ssl.create_default_context(cafile=trusted)
    urllib.request.urlopen(address, timeout=30, context=context)


@scenario(misconfigured("https in the settings, and what listens there speaks plain http"))
def no_tls_there(order: OrderPlaced) -> None:
    requests.get(web.plain_behind_tls(f"/stock/{order.sku}"), timeout=30)


@scenario(misconfigured("the file of trusted authorities in our settings does not exist"))
def missing_authority_file(order: OrderPlaced) -> None:
    requests.get(web.secure(f"/stock/{order.sku}"), verify="/etc/shop/authority.pem", timeout=30)


@scenario(
    misconfigured("the host name in our settings is misspelt: nobody knows it", **OPEN),
    misconfigured("the same without a breaker"),
)
def unknown_host(order: OrderPlaced) -> None:
    requests.get(f"http://{HOST}/stock/{order.sku}", timeout=30)


@scenario(misconfigured("the host name is misspelt", **OPEN))
def unknown_host_httpx(order: OrderPlaced) -> None:
    httpx.get(f"http://{HOST}/stock/{order.sku}", timeout=30, trust_env=False)


@scenario(misconfigured("the host name is misspelt"))
def unknown_host_urllib(order: OrderPlaced) -> None:
    urllib.request.urlopen(f"http://{HOST}/stock/{order.sku}", timeout=30)


@scenario(misconfigured("the mail server's name is misspelt"))
def unknown_mail_host(_order: OrderPlaced) -> None:
    smtplib.SMTP("mial.internal.invalid", 25, timeout=30)


@scenario(misconfigured("the address in our settings lacks its scheme"))
def no_scheme(order: OrderPlaced) -> None:
    requests.get(f"stock.internal/{order.sku}", timeout=30)


@scenario(misconfigured("the address in our settings lacks its scheme"))
def no_scheme_httpx(order: OrderPlaced) -> None:
    httpx.get(f"stock.internal/{order.sku}", timeout=30, trust_env=False)


@scenario(ill("the mail server is down", "mail", group_events=12))
def mail_server_down(_order: OrderPlaced) -> None:
    smtplib.SMTP(web.LOOPBACK, web.closed_port(), timeout=30)
