"""EditedCopies: the message of a retry with other arguments, stored and encrypted as it is to be.

That is done before the outcome is made true, and once: each encryption has other bytes, and a
settlement that starts over would store a body for each try. A try that the store refused leaves
nothing that is held. From here on the copy is as it is sent, wherever it waits: on the broker, in a
row of a delay, in its lane.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

from angzarr.delivery.delivery import Delivery, Outcome, Retried
from angzarr.delivery.retry_until_available import RetryUntilAvailable
from angzarr.delivery.sealed_origin import SealedOrigin, origin_in
from angzarr.errors import DeliveryError, PayloadKeyMissing, UnserializableEvent, text_of
from angzarr.events.event import Message
from angzarr.payloads.claim_check import without_check


class MessageBodies(Protocol):
    """Stores what is too large to be sent, and encrypts."""

    def prepared(self, message: Message, origin: SealedOrigin | None, /) -> Message:
        """*message*, which has its body, as it is sent: perhaps with a claim check instead.

        Made of what came encrypted, from *origin*, it is encrypted, or PayloadKeyMissing or
        UnserializableEvent is raised. Raises PayloadStoreUnavailable: nothing was put for certain.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedCopies:
    """Built once a process; safe to use from many threads."""

    #: None: this app has neither a store nor keys.
    bodies: MessageBodies | None
    retry: RetryUntilAvailable

    def made(self, delivery: Delivery, outcome: Outcome) -> Outcome:
        """*outcome* with the message of its copy, if its handler asked for other arguments.

        Raises DeliveryError where that can never be sent, GivenBack if the worker stops first.
        """
        if not isinstance(outcome, Retried) or outcome.body is None or outcome.edited is not None:
            return outcome
        body = outcome.body
        edited = self.retry.until_done(
            lambda: edited_message(delivery, body, self.bodies),
            what="store the body of its copy",
            delivery=delivery,
        )
        return replace(outcome, edited=edited)


def edited_message(delivery: Delivery, body: bytes, bodies: MessageBodies | None) -> Message:
    """The message of *delivery* with *body* for its own, as *bodies* prepare it; see `made`."""
    message, origin = delivery.message, origin_in(delivery.message.headers)
    edited = replace(message, body=body, headers=without_check(message.headers))
    if bodies is None:
        if origin is None:
            return edited
        raise DeliveryError(_NO_KEY.format(origin.key))
    try:
        return bodies.prepared(edited, origin)
    except (PayloadKeyMissing, UnserializableEvent) as error:
        msg = f"its copy with other arguments cannot be encrypted: {text_of(error)}"
        raise DeliveryError(msg) from error


_NO_KEY: Final = (
    "its copy with other arguments cannot be encrypted as its message was, with the key {!r}: add"
    " payloads.encryption_keys to this app, then replay it"
)
