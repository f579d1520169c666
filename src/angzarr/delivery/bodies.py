"""BodyLoader: fetches the body of a delivery whose message has only a claim check (spec F4).

A body that is encrypted is opened here, be it in the store or in the message. It is fetched after
the event was claimed, so that one which kills its reader counts as poison, and that a duplicate
costs no fetch. A store that is away is waited for; a body that can never be had is a dead letter
with the same reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.delivery import DeadLettered, Delivery, data_of
from angzarr.delivery.failure_policy import UNREADABLE, FailurePolicy
from angzarr.delivery.retry_until_available import RetryUntilAvailable
from angzarr.delivery.run import DeliveryRun
from angzarr.errors import (
    DecodeError,
    GivenBack,
    PayloadCorrupt,
    PayloadElsewhere,
    PayloadGone,
    PayloadKeyMissing,
)
from angzarr.payloads.body_sealer import OVERHEAD, BodySealer, missing
from angzarr.payloads.claim_check import ClaimCheck, check_in
from angzarr.payloads.packed_store import too_large
from angzarr.payloads.sealed_message import sealed_in
from angzarr.payloads.store import PayloadStore
from angzarr.resilience.taxonomy import Category, Classification
from angzarr.runtime.failures import is_machine_fault

#: What no waiting helps with.
_LOST: Final = (PayloadGone, PayloadCorrupt)
PAYLOAD_LOST = Classification(
    category=Category.CLIENT, code="PAYLOAD", reason="its body cannot be had from its store"
)
#: A letter, not a wait: the key of a tenant that was deleted never comes back, and who waits for
#: it would take no other message.
KEY_MISSING = Classification(
    category=Category.CLIENT, code="PAYLOAD_KEY", reason="the key of its body is not here"
)


class OpenedBody(NamedTuple):
    """What a body of Celery's protocol 2 says: `embed` is what follows the task."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    embed: Mapping[str, Any] | None


class _Fetched(NamedTuple):
    """The body as it lies in the store, and opened; or why neither can be had."""

    body: bytes = b""
    opened: OpenedBody | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLoader:
    """Built once a process; safe to use from many threads.

    *read* opens a body within its bounds, and raises whatever it is made of makes it raise.
    *loaded* hears what came, for who waits for the result.
    """

    #: None: this app has no store.
    store: PayloadStore | None
    read: Callable[[bytes], OpenedBody]
    loaded: Callable[[Delivery, OpenedBody], None]
    retry: RetryUntilAvailable
    failure_policy: FailurePolicy
    #: Bytes of a body at most.
    most: int
    #: Whether a letter is to have the body itself: it hides a part of it, or seals all. One that
    #: came sealed stays as it came; what is hidden is looked for in the body as it was opened.
    keeps: bool = False
    #: Opens bodies that are encrypted; None: this app has no keys.
    sealer: BodySealer | None = None

    def load(self, run: DeliveryRun, bind: Callable[[DeliveryRun], None]) -> DeadLettered | None:
        """Give *run* its body and *bind* it, if it lies elsewhere and a handler is to run.

        A letter is returned where that is in vain. Raises GivenBack if the worker stops first.
        """
        if run.failed is not None or run.skip is not None or not run.delivery.is_elsewhere:
            return None
        try:
            run.delivery = self._loaded(run.delivery)
            if run.steps is not None:
                run.steps.delivery = run.delivery
            bind(run)
        except GivenBack:
            raise
        except Exception as error:
            if is_machine_fault(error):
                raise  # it says nothing of the message, which goes back
            return self.failure_policy.dead(
                run.delivery, run.handler, error, Reason.UNDELIVERABLE, _seen(error)
            )
        return None

    def _loaded(self, delivery: Delivery) -> Delivery:
        """*delivery* with what its body says; raises what makes it a letter."""
        check = check_in(delivery.message.headers)
        if check is None:
            return delivery
        if self.store is None and not check.is_inline:
            msg = f"its body lies at {check.reference}, and this app has no payloads.url: set it"
            raise PayloadElsewhere(msg)
        if _larger_size(check) > self.most:
            raise too_large(check.reference, self.most)
        if check.is_inline:
            found = self._fetch(check, delivery)
        else:
            found = self.retry.until_done(
                lambda: self._fetch(check, delivery), what="fetch its body", delivery=delivery
            )
        if found.opened is None:
            raise found.error or DecodeError("its body cannot be read")
        data = data_of(found.opened.args, found.opened.kwargs)
        self.loaded(delivery, found.opened)
        return replace(
            delivery,
            args=found.opened.args,
            kwargs=found.opened.kwargs,
            event=replace(delivery.event, data=data),
            loaded=found.body if self.keeps else b"",
        )

    def _fetch(self, check: ClaimCheck, delivery: Delivery) -> _Fetched:
        """Fetch and open; what waiting does not help with is a value, and is not tried again."""
        try:
            body = self._body(check, delivery)
        except (*_LOST, PayloadKeyMissing, DecodeError) as error:
            return _Fetched(error=error)
        try:
            return _Fetched(body, self.read(body))
        except Exception as error:
            if is_machine_fault(error):
                raise
            where = f" at {check.reference}" if check.reference.uri else ""
            msg = f"the body{where} cannot be read: {error}"
            return _Fetched(error=DecodeError(msg))

    def _body(self, check: ClaimCheck, delivery: Delivery) -> bytes:
        """The body as its publisher had it; raises what says why it cannot be had."""
        if check.is_inline:
            found = sealed_in(delivery.kwargs)
        else:
            assert self.store is not None  # noqa: S101 - the caller has looked
            found = self.store.fetch(check.reference)
        if not check.key:
            return found
        if self.sealer is None:
            raise PayloadKeyMissing(missing(check.key))
        return self.sealer.open(found, delivery.event.id, check.reference.unpacked_size, check.key)


def _larger_size(check: ClaimCheck) -> int:
    """The bytes of the body, or what its reference says of it sealed, if that is more."""
    reference = check.reference
    return max(reference.body_size, reference.size - OVERHEAD if check.key else 0)


def _seen(error: Exception) -> Classification:
    if isinstance(error, PayloadKeyMissing):
        return KEY_MISSING
    return PAYLOAD_LOST if isinstance(error, _LOST) else UNREADABLE
