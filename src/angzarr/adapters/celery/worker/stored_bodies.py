"""Bodies that were fetched from the payload store: opened as kombu would, and told to Celery.

Celery's request was made of a message without its body. What is learnt of it when the body comes is
put into that request, so that followers, results and hooks go by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from angzarr.adapters.celery.message_check import checked_body
from angzarr.adapters.celery.publish.sealed_sends import FOLLOWING
from angzarr.adapters.celery.worker.json_bodies import loads
from angzarr.delivery.bodies import OpenedBody
from angzarr.delivery.delivery import Delivery
from angzarr.errors import DecodeError
from angzarr.payloads.claim_check import HEADER, may_be_followed
from angzarr.runtime.json_bounds import Bounds, check_json


def read_stored(body: bytes, bounds: Bounds) -> OpenedBody:
    """What *body* says, if it is within *bounds*; raises anything, as it came from a store."""
    check_json(body, bounds)
    return OpenedBody(*checked_body(loads(body)))


#: What follows a task, as a body of protocol 2 and a request name it.
_FOLLOWERS: Final = ("callbacks", "errbacks", "chain", "chord")


def tell_request(delivery: Delivery, opened: OpenedBody) -> None:
    """Let the request in `FOLLOWING` say what *opened* does; in a batch there is none.

    Raises DecodeError for followers of which the message said that there are none: by that was
    chosen how it runs, and they would not all be sent.
    """
    embed, request = opened.embed or {}, FOLLOWING.get()
    _check_followers(delivery, embed, request)
    if request is None:
        return
    vars(request).update(embed)
    # In place: Celery's tracer holds the same objects for hooks that run after the task.
    if isinstance(request.args, list) and isinstance(request.kwargs, dict):
        request.args[:] = opened.args
        request.kwargs.clear()
        request.kwargs.update(opened.kwargs)
    else:
        request.args, request.kwargs = list(opened.args), dict(opened.kwargs)


def _check_followers(delivery: Delivery, embed: Mapping[str, Any], request: Any) -> None:
    """Raise DecodeError if *embed* has followers that the message of *delivery* denies."""
    found = [name for name in _FOLLOWERS if embed.get(name)]
    if not found or may_be_followed(delivery.message.headers):
        return
    shown = _shown_in(delivery.message.body) if request is None else vars(request)
    untold = [name for name in found if not shown.get(name)]
    if untold:
        msg = f"its body has {' and '.join(untold)}, and its header {HEADER} says it has none"
        raise DecodeError(msg)


def _shown_in(body: bytes) -> Mapping[str, Any]:
    """What the message itself says that follows it: in a batch it has at most errbacks."""
    return checked_body(loads(body))[2] or {}
