"""gRPC: every status that a service answers with, and no answer at all."""

from __future__ import annotations

from tools.corpus.cases import both, corrupt, ill, misconfigured, rejected, well
from tools.corpus.events import OrderPlaced
from tools.corpus.places import web
from tools.corpus.places.grpc_place import call, call_at
from tools.corpus.scenario import scenario

STOCK = "stock-grpc"


@scenario(both(STOCK, "nobody listens on the port", "it was restarted"))
def down(_order: OrderPlaced) -> None:
    call_at(f"{web.LOOPBACK}:{web.closed_port()}")


@scenario(both(STOCK, "the service says that it is not available", "it is available again"))
def unavailable(_order: OrderPlaced) -> None:
    call("Reserve", "UNAVAILABLE", "draining")


@scenario(ill("it does not answer in time", STOCK))
def deadline_exceeded(_order: OrderPlaced) -> None:
    call("Slow", "SLOW", timeout=0.1)


@scenario(both(STOCK, "we call more often than we may", "the window is over"))
def resource_exhausted(_order: OrderPlaced) -> None:
    call("Exhausted", "RESOURCE_EXHAUSTED", "too many requests")


@scenario(well("the server was going down and cancelled what it had", STOCK))
def cancelled(_order: OrderPlaced) -> None:
    call("Cancelled", "CANCELLED", "server shutdown")


@scenario(
    ill("another transaction won, again and again: gRPC's own advice is to try later", STOCK),
    well("another transaction won; nobody competes any more", STOCK, group_events=2),
)
def aborted(_order: OrderPlaced) -> None:
    call("Aborted", "ABORTED", "transaction aborted, retry")


@scenario(both(STOCK, "it breaks on its side on every call", "their fix is out"))
def internal(_order: OrderPlaced) -> None:
    call("Internal", "INTERNAL", "nil pointer")


@scenario(ill("it breaks on its side and cannot say how", STOCK))
def unknown(_order: OrderPlaced) -> None:
    call("Unknown", "UNKNOWN", "")


@scenario(corrupt("the record that the event names is damaged there for good"))
def data_loss(_order: OrderPlaced) -> None:
    call("Lost", "DATA_LOSS", "record 4711 is unreadable")


@scenario(corrupt("the event's sku is no sku: their schema refuses it"))
def invalid_argument(_order: OrderPlaced) -> None:
    call("Invalid", "INVALID_ARGUMENT", "sku: must match [A-Z]+")


@scenario(rejected("that sku is not sold any more"))
def not_found(_order: OrderPlaced) -> None:
    call("Find", "NOT_FOUND", "no such sku")


@scenario(rejected("this reservation was made before"))
def already_exists(_order: OrderPlaced) -> None:
    call("Exists", "ALREADY_EXISTS", "reserved")


@scenario(rejected("the account is closed: their rule, until somebody opens it"))
def failed_precondition(_order: OrderPlaced) -> None:
    call("Precondition", "FAILED_PRECONDITION", "account is closed")


@scenario(corrupt("a page beyond the last one: the event's position is wrong"))
def out_of_range(_order: OrderPlaced) -> None:
    call("Range", "OUT_OF_RANGE", "offset 900 of 12")


@scenario(misconfigured("what is deployed there lacks the method: another version"))
def unimplemented(_order: OrderPlaced) -> None:
    call("ReserveV2")


@scenario(misconfigured("our token is not theirs"))
def unauthenticated(_order: OrderPlaced) -> None:
    call("Login", "UNAUTHENTICATED", "invalid token")


@scenario(misconfigured("our account may not reserve"))
def permission_denied(_order: OrderPlaced) -> None:
    call("Denied", "PERMISSION_DENIED", "role stock.writer is missing")


@scenario(misconfigured("the host name in our settings is misspelt"))
def unknown_host(_order: OrderPlaced) -> None:
    call_at("dns:///stock.internal.invalid:50051")
