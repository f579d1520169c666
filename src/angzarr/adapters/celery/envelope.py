"""The raw message that travels to the child, and the delivery that is read from it.

`AngzarrRequest` makes the envelope in the parent and puts it into the request's fields. The body is
the same object that Celery sends along, so pickling it a second time costs only a reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from celery import Celery
from celery.app.task import Context

from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.delivery.delivery import Delivery, read
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.events.headers import is_ours, without_ours
from angzarr.resilience.idempotency import (
    ClaimAnswer,
    Claimed,
)

#: The name of the request's field, in which it is a bare tuple.
FIELD = "angzarr"
#: The request's field in which a run notes that the delivery was settled.
TOLD = "angzarr_told"

#: The request's field with the end of a delivery that was settled with others of a batch.
SETTLED = "angzarr_settled"

#: What RabbitMQ's native delayed delivery puts before a routing key: 28 bits of the delay.
_DELAY_PREFIX = re.compile(r"\A(?:[01]\.){28}")
_DELAYED = ("0.", "1.")
#: What RabbitMQ keeps for itself, nothing at all, and what no name can be written with.
_NO_QUEUE = re.compile("(?s)amq\\.|\\Z|.*[\x00-\x1f\x7f\ud800-\udfff]")
#: Bytes of UTF-8, in RabbitMQ.
_LONGEST_QUEUE = 255
#: kombu undoes it, if it can, before any code sees the body.
_COMPRESSION = "compression"
#: Message properties that a copy takes along; the others belong to one publish.
_PROPERTIES = ("correlation_id", "reply_to")


class Envelope(NamedTuple):
    """A plain tuple: cheap to pickle, one for each delivery."""

    token: str
    owner: str
    body: bytes | str
    content_type: str
    content_encoding: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    delivery_info: Mapping[str, Any]
    #: What the claim was answered that was made with the fetch; None: not claimed yet (Riding).
    answer: Any = None
    #: The queue that it was consumed from; None: not by a worker's consumer.
    queue: str | None = None
    #: Whether the body is as it came: compressed, if a header says so.
    packed: bool = False

    def message(self, queue: str) -> Message:
        """The raw message, which was first sent to *queue*."""
        body, properties, headers = self.body, self.properties, self.headers
        if _COMPRESSION in headers and not self.packed:
            headers = {name: value for name, value in headers.items() if name != _COMPRESSION}
        return Message(
            body=body.encode("utf-8", "surrogateescape") if isinstance(body, str) else bytes(body),
            content_type=self.content_type,
            content_encoding=self.content_encoding,
            headers=headers,
            queue=queue,
            exchange=self.delivery_info.get("exchange") or "",
            routing_key=self.routing_key,
            priority=properties.get("priority"),
            properties={name: value for name in _PROPERTIES if (value := properties.get(name))},
        )

    @property
    def routing_key(self) -> str:
        """The key the message was first sent with, without a delay's prefix."""
        key = self.delivery_info.get("routing_key")
        if not isinstance(key, str):  # of a message that is not checked yet
            return ""
        return _DELAY_PREFIX.sub("", key, count=1) if key.startswith(_DELAYED) else key

    @property
    def named_queue(self) -> str | None:
        """The queue named in a header, if any broker could have a queue of that name.

        A copy could never be sent to another, and would be held for ever.
        """
        queue = self.headers.get(names.QUEUE)
        return queue if isinstance(queue, str) and _may_be_queue(queue) else None


def _may_be_queue(name: str) -> bool:
    if _NO_QUEUE.match(name):
        return False
    return len(name.encode()) <= _LONGEST_QUEUE


#: The usual answer as it goes to a child: its numbers, which pickle best.
_Numbers: TypeAlias = tuple[int, float]


def sent_as(answer: ClaimAnswer | None) -> _Numbers | ClaimAnswer | None:
    """*answer* in the form that is sent to a child."""
    if isinstance(answer, Claimed) and not answer.steps and not answer.last_words:
        return answer.starts, answer.sure_until
    return answer


def answer_in(sent: _Numbers | ClaimAnswer | None) -> ClaimAnswer | None:
    """The answer that `sent_as` sent."""
    if isinstance(sent, tuple):
        starts, sure_until = sent
        return Claimed(starts=starts, sure_until=sure_until)
    return sent


def delivery_of(
    app: Celery, sent: Any, args: Any, kwargs: Any, *, ack_follows: bool = False
) -> Delivery:
    """The delivery of an envelope, which was *sent* as a bare tuple."""
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


def message_of(app: Celery, envelope: Envelope) -> Message:
    """The raw message with the name of the queue that its copies go to.

    It is the queue that it was consumed from. Only where that is unknown a header tells it, which
    any publisher can write, or the routing key, which may lead to several queues.
    """
    queue = (
        envelope.queue
        or envelope.named_queue
        or runtime_of(app).routing.queue_of(envelope.routing_key)
    )
    return envelope.message(queue)


#: As in `Context._get_custom_headers` of Celery 5.7; a test compares them.
_OF_CELERY = frozenset({*vars(Context), "lang", "task", "argsrepr", "kwargsrepr", "compression"})
#: Ours that events have are named, so that they need not be looked at one by one.
_NO_CUSTOM = _OF_CELERY | names.OF_EVENTS | {FIELD, TOLD, SETTLED}


def custom_headers(request: Mapping[str, Any]) -> Any:
    """The custom headers of a request; its header ``headers`` takes precedence."""
    given = request.get("headers")
    if given is not None:
        return without_ours(given) if isinstance(given, Mapping) else given
    unknown = request.keys() - _NO_CUSTOM
    if not unknown:
        return {}
    custom = {name for name in unknown if not is_ours(name)}
    return {name: value for name, value in request.items() if name in custom} if custom else {}
