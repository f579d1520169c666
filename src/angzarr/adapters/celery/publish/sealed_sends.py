"""Which tasks are sent on behalf of a message that came encrypted: these are encrypted as well.

They are those that the message brings along, or that this package makes of it: callbacks, a chain's
next step, a chord's body, errbacks, the task that replaces it, a compensation, the notice of a
rejection. What a handler sends by itself is its own, and goes by the settings of its process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from celery import Celery

from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.delivery.context import RUNNING
from angzarr.delivery.sealed_origin import SealedOrigin, origin_in
from angzarr.errors import PayloadKeyMissing
from angzarr.payloads.body_sealer import missing
from angzarr.payloads.claim_check import HEADER

T = TypeVar("T")

#: The headers of the message that a tracer has in hand here, if they say where its body is.
_TRACED: ContextVar[Mapping[str, Any] | None] = ContextVar("angzarr_traced", default=None)
#: The request whose delivery runs here, with its followers.
FOLLOWING: ContextVar[Any] = ContextVar("angzarr_following", default=None)
#: The origin of the tasks that are sent here; None: they have none, or it is to be looked for.
_SEALING: ContextVar[SealedOrigin | None] = ContextVar("angzarr_sealing", default=None)
#: What the names of Celery's own tasks begin with: all that they send is made of their message.
_CELERYS: Final = "celery."


@contextmanager
def sealing_as(origin: SealedOrigin | None) -> Iterator[None]:
    """Let all tasks that are sent within be encrypted as *origin* was; None changes nothing."""
    if origin is None:
        yield
        return
    token = _SEALING.set(origin)
    try:
        yield
    finally:
        _SEALING.reset(token)


@contextmanager
def sealing_by(app: Celery, origin: SealedOrigin | None) -> Iterator[None]:
    """The same by *app*; raises PayloadKeyMissing, and nothing is sent, where it has no keys."""
    if origin is not None:
        offloader = runtime_of(app).offloader()
        if offloader is None or offloader.sealer is None:
            raise PayloadKeyMissing(missing(origin.key))
    with sealing_as(origin):
        yield


def sealing_origin() -> SealedOrigin | None:
    """The origin that was said by `sealing_as`."""
    return _SEALING.get()


def origin_of_task() -> SealedOrigin | None:
    """The origin of a task that Celery sends here; None: it is a handler's own, or of none.

    Beside what was said, it is the message in hand while none of its handler's code runs: Celery
    sends a chord's body and errbacks once it knows the result.
    """
    if (said := _SEALING.get()) is not None:
        return said
    following = FOLLOWING.get()
    headers = _TRACED.get() if following is None else vars(following)
    if headers is None or HEADER not in headers:
        return None
    if RUNNING.get() is not None and not str(headers.get("task")).startswith(_CELERYS):
        return None
    return origin_in(headers)


def trace_of(headers: Mapping[str, Any], trace: Callable[..., T], *args: Any) -> T:
    """What *trace* returns for *args*, while it has the message with *headers* in hand."""
    if HEADER not in headers:
        return trace(*args)
    token = _TRACED.set(headers)
    try:
        return trace(*args)
    finally:
        _TRACED.reset(token)
