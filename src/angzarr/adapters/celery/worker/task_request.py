"""The requests that a task has in hand, and `self.retry`.

Celery asks its own stack half a dozen times for each message, and knows only threads and greenlets.
`RequestStack` is quicker and also serves coroutines on a loop's thread. `self.retry` of Celery
would publish at once, beside the run that asks; here settle sends the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar, Token
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from celery import _state
from celery.exceptions import MaxRetriesExceededError, Retry
from celery.utils.threads import get_ident
from celery.utils.time import maybe_make_aware
from kombu.utils.json import dumps

from angzarr.delivery.invoke import RETRY_REQUEST, RetryRequest
from angzarr.errors import RetryLater


class _Owner:
    """The thread or greenlet that takes a delivery; whatever a coroutine begins inherits it."""

    __slots__ = ("ident",)

    def __init__(self) -> None:
        self.ident: Hashable = get_ident()


_OWNER: ContextVar[_Owner | None] = ContextVar("angzarr_owner", default=None)
#: None: they are owned already, by whoever will disown them.
Owned: TypeAlias = Token[_Owner | None] | None


def own_stacks() -> Owned:
    """Let the coroutines of the delivery that begins here see this thread's stacks."""
    owner = _OWNER.get()
    if owner is not None and owner.ident == get_ident():
        return None
    return _OWNER.set(_Owner())


def disown_stacks(owned: Owned) -> None:
    """End that: what a coroutine left running sees no request, and never the next delivery's."""
    if owned is None:
        return
    owner = _OWNER.get()
    _OWNER.reset(owned)
    if owner is not None:
        owner.ident = object()


def whose() -> Hashable:
    """The owner of the stacks that are seen from here."""
    owner = _OWNER.get()
    return get_ident() if owner is None else owner.ident


def show_current_task() -> None:
    """Let ``celery.current_task``, and what a task sends, know the task of a coroutine, too."""
    stack = _state._task_stack  # noqa: SLF001 - what all of Celery asks
    if hasattr(stack, "__ident_func__"):  # not with USE_FAST_LOCALS, which has none
        stack.__ident_func__ = whose


#: Where Celery's stack of running tasks keeps its items, by owner; None: it is written in C.
_RUNNING: Final[dict[Hashable, dict[str, list[Any]]] | None] = getattr(
    getattr(_state._task_stack, "_local", None), "__storage__", None  # noqa: SLF001
)  # fmt: skip


def begin_task(task: Any) -> None:
    """Put *task* on Celery's stack of running tasks, as its own push does in ten times the time."""
    if _RUNNING is None:
        _state._task_stack.push(task)  # noqa: SLF001
        return
    held = _RUNNING.setdefault(whose(), {})
    held.setdefault("stack", []).append(task)


def end_task() -> None:
    """Take the topmost off again; the last one leaves nothing behind."""
    if _RUNNING is None:
        _state._task_stack.pop()  # noqa: SLF001
        return
    who = whose()
    stack = _RUNNING[who]["stack"]
    if len(stack) == 1:
        del _RUNNING[who]
    else:
        stack.pop()


class RequestStack:
    """A stack for each thread, or for each greenlet where there are greenlets; see `whose`."""

    __slots__ = ("_stacks",)

    def __init__(self) -> None:
        self._stacks: dict[Hashable, list[Any]] = {}

    def push(self, request: Any) -> list[Any]:
        """Put *request* on top."""
        stack: list[Any] = self._stacks.setdefault(whose(), [])
        stack.append(request)
        return stack

    def pop(self) -> Any:
        """Take the topmost off; None where there is none. The last one leaves nothing behind."""
        who = whose()
        stack = self._stacks.get(who)
        if not stack:
            return None
        if len(stack) == 1:
            del self._stacks[who]
        return stack.pop()

    @property
    def top(self) -> Any:
        """The topmost, or None."""
        stack = self._stacks.get(whose())
        return stack[-1] if stack else None

    @property
    def stack(self) -> list[Any]:
        """All of them, the topmost last."""
        return self._stacks.get(whose(), [])

    def __len__(self) -> int:
        return len(self.stack)


#: The option by which a task knows that Celery's `Task.retry` asks, and that nothing is to be sent.
UNSENT: Final = "angzarr_unsent"
#: What Celery's method leaves behind on a task: the bound of one call, for all later ones.
_LEFT_BEHIND: Final = "override_max_retries"


class AskedRetry(RetryLater, Retry):
    """The error of `self.retry`: ours to the pipeline, Celery's own to code that catches it."""

    def __str__(self) -> str:
        return self.reason or "the task asked to be retried"


class UnsentSignature(NamedTuple):
    """Stands for the signature that Celery's `Task.retry` would send."""

    args: Any
    kwargs: Any

    @classmethod
    def of(cls, request: Any, args: Any, kwargs: Any) -> UnsentSignature:
        """The arguments of the next run; None: those of *request*."""
        return cls(
            request.args if args is None else args, request.kwargs if kwargs is None else kwargs
        )

    def apply_async(self) -> None:
        """Send nothing."""


def asked_later(
    task: Any,
    celerys: Callable[..., Any],
    args: Any,
    kwargs: Any,
    exc: Exception | None,
    *,
    eta: datetime | None,
    countdown: float | None,
    most: int | None,
) -> AskedRetry:
    """The retry that *task* asks for by Celery's own method *celerys*; it is noted.

    Raises *exc* or MaxRetriesExceededError where none is left, and notes that.
    """
    asked = RETRY_REQUEST.get() or RetryRequest()
    said = _said_by(celerys, task, args, kwargs, exc, most, asked)
    asked.retry = AskedRetry(
        _wait(task, eta, countdown),
        max_attempts=0,  # Celery has counted
        cause=exc,
        body=_edited_body(task.request, said.sig),
    )
    return asked.retry


def _said_by(  # noqa: PLR0917 - what the method takes
    celerys: Callable[..., Any],
    task: Any,
    args: Any,
    kwargs: Any,
    exc: Exception | None,
    most: int | None,
    asked: RetryRequest,
) -> Any:
    before = task.__dict__.get(_LEFT_BEHIND)
    try:
        return celerys(args, kwargs, exc, throw=False, max_retries=most, **{UNSENT: True})
    except Exception as error:
        asked.used_up = True
        if error is exc or not isinstance(error, MaxRetriesExceededError):
            raise
        # Celery's text shows all arguments: secrets in logs, and no two letters of one group.
        msg = f"Can't retry {task.name}[{task.request.id}]: its retries are used up"
        told = type(error)(msg, task_args=error.task_args, task_kwargs=error.task_kwargs)
        raise told from error.__cause__
    finally:
        if before is None:
            task.__dict__.pop(_LEFT_BEHIND, None)


def _wait(task: Any, eta: datetime | None, countdown: float | None) -> timedelta:
    if eta:
        left: timedelta = maybe_make_aware(eta) - task.app.now()
        return max(left, timedelta(0))
    return timedelta(seconds=task.default_retry_delay if countdown is None else countdown)


def _edited_body(request: Any, again: UnsentSignature) -> bytes | None:
    """The body of a copy with other arguments, or None if they stay as they are."""
    if (list(again.args), again.kwargs) == (list(request.args or ()), request.kwargs):
        return None
    embed = {
        "callbacks": request.callbacks,
        "errbacks": request.errbacks,
        "chain": request.chain,
        "chord": request.chord,
    }
    return str(dumps([again.args, again.kwargs, embed])).encode()
