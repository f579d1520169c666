"""Settles deliveries that no child process can settle: D7.

These are unreadable messages and deliveries that ended outside their child, never an outcome that
a child returned. The settle thread does the work. Another thread then calls the asker back, which
acknowledges. At shutdown the messages in hand go back to the broker, their claims freed first.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from celery import Celery
from celery.worker import state

from angzarr.adapters.celery.claim_batch import release_claims
from angzarr.adapters.celery.envelope import Envelope, delivery_of, message_of
from angzarr.adapters.celery.publish.publisher import SingleConnectionPublisher
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.settle_thread import SettleThread, Trouble
from angzarr.adapters.celery.worker.task_events import tell_lost
from angzarr.clock import SystemClock
from angzarr.delivery.delivery import Outcome
from angzarr.delivery.executor import DeliveryExecutor
from angzarr.delivery.schedule import put_arrived, put_early
from angzarr.delivery.unreadable import UnreadableMessages
from angzarr.delivery.unsettled import TOO_LARGE_WAIT
from angzarr.errors import DeliveryError, LetterTooLarge
from angzarr.events.event import Message
from angzarr.resilience.idempotency import Claimed, Release

_log = logging.getLogger("angzarr.worker")

#: Seconds that a message waits whose process died: one that kills every process that it comes to
#: must not keep a worker busy with starting new ones (trap 5).
LOST_PAUSE = 1.0

#: Called with the outcome of a delivery; None: a successor owns the event.
Told = Callable[[Outcome | None], object]


class Settlement:
    """One in each worker process tree; safe to use from any thread."""

    def __init__(
        self,
        app: Celery,
        executor: DeliveryExecutor,
        salvage: UnreadableMessages,
        publisher: SingleConnectionPublisher,
    ) -> None:
        self._app = app
        self._executor = executor
        self._salvage = salvage
        self._publisher = publisher
        self._thread = SettleThread()
        #: Users' hooks and result backends may take their time: they keep no settlement waiting.
        self._teller = SettleThread("angzarr-tell")

    def start(self) -> None:
        """Start both threads before the first message: later there may be none to be had."""
        self._thread.start()
        self._teller.start()

    def keep(self) -> None:
        """See that both threads run; the loop calls it once a second."""
        self._thread.keep()
        self._teller.keep()

    def trouble(self) -> Trouble | None:
        """The trouble that keeps it from settling, for probes; None if it knows of none."""
        return self._thread.trouble() or self._teller.trouble()

    def bury(
        self,
        envelope: Envelope,
        error: Exception,
        code: str,
        then: Callable[[], object],
        back: Callable[[], object],
    ) -> None:
        """Make a dead letter of a message that cannot be read, then call *then*.

        Where that can never be done *back* is called, which gives the message back.

        A claim that was made when it was fetched ends before: no other would end it while this
        worker lives, and a replay would wait for it.
        """
        message = message_of(self._app, envelope)

        def step() -> None:
            self._bury(envelope, message, error, code)
            then()

        self._thread.submit(step, what=_what(message), give_up=back)

    def tell(self, envelope: Envelope, told: Callable[[], object]) -> None:
        """Call *told*, which runs users' code, beside the settlement of other messages."""
        self._teller.submit(told, what=f"task {envelope.headers.get('id')!r}")

    def tell_lost(self, message: Message, error: Exception) -> None:
        """Report the task of *message* as failed, since it became a letter; delays nothing else."""
        self._teller.submit(lambda: tell_lost(self._app, message, error), what=_what(message))

    def tell_lane(self, message: Message, letter_id: str) -> None:
        """Let the lane of *message*, if it has one, know its letter; raises StoreUnavailable."""
        self._executor.settler.ordering.note_dead_letter(message, letter_id)

    def let_wait(
        self,
        envelope: Envelope,
        at: datetime,
        then: Callable[[], object],
        back: Callable[[], object],
    ) -> None:
        """Put a message that came before its time where it holds nothing, then call *then*.

        What can never be put there is a dead letter. Where that cannot be made either *back* is
        called, which gives the message back.
        """
        message = message_of(self._app, envelope)

        def step() -> None:
            try:
                put_early(self._executor.settler.schedule, message, at, SystemClock().now())
            except DeliveryError as error:
                self._bury(envelope, message, error, "CANNOT_WAIT")
                self.tell_lost(message, error)
            then()

        self._thread.submit(step, what=_what(message), give_up=back)

    def settle(
        self, envelope: Envelope, args: Any, kwargs: Any, error: Exception | None, told: Told
    ) -> None:
        """Settle a delivery that ended with *error* and not by its handler's return.

        A process that may still run it is fenced first: a killed one can take time to die. All
        tries have one token: a claim that one of them could not give back is the next one's.
        """
        again = envelope._replace(token=os.urandom(16).hex(), answer=None)

        def step() -> None:
            if error is not None:
                self._free(envelope, counted=False)
            outcome = self._executor.take(delivery_of(self._app, again, args, kwargs), error)
            self._teller.submit(lambda: told(outcome), what=what)

        what = f"task {envelope.headers.get('id')!r}"
        self._thread.submit(step, what=what)

    def give_back(
        self,
        envelope: Envelope,
        *,
        counted: bool,
        then: Callable[[], object] | None,
        pause: float = LOST_PAUSE,
    ) -> None:
        """Free the claim of a process that ended; a start that killed it stays *counted*.

        Then *then* gives the message back, after *pause* seconds unless the worker stops.
        """

        def back() -> None:
            if then is not None:
                self.after_pause(envelope, then, pause)

        def step() -> None:
            self._free(envelope, counted=counted)
            back()

        self._thread.submit(step, what=f"task {envelope.headers.get('id')!r}", give_up=back)

    def after_pause(
        self, envelope: Envelope, give_back: Callable[[], object], pause: float = LOST_PAUSE
    ) -> None:
        """Give a message back after *pause* seconds, at once while the worker stops."""
        if runtime_of(self._app).stopping():
            give_back()
        else:
            what = f"task {envelope.headers.get('id')!r}"
            self._thread.submit(give_back, what=what, after=pause)

    def note_fenced(self, envelope: Envelope) -> None:
        """Append the fact that a late owner let go of a message."""
        delivery = delivery_of(self._app, envelope, (), {})
        self._thread.submit(
            lambda: self._salvage.note_fenced(delivery), what=f"event {delivery.event.id!r}"
        )

    @property
    def idle(self) -> bool:
        """True if nothing waits to be settled or announced, now or after a pause."""
        return self._thread.empty and self._teller.empty

    def close(self, patience: float = 0.0) -> None:
        """Stop once the due steps are done, or after *patience* seconds.

        What was not settled goes back to the broker with its connection.
        """
        for thread in (self._thread, self._teller):
            thread.finish(patience)
            thread.stop()
        self._executor.close()
        self._salvage.close()
        self._publisher.close()

    def _bury(self, envelope: Envelope, message: Message, error: Exception, code: str) -> None:
        if envelope.answer is not None:
            self._free(envelope, counted=False)
        try:
            letter = self._salvage.take(message, error, code)
            self.tell_lane(message, letter.id)
        except LetterTooLarge as large:
            _log.critical("letter_too_large: tried again in %s: %s", TOO_LARGE_WAIT, large)
            self._put(message, SystemClock().now() + TOO_LARGE_WAIT)

    def _put(self, message: Message, at: datetime) -> None:
        put_arrived(self._executor.settler.schedule, message, at, SystemClock().now())

    def _free(self, envelope: Envelope, *, counted: bool) -> None:
        delivery = delivery_of(self._app, envelope, (), {})
        release = Release(counted=counted, was_counted=not isinstance(delivery.answer, Claimed))
        self._executor.claimer.store.settle(delivery.key, delivery.token, release)


def _what(message: Message) -> str:
    return f"message {message.id!r} of queue {message.queue!r}"


def unbegun(consumer: Any) -> list[Any]:
    """The requests that no process or thread has begun: in line, for later, throttled."""
    waiting = {id(one): one for one in _waiting(consumer)}
    return [one for one in waiting.values() if one not in state.active_requests]


def _waiting(consumer: Any) -> Iterator[Any]:
    yield from tuple(state.reserved_requests)
    yield from tuple(state.scheduled_requests)
    yield from throttled(consumer)


def throttled(consumer: Any) -> list[Any]:
    """The requests that wait for the rate limit of their task."""
    buckets = tuple(bucket for bucket in consumer.task_buckets.values() if bucket)
    return [request for bucket in buckets for request, _tokens in tuple(bucket.contents)]


def give_back_requests(app: Celery, requests: Iterable[Any]) -> int:
    """Give back what is unacknowledged of *requests*; return how many. None is run or let go later.

    A process that runs one all the same finds its claim gone, and acknowledges nothing twice.
    """
    ours = [request for request in requests if not request.acknowledged]
    for request in ours:
        request.acknowledged = True
        if (entry := getattr(request, "_eta_timer_entry", None)) is not None:
            entry.cancel()
        state.task_ready(request)
    release_claims(app, [request.message for request in ours])
    give_back_messages([request.message for request in ours])
    for request in ours:
        request.send_event("task-rejected", requeue=True)
    return len(ours)


def give_back_messages(messages: Sequence[Any]) -> None:
    """Return *messages* to their queues, those of one channel together where possible."""
    by_channel: dict[int, list[Any]] = {}
    for message in messages:
        by_channel.setdefault(id(message.channel), []).append(message)
    for together in by_channel.values():
        try:
            _return(together[0].channel, together)
        except Exception as error:  # noqa: BLE001 - they come back when the connection ends
            _log.warning("messages_not_given_back: with the connection then (%s)", error)


def _return(channel: Any, messages: Sequence[Any]) -> None:
    qos: Any = getattr(channel, "qos", None)
    if hasattr(qos, "give_back"):  # our own transports
        qos.give_back([message.delivery_tag for message in messages])
    else:
        for message in reversed(messages):
            message.requeue()
