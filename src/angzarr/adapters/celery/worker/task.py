"""The Celery task of an `Angzarr` app, which runs deliveries.

In a worker `__call__` decides and settles. Afterwards Celery's tracer hears only what it needs for
result, events and acknowledgement. Called directly, a task is the plain function.
"""

from __future__ import annotations

import threading
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import urlsplit

from billiard.common import terminate_handler_fired
from celery import Celery, Task
from celery.app.task import get_actual_ignore_result
from celery.backends.base import DisabledBackend
from celery.exceptions import Ignore, Reject, Retry
from celery.signals import task_postrun
from celery.utils.threads import LocalStack

from angzarr.adapters.celery.envelope import FIELD, SETTLED, TOLD, delivery_of
from angzarr.adapters.celery.publish.followers import (
    forget_followers,
    keep_told_retry,
    tell_skipped,
)
from angzarr.adapters.celery.publish.sealed_sends import FOLLOWING, sealing_as
from angzarr.adapters.celery.worker.binding import in_own_call, is_within
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.adapters.celery.worker.task_events import show_error
from angzarr.adapters.celery.worker.task_request import (
    UNSENT,
    RequestStack,
    UnsentSignature,
    asked_later,
    disown_stacks,
    own_stacks,
    show_current_task,
)
from angzarr.adapters.celery.worker.tracer import RaisedInRun, RoadTracer, Untold
from angzarr.delivery.batch_executor import SettledDelivery
from angzarr.delivery.completions import LeftCompletion
from angzarr.delivery.delivery import (
    DeadLettered,
    Delivery,
    Duplicate,
    Handled,
    Outcome,
    Parked,
    Postponed,
    Refused,
    Retried,
    Skipped,
    Superseded,
    ended_early,
)
from angzarr.delivery.sealed_origin import origin_in
from angzarr.errors import DeliveryError, GivenBack, Skip, text_of
from angzarr.payloads.claim_check import may_be_followed
from angzarr.runtime.failures import is_machine_fault

_REDIS: Final = ("redis", "rediss")


def ack_follows(task: Any, request: Any) -> bool:
    """True if no slow step comes between an outcome and the completion of its claim.

    Where nothing is stored, or in the very Redis that the claims are in, which is away for both or
    for none; and where no code of the task's own runs after it.
    """
    kind = type(task)
    if may_be_followed(vars(request)):  # perhaps by a chord, which is with its body
        return False
    if kind.on_success is not Task.on_success or kind.after_return is not Task.after_return:
        return False
    backend = task.backend
    if isinstance(backend, DisabledBackend):
        return True
    if get_actual_ignore_result(task, request) and not request.chord:
        return True
    return _one_server(backend.url or "", runtime_of(task.app).claims_url)


@lru_cache(maxsize=64)
def _one_server(url: str, other: str) -> bool:
    """True if both URLs name one Redis, in any of its databases."""
    try:
        places = [(parts.hostname, parts.port or 6379) for parts in map(urlsplit, (url, other))]
    except ValueError:  # no port is such a number
        return False
    schemes = {url.partition(":")[0], other.partition(":")[0]}
    return schemes <= set(_REDIS) and places[0] == places[1]


class AngzarrTask(Task):
    """The base of every task of an `Angzarr` app."""

    abstract = True
    _tracer: Any = None
    #: The `__call__` of a user's class, which runs around the body; None: it has none.
    own_call: Any = None
    #: Named, not imported: a process that only publishes needs no worker code.
    Request = "angzarr.adapters.celery.worker.request:AngzarrRequest"
    Strategy = "angzarr.adapters.celery.worker.strategy:road"

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        """A task whose own ``before_start`` fails as a part of the delivery."""
        made: Any = super().__new__(cls)
        if cls.before_start is not Task.before_start:
            made.before_start = partial(_begin, made, made.before_start)
        return made

    @classmethod
    def bind(cls, app: Celery) -> Any:
        """Bind to *app*, once with a quicker stack of requests."""
        bound = super().bind(app)
        said = cls.throws if isinstance(cls.throws, tuple) else (cls.throws,)
        # What fails is a dead letter, of which our own line tells: Celery's would be a second one.
        cls.throws = tuple(dict.fromkeys((*said, Exception)))
        if type(cls.request_stack) is LocalStack:
            cls.request_stack = RequestStack()
            show_current_task()
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the delivery in a worker; outside one, run only the function."""
        if self.own_call is not None and is_within(self):
            return self.run(*args, **kwargs)
        request = self.request  # looked up anew each time, by way of a stack
        sent = getattr(request, FIELD, None)
        if sent is None:
            return self._run_directly(args, kwargs)
        if getattr(FOLLOWING.get(), FIELD, None) is sent:  # its own body calls it, as a function
            return self._run_body(args, kwargs)
        told = getattr(request, TOLD, None)
        if told and isinstance(told[-1], RaisedInRun):  # it has run
            raise told.pop().error
        return self.deliver(request, args, kwargs, ack_follows=ack_follows(self, request))

    def deliver(self, request: Any, args: Any, kwargs: Any, *, ack_follows: bool) -> Any:
        """Run the delivery of *request*; raises what Celery's tracer is to report."""
        settled: SettledDelivery | None = getattr(request, SETTLED, None)
        delivery = (
            settled.delivery
            if settled is not None
            else delivery_of(
                self.app, getattr(request, FIELD), args, kwargs, ack_follows=ack_follows
            )
        )
        runtime, told = runtime_of(self.app), getattr(request, TOLD, [])
        failed = told.pop() if told else None  # by `_begin`
        following, owned = FOLLOWING.set(request), own_stacks()
        try:
            outcome = self._take(delivery, failed) if settled is None else settled.result()
            told.append(runtime.executor().settler.leave(delivery, outcome) or True)
        except GivenBack as error:
            told.append(False)
            raise Reject(error, requeue=True) from error
        except BaseException as error:
            its_own = not (runtime.stopping.cutting or terminate_handler_fired())
            if its_own:  # its parent has not asked it to end
                runtime.executor().release_dying(delivery, error)
            if threading.current_thread() is threading.main_thread():
                raise  # the process ends, and its parent frees a claim that is left
            # A pool of threads would neither end nor give the message back.
            if not its_own:
                runtime.executor().claimer.release(delivery, counted=False)
            told.append(False)
            raise Reject(error, requeue=True) from error
        finally:
            disown_stacks(owned)
            FOLLOWING.reset(following)
        value = self._tell(outcome, delivery, request)
        # Not before an error: by what follows, Celery tells its failure to the rest of a chain.
        if ended_early(outcome):
            tell_skipped(self, request)
        forget_followers(request)
        return value

    def _take(self, delivery: Delivery, failed: Exception | None) -> Outcome | None:
        """Run the delivery; give it back if *failed* says that the machine lacked something."""
        executor = runtime_of(self.app).executor()
        if failed is not None and is_machine_fault(failed) and not isinstance(failed, OSError):
            executor.claimer.release(delivery, counted=False)  # files have their retries
            msg = f"it could not begin: {failed!r}"
            raise GivenBack(msg) from failed
        return executor.take(delivery, failed)

    @property
    def __trace__(self) -> Any:
        """Celery's tracer for this task, watched: it could fail before the delivery runs."""
        return self._tracer

    @__trace__.setter
    def __trace__(self, tracer: Any) -> None:
        self._tracer = tracer and RoadTracer(self, tracer)

    def settle_unrun(self, failed: Exception, *run: Any) -> None:
        """Settle what *failed* before its handler ran; raises GivenBack."""
        self._take(delivery_of(self.app, *run), failed)

    def complete(self, left: LeftCompletion, *run: Any) -> None:
        """End the claim of a run that left it to an acknowledgement; raises GivenBack."""
        runtime_of(self.app).executor().complete(delivery_of(self.app, *run), left)

    def _run_directly(self, args: Any, kwargs: Any) -> Any:
        """Run as Celery would: in a test, by ``apply()``, or under ``task_always_eager``."""
        request = self.request
        if request.called_directly:
            return self._run_body(args, kwargs)
        try:
            return runtime_of(self.app).run_eagerly(self, args, kwargs)
        except Skip:
            forget_followers(request)
            return None

    def _run_body(self, args: Any, kwargs: Any) -> Any:
        """Run the function, within the user's own `__call__` if there is one."""
        if self.own_call is None:
            return super().__call__(*args, **kwargs)
        return in_own_call(self, args, kwargs)

    def _tell(self, outcome: Outcome | None, delivery: Delivery, request: Any) -> Any:
        """The result for the tracer, or an error that it is to report.

        All that must not be lost has been made true before.
        """
        match outcome:
            case Handled(raised=None, value=value) | Duplicate(value=value):
                return value
            case Handled(raised=BaseException() as raised):
                raise raised
            case Skipped():
                return None
            case Retried(error=error, delay=delay, text=text):
                show_error(delivery.message.id, f"in {delay.total_seconds()} s: {text}")
                keep_told_retry(request)
                raise Retry(exc=error, when=delay.total_seconds()) from error
            case DeadLettered(
                error=MemoryError() | Reject() | Ignore() | Retry() as error, letter=letter
            ):
                # To Celery these are orders, a MemoryError even one to end the worker.
                msg = f"{type(error).__name__}: {text_of(error)}"
                show_error(delivery.message.id, letter.error_message, letter.error_stack)
                raise DeliveryError(msg) from error
            case DeadLettered(error=error, letter=letter):
                show_error(delivery.message.id, letter.error_message, letter.error_stack)
                raise error
            case Refused(error=error) if delivery.redelivered or request.chain or request.chord:
                # Who settled it may have died before its result, its errbacks and its chord were
                # told, or a chain or a chord goes on only with this very message: they hear of it
                # twice rather than never.
                raise error
            case Postponed() | Parked() | Refused() | Superseded() | None:
                # Celery formats the traceback of each Ignore, twice: two milliseconds, where a
                # postponement costs two. Who listens for its state is told as Celery would.
                raise Ignore if task_postrun.receivers else Untold

    def retry(  # noqa: PLR0917 - Celery's signature
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Exception | None = None,
        throw: bool = True,  # noqa: FBT001, FBT002 - Celery's signature
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """Ask for another run, as Celery's own `retry` says whether there is one.

        Where none is left it raises *exc* or MaxRetriesExceededError: the task may catch it, but
        no error of this run is tried again. With *throw* False it returns what it would raise,
        and the run is followed by another one however it ends.

        Settle publishes the copy, so a failing publish loses nothing. *options*, which Celery
        would pass to ``apply_async``, have no effect: a copy goes back to the queue it came from.
        """
        request, celerys = self.request, super().retry
        if request.called_directly or request.is_eager:
            return celerys(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        later = asked_later(
            self, celerys, args, kwargs, exc, eta=eta, countdown=countdown, most=max_retries
        )
        if throw:
            raise later
        return later

    def replace(self, sig: Any) -> Any:
        """Celery's own: what takes its place brings along what follows, encrypted as it came."""
        with sealing_as(origin_in(vars(self.request))):
            return super().replace(sig)

    def add_to_chord(self, sig: Any, lazy: bool = False) -> Any:  # noqa: FBT001, FBT002 - Celery's
        """Celery's own: what is added brings the chord's body along, encrypted as it came."""
        with sealing_as(origin_in(vars(self.request))):
            return super().add_to_chord(sig, lazy)

    def signature_from_request(
        self, request: Any = None, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any
    ) -> Any:
        """Celery's signature, but for `retry` one that is never sent."""
        if UNSENT in options:
            return UnsentSignature.of(self.request if request is None else request, args, kwargs)
        return super().signature_from_request(request, args, kwargs, *rest, **options)

    subtask_from_request = signature_from_request


def _begin(task: Any, before_start: Any, task_id: str, args: Any, kwargs: Any) -> None:
    """Run a task's own *before_start*, and keep its error as the delivery's own.

    Celery would end the chain and the chord around it, of an event that may be tried again.
    """
    told: list[Any] | None = getattr(task.request, TOLD, None)
    if told is None:  # it is no delivery
        before_start(task_id, args, kwargs)
        return
    try:
        before_start(task_id, args, kwargs)
    except Ignore:
        raise
    except Exception as error:  # noqa: BLE001 - it counts as the handler's own
        told.append(error)
