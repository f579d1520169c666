"""A delivery in the parent process, which gives it its token."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Final

from billiard.common import TERM_SIGNAME
from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from celery.app.task import Context
from celery.exceptions import TaskRevokedError, TimeLimitExceeded
from celery.platforms import signals
from celery.worker import state
from celery.worker.request import Request

from angzarr.adapters.celery.claim_batch import BATCHED_CLAIM, BatchedClaim, LeftToAck
from angzarr.adapters.celery.envelope import FIELD, Envelope, custom_headers, sent_as
from angzarr.adapters.celery.message_check import COUNTED, check_headers, checked_body, upgraded
from angzarr.adapters.celery.worker.consumer_state import MALFORMED
from angzarr.adapters.celery.worker.message_receiver import consumed_from
from angzarr.adapters.celery.worker.pools import is_lost
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.task_events import (
    announce_buried,
    announce_end,
    announce_revoked,
)
from angzarr.adapters.celery.worker.unheard_error import UnheardError
from angzarr.clock import SystemClock
from angzarr.delivery.delivery import Outcome
from angzarr.errors import DeliveryError, ExpiredError, RevokedError
from angzarr.events import headers as names
from angzarr.runtime.failures import is_machine_fault

_log = logging.getLogger("angzarr.worker")
_CELERYS_LOG: Final = logging.getLogger("celery.worker.request")

#: Errors of pickle alone, on a message that cannot go to a child.
_UNWRITABLE: Final = (RecursionError, pickle.PicklingError)


class AngzarrRequest(Request):
    """Celery's request plus the raw message, a token, and the owner whose lease covers it.

    What a child returned it has settled; how a delivery ended otherwise is settled from here.
    """

    _on_ack: Any

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the two methods that Celery writes into the class it makes for each task."""
        super().__init_subclass__(**options)
        acknowledge, hand_over = cls.on_success, cls.execute_using_pool

        def on_success(request: Any, told: Any, **kwargs: Any) -> Any:
            return request.take_end(told, partial(acknowledge, request, told, **kwargs))

        def execute_using_pool(request: Any, pool: Any, **kwargs: Any) -> Any:
            try:
                return hand_over(request, pool, **kwargs)
            except TaskRevokedError:
                raise
            except Exception as error:
                if is_lost(error):
                    raise
                request.fail_to_begin(pool, error)
                raise TaskRevokedError(request.id) from error  # Celery frees its slot

        cls.on_success, cls.execute_using_pool = on_success, execute_using_pool

    def take_end(self, told: Any, acknowledge: Callable[[], Any]) -> Any:
        """Do what follows the end that *told* says; Celery would *acknowledge*, and more."""
        if isinstance(told, ExceptionInfo):  # a solo pool says so of what would end its process
            return self.on_failure(told)
        failed, shown, runtime = told
        if type(shown) is LeftToAck:
            self.leave_to_ack(shown)
        if type(shown) is UnheardError and shown.acknowledge(self):
            return None
        if failed or self.notes_success(self._app):
            return acknowledge()
        state.task_ready(self)
        if self.task.acks_late:
            self.acknowledge()
        return self.send_event("task-succeeded", result=shown, runtime=runtime)

    #: The batch in which it runs; None: it runs alone.
    batch: str | None = None
    #: Whether Celery is to know of each success; None: not asked yet.
    _notes_success: bool | None = None

    @classmethod
    def notes_success(cls, app: Any) -> bool:
        """True if Celery keeps the ids of what succeeded, by which it knows what comes again."""
        if cls._notes_success is None:
            cls._notes_success = bool(app.conf.worker_deduplicate_successful_tasks)
        return cls._notes_success

    def __init__(self, message: Any, **options: Any) -> None:
        self._ride: BatchedClaim | None = getattr(message, BATCHED_CLAIM, None)
        if self._ride is None:  # else it was checked before it was claimed
            check_headers(options.get("headers") or message.headers)
            checked_body(options["body"] if options.get("decoded") else message.payload)
        super().__init__(message, **options)
        request = self._request_dict
        for name in COUNTED:
            if request.get(name, 0) is None:  # a task that counts on from it could not
                del request[name]
        if waited_for := request.get(names.WAITED_FOR):  # the task sees it; no timer does
            request["eta"] = waited_for
        body, content_type, encoding, headers = self._raw(message)
        # A bare tuple: pickle spells out the name of any other class in each message. What stands
        # in the request too (body, properties, delivery_info) costs a reference.
        request[FIELD] = (
            self._ride.token if self._ride else os.urandom(16).hex(),
            runtime_of(self._app).owner,
            body,
            content_type,
            encoding,
            headers,
            request["properties"],
            self._delivery_info,
            self._ride and sent_as(self._ride.answer),
            consumed_from(message),
            False,  # it was unpacked, if it ever was packed
        )
        self._hand_on_decoded()

    def _raw(self, message: Any) -> tuple[Any, str, str, Any]:
        """Body, content type, encoding and headers for a copy."""
        if self._decoded:  # Celery made it of a body that says more than the arguments
            body, headers = upgraded(self._body, self._request_dict)
            return body, "application/json", "utf-8", {**message.headers, **headers}
        return message.body, message.content_type, message.content_encoding, message.headers

    def _hand_on_decoded(self) -> None:
        """Let who runs the task have the body as it was decoded here, so that it is not read twice.

        Celery sends its text along and has it decoded again, beside the arguments in the request.
        """
        if not self._decoded:
            self._body, self._content_type, self._content_encoding = self._payload, None, None

    def maybe_expire(self) -> bool:
        """True if its deadline has passed, by the clock that all else goes by."""
        deadline = self.expires
        if deadline is None or SystemClock().now() <= deadline:
            return False
        state.revoked.add(self.id)
        return True

    def on_failure(self, exc_info: Any, *args: Any, return_ok: bool = False) -> None:
        """Settle what ended outside its child: its process died, or was killed for its time."""
        if return_ok:
            super().on_failure(exc_info, *args, return_ok=True)
            return
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        state.task_ready(self)
        if self._already_revoked:
            return  # it is being settled
        if isinstance(error, TimeLimitExceeded) and not self._ended_by_us:
            self._settle(error, partial(announce_end, self))
            return
        _log.error("process_lost: of task %s[%s]: %s", self.name, self.id, error)
        self.give_back()

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Note that it runs. An event that cannot be sent must not keep a thread from it.

        A pool of threads would never run it, nor ever tell how it ended.
        """
        try:
            self._note_accepted(pid, time_accepted)
        except Exception as error:  # noqa: BLE001 - the broker of events is away
            _log.warning("not_announced: the task runs; Celery's events lack it: %r", error)

    def _note_accepted(self, pid: int, time_accepted: float) -> None:
        asked = self._terminate_on_ack is not None or _CELERYS_LOG.isEnabledFor(logging.DEBUG)
        if asked or not self.task.acks_late:
            super().on_accepted(pid, time_accepted)
            return
        self.worker_pid = pid
        self.time_start = time.time() - (time.monotonic() - time_accepted)
        state.requests[self.id] = self
        state.active_requests.add(self)
        state.total_count[self.name] += 1
        state.all_total_count[0] += 1
        self.send_event("task-started")

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """End its run, of which it is settled as revoked.

        One that shares its process with others ends alone, whatever the *signal*.
        """
        run = None if self._apply_result is None else self._apply_result()
        cut_for = getattr(run, "cut_for", None)
        if cut_for is None:
            super().terminate(pool, signal)
            return
        number = signals.signum(signal or TERM_SIGNAME)
        cut_for(partial(self._announce_revoked, "terminated", True, number, False))  # noqa: FBT003 - Celery's signature

    def on_timeout(self, soft: bool, timeout: float) -> None:  # noqa: FBT001 - Celery's signature
        """Log it; a hard limit was settled by `on_failure`, which comes first."""
        if soft:
            super().on_timeout(soft, timeout)
        elif not self._ended_by_us:
            _log.error("hard_time_limit: of %s s exceeded by %s[%s]", timeout, self.name, self.id)

    def leave_to_ack(self, left: LeftToAck) -> None:
        """End the claim with the acknowledgement, or before it; *left* says how."""
        if self._ride is None:
            return
        # Not of the request: it holds its message, which is to hold this.
        note = partial(runtime_of(self._app).settlement.note_fenced, self._envelope)
        batch = runtime_of(self._app).claim_batch
        if not batch.leave(self._message, self._ride, left, note):
            self._on_ack = partial(self._complete_first, self._ride, left, note, self._on_ack)

    def _complete_first(
        self,
        ride: BatchedClaim,
        left: LeftToAck,
        note_fenced: Callable[[], None],
        acknowledge: Callable[..., object],
        *how: Any,
    ) -> None:
        """Acknowledge once the claim store has confirmed the completion, which others join.

        A completion that cannot be made keeps its message, which goes back.
        """

        def then(still_ours: bool) -> None:  # noqa: FBT001
            if not still_ours:
                note_fenced()
            acknowledge(*how)

        def refuse(_error: Exception) -> None:
            self.acknowledged = False
            runtime_of(self._app).settlement.after_pause(self._envelope, self._requeue)

        runtime_of(self._app).claim_batch.complete(ride, left, then, refuse)

    def reject(self, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - Celery's signature
        """Give the message back after a pause; one that Celery would drop becomes a letter first.

        A child that gives a message back while this worker goes on broke off for an unforeseen
        reason: at once the message would come round in a hot loop (trap 5).
        """
        if self.acknowledged:
            return
        if requeue:
            runtime_of(self._app).settlement.after_pause(self._envelope, self._requeue)
            return
        msg = f"Celery rejected {self.name}[{self.id}] for good"
        self._bury(DeliveryError(msg), "REJECTED")

    def _requeue(self) -> None:
        super().reject(requeue=True)

    def fail_to_begin(self, pool: Any, error: Exception) -> None:
        """Settle what *pool* could not take: a letter, or it goes back.

        It is a letter if the message is at fault: it cannot be written for a child. One that has
        begun (solo) ran, and one that was acknowledged has its end.
        """
        state.task_ready(self)
        self.discard_job(pool)
        if self.acknowledged:
            _log.error("failed_after_its_end: of task %s[%s]", self.name, self.id, exc_info=error)
            return
        receipts, found = runtime_of(self._app).movement.receipts, None
        if self.time_start is None:
            unwritable = isinstance(error, _UNWRITABLE) or not self._can_travel()
            found = (MALFORMED, error) if unwritable else receipts.fault_of(self._message, error)
        if found:
            code, reason = found
            self._bury(reason, code)
            return
        runtime_of(self._app).settlement.give_back(
            self._envelope, counted=False, then=self._requeue,
            pause=receipts.fail(error, f"task {self.name}[{self.id}]"),
        )  # fmt: skip

    def discard_job(self, pool: Any) -> None:
        """Let *pool* forget the job of this request, which it could not send."""
        for job in list(getattr(getattr(pool, "_pool", None), "_cache", {}).values()):
            if job.correlation_id == self.pool_job and getattr(job, "_payload", None) is None:
                job.discard()

    @property
    def pool_job(self) -> str:
        """The name of the pool's job that runs it: its own, or that of its batch."""
        return self.batch or str(self.id)

    @property
    def call(self) -> tuple[str, dict[str, Any], Any]:
        """What the process that runs it gets: its id, its fields and its decoded body."""
        return self.id, self._request_dict, self._body

    @property
    def embedded(self) -> dict[str, Any]:
        """What its body says besides the arguments: followers, for one."""
        return self._body[2] or {}

    def keep_result(self, result: Any) -> None:
        """Keep the weak reference *result* to the pool's job, by which it can be ended."""
        self._apply_result = result

    def _can_travel(self) -> bool:
        """False if it cannot be pickled: JSON may be nested deeper than that."""
        try:
            pickle.dumps((self._request_dict, self._body), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - what it is made of came from a queue
            return is_machine_fault(error)
        return True

    def _bury(self, error: Exception, code: str) -> None:
        """Make a letter of the message, then tell who waits for its result; acknowledge last."""
        settlement, envelope = runtime_of(self._app).settlement, self._envelope

        def told() -> None:
            announce_buried(self, error)
            self.acknowledge()

        settlement.bury(
            envelope, error, code, lambda: settlement.tell(envelope, told), self._requeue
        )

    @property
    def _ended_by_us(self) -> bool:
        """True if its parent ended its child: such a start is not poison.

        Until the grace has ended a worker that stops ends none: who died then died of itself.
        """
        stopping = runtime_of(self._app).stopping
        return bool(self._already_cancelled or stopping.cutting or state.should_terminate)

    @cached_property
    def _context(self) -> Context:
        """The task's request as hooks and result backends see it, with users' headers only."""
        embed = self._payload[2] or {}
        headers = custom_headers(self._request_dict)
        return Context({**self._request_dict, **embed, "headers": headers})

    @property
    def _envelope(self) -> Envelope:
        return Envelope._make(self._request_dict[FIELD])

    def _announce_revoked(self, reason: str, terminated: Any, signum: Any, expired: Any) -> None:
        """Make a letter of it; Celery would acknowledge it and only inform its listeners."""
        state.task_ready(self)
        self._already_revoked = True
        error = ExpiredError if expired else RevokedError
        how = {"terminated": terminated, "signum": signum, "expired": expired}
        self._settle(
            error(f"{self.name}[{self.id}] {_WORDS.get(reason, reason)}"),
            lambda outcome: announce_revoked(self, outcome, reason, **how),
        )

    def _settle(self, error: Exception, announce: Any) -> None:
        def told(outcome: Outcome | None) -> None:
            announce(outcome)
            self.acknowledge()

        runtime_of(self._app).settlement.settle(
            self._envelope, self._args, self._kwargs, error, told
        )

    def give_back(self) -> None:
        """Free the claim of what ended, or is let run on by a worker that ends; then give back.

        After a lost connection there is nothing to give back to: the broker has it already.
        """
        then = None if self._already_cancelled else self._requeue
        runtime_of(self._app).settlement.give_back(
            self._envelope, counted=not self._ended_by_us, then=then
        )


#: How a task ended that Celery calls revoked.
_WORDS = {
    "expired": "arrived after it had expired",
    "revoked": "was revoked",
    "terminated": "was revoked while it ran",
}
