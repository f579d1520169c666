"""Events on their way to the broker, and the account of what became of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from angzarr.adapters.celery.publish.publisher import unconfirmed
from angzarr.adapters.celery.publish.wires import OutgoingMessage
from angzarr.errors import BrokerUnavailable, PayloadStoreUnavailable, PublishError
from angzarr.events.event import Event
from angzarr.events.publication import NotAllPublished

#: What is raised for a message that no broker could take: a missing queue, an option of no use.
UNSENDABLE: Final = (LookupError, TypeError, ValueError)


@dataclass(slots=True, eq=False)
class OutgoingEvent:
    """One event and its messages; *text* is its data as JSON."""

    event: Event
    messages: Sequence[OutgoingMessage]
    text: str = ""

    @property
    def confirmed(self) -> bool:
        """True if every handler's message is on the broker."""
        return all(message.confirmed for message in self.messages)

    @property
    def untouched(self) -> bool:
        """True if not one message is on the broker, for certain."""
        return not any(message.confirmed or message.lost for message in self.messages)


def account(outgoing: Sequence[OutgoingEvent], cause: Exception, where: str) -> Exception:
    """The error that says what became of *outgoing*, of which some were not confirmed.

    *cause* ended the sending; it is returned itself where nothing was sent and the broker, whose
    address without a password is *where*, had no part in it.
    """
    if all(item.untouched for item in outgoing):
        if isinstance(cause, (*UNSENDABLE, PayloadStoreUnavailable)) or (
            isinstance(cause, PublishError) and not isinstance(cause, BrokerUnavailable)
        ):
            return cause
        msg = (
            f"none of {len(outgoing)} events was sent: the broker at {where} did not confirm"
            f" ({cause}); start it or set broker_url, then publish again"
        )
        if isinstance(cause, BrokerUnavailable):
            return BrokerUnavailable(msg, refused=cause.refused, passing=cause.passing)
        return unconfirmed(msg, cause)
    missing = {
        message.to.handler: None
        for p in outgoing
        for message in p.messages
        if not message.confirmed
    }
    return NotAllPublished(
        confirmed=[p.event for p in outgoing if p.confirmed],
        uncertain=[p.event for p in outgoing if not (p.confirmed or p.untouched)],
        unsent=[p.event for p in outgoing if p.untouched and not p.confirmed],
        missing=list(missing),
        cause=f"the broker at {where}: {cause}",
        reasons=dict(_reasons(outgoing)),
    )


def _reasons(outgoing: Sequence[OutgoingEvent]) -> Iterator[tuple[str, BrokerUnavailable]]:
    """The id of each event that was tried in vain, and the first reason why."""
    for item in outgoing:
        for message in item.messages:
            if message.error is not None and not message.confirmed:
                yield item.event.id, _reason(message, message.error, item.event.id)
                break


def _reason(message: OutgoingMessage, error: Exception, event_id: str) -> BrokerUnavailable:
    text = f"{message.to.handler}: {error}"
    if isinstance(error, UNSENDABLE):
        return BrokerUnavailable(text, event_id, refused=True)
    return unconfirmed(text, error, event_id)
