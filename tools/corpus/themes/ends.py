"""Events that ended before their handler, or after their time: revoked, expired, too old."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import requests
from tools.corpus import workshop
from tools.corpus.cases import breaker, other, recent
from tools.corpus.events import OrderPlaced
from tools.corpus.places import web
from tools.corpus.scenario import Scenario, scenario

from angzarr.analysis.ledger.entry import FailureClass
from angzarr.errors import ExpiredError, RevokedError
from angzarr.events import headers as names
from angzarr.resilience.breaker import Permit
from angzarr.resilience.limit import Limit, LimitScope

OPEN = {"breakers": breaker("stock-api", "open", 0.9), "handler_recent": recent(0, 30)}
CLOSED = {"breakers": breaker("stock-api", "closed", 0.0), "handler_recent": recent(150, 0)}


# -- revoked --------------------------------------------------------------------------------


def revoked(why: str, said: str) -> Any:
    """Register what somebody revoked, judged in three situations that change nothing."""

    def end(app: Any, given: Scenario) -> None:
        workshop.take_one(app, given, RevokedError(f"shop.{given.name}[85f4] {said}"))

    return scenario(
        other(FailureClass.REVOKED, why),
        other(FailureClass.REVOKED, f"{why}, while its dependency was ill", **OPEN),
        other(FailureClass.REVOKED, f"{why}, after a replay, by hundreds", replays=1,
              group_events=300),
        road=end,
    )  # fmt: skip


@revoked("an operator revoked it", "was revoked")
def by_an_operator(order: OrderPlaced) -> None: ...


@revoked("an operator revoked it while it ran", "was revoked while it ran")
def while_it_ran(order: OrderPlaced) -> None: ...


@revoked("a campaign was called off, its mails revoked", "was revoked")
def with_its_campaign(order: OrderPlaced) -> None: ...


@revoked("it was revoked by a header that it carried", "was revoked")
def by_a_header(order: OrderPlaced) -> None: ...


# -- too old --------------------------------------------------------------------------------


def _expired(app: Any, given: Scenario) -> None:
    workshop.take_one(
        app, given, ExpiredError(f"shop.{given.name}[85f4] arrived after it had expired")
    )


@scenario(
    other(FailureClass.TOO_OLD, "its publisher's deadline was over when it arrived"),
    other(FailureClass.TOO_OLD, "the same, while the dependency was ill", **OPEN),
    road=_expired,
)
def expired(order: OrderPlaced) -> None: ...


LONG_AGO = (workshop.AT - timedelta(days=200)).isoformat()


def _held(body: bytes, headers: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Let it be held back since long ago."""
    return body, {**headers, names.HELD_SINCE: LONG_AGO}


def _behind_open_breaker(app: Any, given: Scenario) -> None:
    """Open the handler's breaker by failures of other events, then take the one that waited."""
    breakers = app._parts.flow.breakers
    for number in range(40):
        permit = breakers.admit("stock-api", f"call-{number}")
        if isinstance(permit, Permit):
            breakers.record(permit, ok=False, took=timedelta(milliseconds=9))
    workshop.take_one(app, given)


@scenario(
    other(FailureClass.TOO_OLD, "its breaker was open for longer than it may wait", **OPEN),
    other(FailureClass.TOO_OLD, "the same; the breaker has closed, the event is old", **CLOSED),
    road=_behind_open_breaker,
    damage=_held,
    options={"breaker": "stock-api"},
)
def behind_an_open_breaker(order: OrderPlaced) -> None: ...


def _behind_a_limit(app: Any, given: Scenario) -> None:
    """Let another event have the only place, then take the one that waited."""
    (limit,) = app.handlers.get(f"shop.{given.name}").limits
    app._parts.flow.limits.take([LimitScope(limit, "")], "another")
    workshop.take_one(app, given)


@scenario(
    other(FailureClass.TOO_OLD, "others had every place for longer than it may wait"),
    other(FailureClass.TOO_OLD, "the same; there is room now, the event is old", **CLOSED),
    road=_behind_a_limit,
    damage=_held,
    options={"limit": Limit("one", concurrency=1)},
)
def behind_a_limit(order: OrderPlaced) -> None: ...


@scenario(
    other(FailureClass.TOO_OLD, "it failed, and its deadline came before another try", **OPEN),
    other(FailureClass.TOO_OLD, "the same; the dependency is well, the deadline over", **CLOSED),
    damage=lambda body, headers: (
        body, {**headers, "expires": "2026-05-04T10:00:01+00:00", names.ATTEMPT: 1},
    ),
)  # fmt: skip
def no_time_left(order: OrderPlaced) -> None:
    requests.get(web.refused(f"/stock/{order.sku}"), timeout=30)


@scenario(
    other(FailureClass.TOO_OLD, "it was told to wait longer than its deadline allows", **OPEN),
    other(FailureClass.TOO_OLD, "the same; nobody has a use for it any more", **CLOSED),
    damage=lambda body, headers: (
        body, {**headers, "expires": "2026-05-04T10:00:01+00:00", names.ATTEMPT: 2},
    ),
)  # fmt: skip
def told_to_wait_too_long(_order: OrderPlaced) -> None:
    address = web.url("/geocode", 429, headers={"Retry-After": "3600"})
    requests.get(address, timeout=30).raise_for_status()
