"""Parcel: one of many events on its way to its handlers, and what is known of its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from amqp.exceptions import RecoverableConnectionError

from angzarr.adapters.celery.publish.publisher import unconfirmed
from angzarr.delivery.fanout import Subscription
from angzarr.errors import BrokerUnavailable, PublishError, Unroutable
from angzarr.events.event import Event
from angzarr.events.publication import NotAllPublished

#: What is raised for a message that no broker could take: a missing queue, an option of no use.
UNSENDABLE: Final = (LookupError, TypeError, ValueError)


@dataclass(slots=True, eq=False)
class Leg:
    """The message of one event to one handler."""

    to: Subscription
    #: Written on the broker, for certain.
    confirmed: bool = False
    #: In flight when a connection ended: on the broker or not, nobody knows.
    lost: bool = False
    body: Any = None
    #: What kombu's ``Producer.publish`` takes besides the body.
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Parcel:
    """One event and its messages; *text* is its data as JSON."""

    event: Event
    legs: Sequence[Leg]
    text: str = ""

    @property
    def confirmed(self) -> bool:
        """Whether every handler's message is on the broker."""
        return all(leg.confirmed for leg in self.legs)

    @property
    def untouched(self) -> bool:
        """Whether not one message is on the broker, for certain."""
        return not any(leg.confirmed or leg.lost for leg in self.legs)


def account(parcels: Sequence[Parcel], cause: Exception, where: str) -> Exception:
    """Return the error that says what became of *parcels*, of which some were not confirmed.

    *cause* ended the sending; it is returned itself where nothing was sent and the broker, whose
    address without a password is *where*, had no part in it.
    """
    if all(parcel.untouched for parcel in parcels):
        if isinstance(cause, UNSENDABLE) or (
            isinstance(cause, PublishError) and not isinstance(cause, BrokerUnavailable)
        ):
            return cause
        msg = (
            f"none of {len(parcels)} events was sent: the broker at {where} did not confirm"
            f" ({cause}); start it or set broker_url, then publish again"
        )
        if isinstance(cause, BrokerUnavailable):
            return BrokerUnavailable(msg, refused=cause.refused, passing=cause.passing)
        return unconfirmed(msg, cause)
    missing = {leg.to.handler: None for p in parcels for leg in p.legs if not leg.confirmed}
    return NotAllPublished(
        confirmed=[p.event for p in parcels if p.confirmed],
        uncertain=[p.event for p in parcels if not (p.confirmed or p.untouched)],
        unsent=[p.event for p in parcels if p.untouched and not p.confirmed],
        missing=list(missing),
        cause=f"the broker at {where}: {cause}",
    )


class NoQueue(RecoverableConnectionError, Unroutable):
    """Makes kombu connect anew and declare the queue once more."""


def no_queue(exchange: object, key: str) -> NoQueue:
    """Return the error of a message that no queue takes."""
    return NoQueue(f"no queue takes {key!r} at the exchange {str(exchange)!r}")
