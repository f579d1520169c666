"""RequestStack: the requests that a task has in hand, as `Task.request_stack`.

Celery's own does the same by way of two objects and `__getattr__`, and is asked half a dozen times
for each message. It knows threads and greenlets alone: a coroutine that runs on a loop's thread
would have no request there, or another's. Here it has that of the delivery that runs it.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar, Token
from typing import Any, TypeAlias

from celery import _state
from celery.utils.threads import get_ident


class _Owner:
    """The thread or greenlet that takes a delivery; whatever a coroutine begins inherits it."""

    __slots__ = ("ident",)

    def __init__(self) -> None:
        self.ident: Hashable = get_ident()


_OWNER: ContextVar[_Owner | None] = ContextVar("angzarr_owner", default=None)
Owned: TypeAlias = Token[_Owner | None]


def own_stacks() -> Owned:
    """Let the coroutines of the delivery that begins here see this thread's stacks."""
    return _OWNER.set(_Owner())


def disown_stacks(owned: Owned) -> None:
    """End that: what a coroutine left running sees no request, and never the next delivery's."""
    owner = _OWNER.get()
    _OWNER.reset(owned)
    if owner is not None:
        owner.ident = object()


def whose() -> Hashable:
    """Return whose stacks are seen from here."""
    owner = _OWNER.get()
    return get_ident() if owner is None else owner.ident


def show_current_task() -> None:
    """Let ``celery.current_task``, and what a task sends, know the task of a coroutine, too."""
    stack = _state._task_stack  # noqa: SLF001 - what all of Celery asks
    if hasattr(stack, "__ident_func__"):  # not with USE_FAST_LOCALS, which has none
        stack.__ident_func__ = whose


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
