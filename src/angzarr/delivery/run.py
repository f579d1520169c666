"""DeliveryRun: what the steps of one delivery share while its outcome is being decided."""

from __future__ import annotations

from dataclasses import dataclass, field

from angzarr.delivery.admission import Permits
from angzarr.delivery.compensation_runner import Steps
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Handler
from angzarr.delivery.invoke import HandlerCall
from angzarr.ordering.lanes import Turn
from angzarr.resilience import idempotency as claims
from angzarr.resilience.breaker import Permit


@dataclass(slots=True)
class DeliveryRun:
    """The state of one delivery that its steps share; each reads what earlier ones have set."""

    delivery: Delivery
    #: Why no handler is to run: revoked, expired, or at its hard time limit. None: run it.
    failed: Exception | None
    #: The permit of its domain, where a guard against poison waves asked for one.
    wave_permit: Permit | None = None
    handler: Handler = field(init=False)
    #: The steps that this run and earlier ones finished.
    steps: Steps | None = None
    #: Its turn in its lane; None: its handler takes events as they come.
    turn: Turn | None = None
    #: Why a person skips it, if so.
    skip: str | None = None
    call: HandlerCall = field(init=False)
    #: What to ask of the claim store; None: it was claimed with the fetch.
    claim: claims.Claim | None = field(init=False)
    #: What the claim store answered to that claim, where it was asked for others too.
    answer: claims.ClaimAnswer | None = None
    claimed: claims.Claimed = field(init=False)
    #: Whether it runs beside no other last start.
    alone: bool = False
    poison: bool = False
    permits: Permits = field(init=False)
