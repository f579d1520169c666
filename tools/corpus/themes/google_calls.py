"""Google's clients: the errors of google-api-core, as its gRPC and its HTTP side raise them."""

from __future__ import annotations

from typing import Any

import grpc
import requests
from google.api_core import exceptions, grpc_helpers, retry
from google.auth import default
from google.auth.exceptions import TransportError  # noqa: F401 - what default may raise, too
from tools.corpus.cases import both, corrupt, misconfigured, rejected, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import folders, grpc_place, web
from tools.corpus.scenario import scenario

STORE = "documents"


def _call(method: str, status: str, details: str) -> Any:
    return grpc_helpers.wrap_errors(grpc_place.call)(method, status, details)


def _http(path: str, status: int, message: str) -> None:
    """Fail as the clients that speak JSON do."""
    body = f'{{"error": {{"code": {status}, "message": "{message}"}}}}'.encode()
    answer = requests.get(web.url(path, status, body), timeout=30)
    if not answer.ok:
        raise exceptions.from_http_response(answer)


@scenario(both(STORE, "the service is away", "it is back"))
def unavailable(_order: OrderPlaced) -> None:
    _call("GUnavailable", "UNAVAILABLE", "The service is currently unavailable.")


@scenario(misconfigured("our service account may not read there"))
def permission_denied(_order: OrderPlaced) -> None:
    _call("GDenied", "PERMISSION_DENIED", "Missing or insufficient permissions.")


@scenario(misconfigured("our token has run out"))
def unauthenticated(_order: OrderPlaced) -> None:
    _call("GToken", "UNAUTHENTICATED", "Request had invalid authentication credentials.")


@scenario(well("the quota of a minute was used up", STORE))
def exhausted(_order: OrderPlaced) -> None:
    _call("GQuota", "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'Writes'")


@scenario(rejected("that document is there already"))
def exists(_order: OrderPlaced) -> None:
    _call("GExists", "ALREADY_EXISTS", "Document already exists: orders/o-4711")


@scenario(corrupt("a field of the event is none that they take"))
def invalid(_order: OrderPlaced) -> None:
    _call("GInvalid", "INVALID_ARGUMENT", "Property total is longer than 1500 bytes.")


@scenario(misconfigured("our account may not read that bucket"))
def forbidden(_order: OrderPlaced) -> None:
    _http("/g/403", 403, "shop@example does not have storage.objects.get access.")


@scenario(rejected("the object of one order was removed; others are found"))
def not_found(_order: OrderPlaced) -> None:
    _http("/g/404", 404, "No such object: invoices/o-4711.pdf")


@scenario(both(STORE, "they are overloaded", "they are well again"))
def overloaded(_order: OrderPlaced) -> None:
    _http("/g/503", 503, "Backend Error")


@scenario(both(STORE, "its own retries ended without an answer", "the service is back"))
def retries_ended(_order: OrderPlaced) -> None:
    patient = retry.Retry(initial=0.01, maximum=0.02, timeout=0.1)
    patient(lambda: _call("GUnavailable", "UNAVAILABLE", "try again"))()


@scenario(misconfigured("no credentials are set on this host"))
def no_credentials(_order: OrderPlaced) -> None:
    import os
    from unittest.mock import patch

    nothing = {"HOME": "/nonexistent", "NO_GCE_CHECK": "true", "PATH": "/usr/bin:/bin"}
    with patch.dict(os.environ, nothing, clear=True):
        default()


@scenario(misconfigured("the file of credentials is none"))
def broken_credentials(_order: OrderPlaced) -> None:
    import os
    from unittest.mock import patch

    file = folders.fresh() / "google.json"
    file.write_text("{}")
    with patch.dict(os.environ, {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}):
        default()


@scenario(both(STORE, "nobody listens there", "it was restarted"))
def refused(_order: OrderPlaced) -> None:
    with grpc.insecure_channel(f"{web.LOOPBACK}:{web.closed_port()}") as channel:
        grpc_helpers.wrap_errors(channel.unary_unary("/g.Documents/Get"))(b"", timeout=30)
