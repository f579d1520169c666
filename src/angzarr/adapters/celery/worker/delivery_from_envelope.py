"""Reading: from what Celery hands on of a message to a Delivery, in the parent and in a child."""

from __future__ import annotations

from typing import Any

from angzarr.adapters.celery.claim_batch import answer_in
from angzarr.adapters.celery.envelope import Envelope
from angzarr.delivery.delivery import Delivery, read
from angzarr.events.message import Message


def delivery_of(
    app: Any, sent: Any, args: Any, kwargs: Any, *, ack_follows: bool = False
) -> Delivery:
    """Return the delivery of an envelope, *sent* as a bare tuple."""
    envelope = Envelope._make(sent)
    return read(
        message_of(app, envelope),
        args=args,
        kwargs=kwargs,
        token=envelope.token,
        owner=envelope.owner,
        redelivered=bool(envelope.delivery_info.get("redelivered")),
        answer=answer_in(envelope.answer),
        ack_follows=ack_follows,
    )


def message_of(app: Any, envelope: Envelope) -> Message:
    """Return the raw message with the name of the queue that its copies go to.

    It is the one that it was consumed from. Only where nobody knows that a header tells it, which
    any publisher can write, or the routing key, which may lead to several queues.
    """
    queue = envelope.queue or envelope.named_queue or app.queue_of(envelope.routing_key)
    return envelope.message(queue)
