"""Celery's consumer, made to drop nothing and to survive any message (D7).

Celery acknowledges what it cannot decode, rejects unknown tasks for good, and ends the process, or
reconnects for ever, on messages of another form. Here each of these becomes a dead letter with its
bytes before it is acknowledged.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from amqp.exceptions import (
    AMQPError,
    ChannelError,
    PreconditionFailed,
    RecoverableConnectionError,
)
from celery import signals
from celery.exceptions import InvalidTaskError
from celery.utils.time import maybe_iso8601, maybe_make_aware
from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown
from kombu.exceptions import OperationalError
from kombu.pools import producers
from kombu.utils.json import dumps

from angzarr.adapters.celery.claim_batch import BATCHED_CLAIM, BatchedClaim, release_claims
from angzarr.adapters.celery.envelope import Envelope, message_of, sent_as
from angzarr.adapters.celery.message_check import check_headers, checked_body
from angzarr.adapters.celery.publish.publisher import transport_of
from angzarr.adapters.celery.worker.batches import gather_batches
from angzarr.adapters.celery.worker.broadcasts import heed
from angzarr.adapters.celery.worker.consumer_state import ReconnectPauses
from angzarr.adapters.celery.worker.handoff import Handoff
from angzarr.adapters.celery.worker.message_limits import as_a_whole, check_fields, take_in
from angzarr.adapters.celery.worker.message_receiver import consumed_from, is_packed, readers_died
from angzarr.adapters.celery.worker.queue_pauser import QueuePauser
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.settlement import throttled, unbegun
from angzarr.adapters.celery.worker.task_events import announce_unknown, tell_lost
from angzarr.clock import SystemClock
from angzarr.delivery.schedule import SLEPT, due_headers
from angzarr.errors import DecodeError, text_of
from angzarr.events.received import DamagedEnvelope
from angzarr.runtime.failures import is_machine_fault

_log = logging.getLogger("angzarr.worker")

#: Seconds between two looks for dead children.
LOOKED_EVERY = 0.5
#: Seconds between two looks whether a domain is held back.
TURN_EVERY = 1.0

#: Built-in errors that kombu counts among the signs of a lost connection, and that a malformed
#: message raises as well.
_AMBIGUOUS = (LookupError, ValueError, TypeError, AttributeError)

_HELD_TOO_LONG: Final = (
    "RabbitMQ takes a message for lost that was not acknowledged within its consumer_timeout, 30"
    " minutes by default, and gives it to others: give its queue a policy with a consumer-timeout"
    " longer than your longest handler"
)


class AngzarrConsumer(Consumer):
    """Celery's consumer with every way out of it guarded."""

    connection_errors: tuple[type[BaseException], ...]
    loop: Callable[..., Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # It outlives a connection: what it has closed stays closed when Celery consumes anew.
        self._queue_pauser = QueuePauser(
            self,
            runtime_of(self.app).holding,
            stop=super().cancel_task_queue,
            resume=super().add_task_queue,
        )
        self._turn_due = 0.0
        self.batches = gather_batches(self)
        self._receipts = runtime_of(self.app).movement.receipts
        self._bounds = runtime_of(self.app).bounds
        self._restart_state = ReconnectPauses(look=self._look)
        self.loop = partial(self._go_on_by, self.loop)
        self.blueprint.start = partial(self._start_steps, self.blueprint.start)
        self.gossip.on_message = partial(heed, self.gossip.on_message)
        if transport_of(self.app) == "amqp":
            self.app.control.mailbox.producer_pool = producers[self._unconfirmed()]

    def connection_for_write(self, url: str | None = None, heartbeat: Any = None) -> Any:
        """The connection for events; it waits for no confirm, which would block the loop."""
        return self.ensure_connected(self._unconfirmed(url=url, heartbeat=heartbeat))

    def ensure_connected(self, conn: Any) -> Any:
        """*conn*, connected; each try and each second between two counts as movement."""
        ensure, beat = conn.ensure_connection, runtime_of(self.app).movement.beat

        def trying(errback: Any, *args: Any, callback: Any, **options: Any) -> Any:
            beat()
            return ensure(errback, *args, callback=lambda: (beat(), callback()), **options)

        conn.ensure_connection = trying
        try:
            return super().ensure_connected(conn)
        finally:
            del conn.ensure_connection

    def _start_steps(self, start: Callable[[Any], object], parent: Any) -> None:
        """Connect and consume. Too many open files are a lost connection, tried again in turns.

        Celery would end the worker, with an exit code that tells supervisors that all is well.
        """
        try:
            start(parent)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            _log.critical(
                "too_many_open_files: it connects again once there are fewer: raise this worker's"
                " limit (ulimit -n), or lower its concurrency"
            )
            raise ConnectionError(str(error)) from error

    def _go_on_by(self, loop: Callable[..., Any], *args: Any) -> None:
        """Run Celery's *loop*. From here on nothing that a broker says ends the worker.

        Before, at its first start, a queue of another kind or a refused login does: its settings
        may be wrong.
        """
        if ChannelError not in self.connection_errors:
            self.connection_errors = (*self.connection_errors, ChannelError)
        runtime_of(self.app).movement.connect(pool=self.pool)
        try:
            loop(*args)
        except ChannelError as error:
            if isinstance(error, PreconditionFailed) and "acknowledgement" in str(error):
                _log.error("delivery_timeout: %s", _HELD_TOO_LONG)
            raise RecoverableConnectionError(str(error)) from error
        finally:
            runtime_of(self.app).movement.disconnect()

    def on_close(self) -> None:
        """Forget what a lost connection brought and no process has begun; free its claims.

        The broker gives it to others, which would wait for its end while this worker lives.
        """
        gathered = self.batches.forget() if self.batches is not None else []
        waiting, held_back = unbegun(self), [*throttled(self), *gathered]
        super().on_close()
        jobs = getattr(getattr(self.pool, "_pool", None), "_cache", None)
        sent = None if jobs is None else {job.correlation_id for job in tuple(jobs.values())}
        dropped = [
            one
            for one in waiting
            if one in held_back or (sent is not None and one.pool_job not in sent)
        ]
        release_claims(self.app, [request.message for request in dropped])

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Bury what cannot be decoded; Celery would acknowledge it."""
        self._bury(message, exc, "UNDECODABLE")

    def on_unknown_message(self, body: Any, message: Any) -> None:  # noqa: ARG002 - Celery's
        """Dead-letter a message that is not a task; Celery would reject it for good."""
        error = DecodeError("it is not a Celery message: its headers do not name a task")
        self._bury(message, error, "FOREIGN_MESSAGE")

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:  # noqa: ARG002 - Celery's
        """Bury a task with malformed headers or arguments, or a refused content type."""
        self._bury(message, exc, "INVALID_TASK")

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:  # noqa: ARG002 - Celery's
        """Settle a task that is not registered here: a letter that can be replayed later."""
        try:
            args, kwargs, _ = checked_body(message.payload)
            check_headers(message.headers)
        except Exception as malformed:  # noqa: BLE001 - a hostile message fails in any way
            self._bury(message, malformed, "INVALID_TASK")
            return
        _log.info("unknown_task: %s is not registered here", exc)  # its letter is the error
        runtime_of(self.app).settlement.settle(
            self._envelope(message), args, kwargs, None,
            lambda _outcome: self._unknown_settled(message, exc),
        )  # fmt: skip

    def register_with_event_loop(self, hub: Any) -> None:
        """Look for dead children ten times as often as a prefork pool does, and for waves."""
        super().register_with_event_loop(hub)
        maintain = getattr(getattr(self.pool, "_pool", None), "maintain_pool", None)
        if maintain is not None:
            hub.call_repeatedly(LOOKED_EVERY, maintain)
        hub.call_repeatedly(TURN_EVERY, self._turn_each_second)

    def perform_pending_operations(self) -> None:
        """Run postponed steps where no event loop does (gevent, some transports): waves too.

        Celery comes here after each message, and every two seconds where none comes.
        """
        super().perform_pending_operations()
        if self.hub is None and (now := time.monotonic()) >= self._turn_due:
            self._turn_due = now + TURN_EVERY
            self._turn_each_second()

    def _look(self) -> None:
        """Look whether the worker stops, in the pause between two connections."""
        runtime_of(self.app).movement.beat()
        maybe_shutdown()

    def _turn_each_second(self) -> None:
        self._guarded(partial(runtime_of(self.app).movement.look, self), "movement_not_seen")
        self._guarded(self._queue_pauser.turn, "valve_failed")
        self._guarded(runtime_of(self.app).keep_settling, "settle_threads_not_kept")

    def _guarded(self, step: Callable[[], object], failed: str) -> None:
        try:
            step()
        except self._lost_connections():
            raise
        except Exception:  # noqa: BLE001 - it would end the worker, or the connection
            _log.exception(failed)

    def add_task_queue(self, queue: str, *args: Any, **options: Any) -> None:
        """Consume from *queue*: an operator's word, by remote control."""
        self._queue_pauser.leave(queue)
        super().add_task_queue(queue, *args, **options)

    def cancel_task_queue(self, queue: str) -> None:
        """Consume from *queue* no more, until an operator says otherwise."""
        self._queue_pauser.leave(queue)
        super().cancel_task_queue(queue)

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:
        """The function that takes each message; it raises only lost connections."""
        receive = Handoff(self, super().create_task_handler(*args, **options))
        lost, receipts = self._lost_connections(), self._receipts

        def on_task_received(message: Any) -> None:
            failures = receipts.failures
            try:
                if self._takes_in(message) and not self._waits(message):
                    receive(message)
            except lost:
                raise
            except Exception as error:  # noqa: BLE001 - it would end the worker, or loop
                self._fail(message, error)
            else:
                if failures and receipts.failures == failures:  # a pool fails without a word
                    receipts.succeed()

        return on_task_received

    def _takes_in(self, message: Any) -> bool:
        """True if *message* may be read; else it is buried as it is."""
        if (died := readers_died(message)) is not None:
            self._bury(message, died, died.code)
            return False
        try:
            take_in(message, self._bounds)
        except (DamagedEnvelope, DecodeError) as error:
            self._bury(message, error, "UNDECODABLE")
            return False
        return True

    def _fail(self, message: Any, error: Exception) -> None:
        """Dead-letter *message* if it is at fault for *error*; else it goes back after a pause.

        A message that has ended stays ended: a later error is only logged.
        """
        if message.acknowledged:
            _log.error("failed_after_its_end: %s", text_of(error)[:500], exc_info=error)
        elif found := self._receipts.fault_of(message, error):
            code, reason = found
            self._bury(message, reason, code)
        else:
            self._give_back(message, error)

    def _give_back(self, message: Any, error: Exception) -> None:
        """Give *message* back; its claim, if it rides, is freed with no start counted."""
        envelope, settlement = self._envelope(message), runtime_of(self.app).settlement
        pause = self._receipts.fail(error, f"a message of {envelope.routing_key}")
        then = self._giving_back(message)
        if getattr(message, BATCHED_CLAIM, None) is None:  # it may be too malformed to have a claim
            settlement.after_pause(envelope, then, pause)
        else:
            settlement.give_back(envelope, counted=False, then=then, pause=pause)

    def _giving_back(self, message: Any) -> Callable[[], object]:
        """A function that gives *message* back, from any thread."""
        return partial(self.call_soon, self._requeue, message)

    def _requeue(self, message: Any) -> None:
        if not message.acknowledged:
            message.reject_log_error(_log, self.connection_errors, requeue=True)

    def _waits(self, message: Any) -> bool:
        """True if *message* came before its time; then it waits where it holds nothing.

        Celery would keep it in this process until then (trap 4), by this machine's clock: it is not
        shown the time of what is due. What is malformed is left to those who make letters of it.
        """
        headers = message.headers
        if not isinstance(headers, dict) or not headers.get("eta"):
            return False
        if headers.get("task") not in self.strategies or (due := self._due(headers)) is None:
            return False
        left = due - SystemClock().now()
        if left <= SLEPT:
            message.headers = due_headers(headers, left)
            return False
        then = partial(self.call_soon, self._acknowledge, message)
        runtime_of(self.app).settlement.let_wait(
            self._envelope(message), due, then, self._giving_back(message)
        )
        return True

    def _due(self, headers: dict[str, Any]) -> datetime | None:
        try:
            check_headers(headers)
            said = maybe_iso8601(headers["eta"])
            due: datetime = maybe_make_aware(said, self.app.timezone).astimezone(UTC)
        except (InvalidTaskError, ValueError, TypeError, AttributeError, OverflowError):
            return None
        return due

    def _unconfirmed(self, **where: Any) -> Any:
        """A connection for short-lived messages: events, remote control, its answers.

        RabbitMQ confirms nothing while it is out of memory or disk, which may last until this
        worker has taken what fills it.
        """
        connection = self.app.connection_for_write(**where)
        options = connection.transport_options
        connection.transport_options = {**options, "confirm_publish": False}
        return connection

    def _lost_connections(self) -> tuple[type[BaseException], ...]:
        known = (error for error in self.connection_errors if not issubclass(error, _AMBIGUOUS))
        return (OSError, AMQPError, OperationalError, *known)

    def _bury(self, message: Any, error: Exception, code: str) -> None:
        if is_machine_fault(error):  # a decoder wraps a MemoryError too
            self._give_back(message, error)
            return
        envelope = self._envelope(message)
        try:
            check_fields(message)
        except DamagedEnvelope as damaged:
            error, code, envelope = damaged, "DAMAGED_ENVELOPE", as_a_whole(message, envelope)
        _log.error(
            "undeliverable: %s from %s: %s", code, envelope.routing_key, text_of(error)[:500]
        )
        settlement, told = (
            runtime_of(self.app).settlement,
            partial(self._let_go, message, envelope, error),
        )
        then = partial(settlement.tell, envelope, told)
        settlement.bury(envelope, error, code, then, self._giving_back(message))

    def _let_go(self, message: Any, envelope: Envelope, error: Exception) -> None:
        tell_lost(self.app, message_of(self.app, envelope), error)
        self.call_soon(self._acknowledge, message)
        signals.task_rejected.send(sender=self, message=message, exc=error)

    def _acknowledge(self, message: Any) -> None:
        if not message.acknowledged:
            message.ack_log_error(_log, self.connection_errors)

    def _unknown_settled(self, message: Any, error: Exception) -> None:
        announce_unknown(self, message, error)
        self.call_soon(self._acknowledge, message)

    def _envelope(self, message: Any) -> Envelope:
        body = message.body
        if not isinstance(body, bytes | str):  # what a transport made of it
            body = dumps(body)
        headers = message.headers if isinstance(message.headers, dict) else {}
        info = message.delivery_info if isinstance(message.delivery_info, dict) else {}
        properties = message.properties if isinstance(message.properties, dict) else {}
        ride: BatchedClaim | None = getattr(message, BATCHED_CLAIM, None)
        return Envelope(
            ride.token if ride else os.urandom(16).hex(),
            runtime_of(self.app).owner,
            body,
            message.content_type or "",
            message.content_encoding or "",
            headers,
            properties,
            info,
            ride and sent_as(ride.answer),
            consumed_from(message),
            is_packed(message),
        )
