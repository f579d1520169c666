"""RequestStack: the requests that a task has in hand, as `Task.request_stack`.

Celery's own does the same by way of two objects and `__getattr__`, and is asked half a dozen times
for each message.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from celery.utils.threads import get_ident


class RequestStack:
    """A stack for each thread, or for each greenlet where there are greenlets."""

    __slots__ = ("_stacks",)

    def __init__(self) -> None:
        self._stacks: dict[Hashable, list[Any]] = {}

    def push(self, request: Any) -> list[Any]:
        """Put *request* on top."""
        stack: list[Any] = self._stacks.setdefault(get_ident(), [])
        stack.append(request)
        return stack

    def pop(self) -> Any:
        """Take the topmost off; None where there is none. The last one leaves nothing behind."""
        who = get_ident()
        stack = self._stacks.get(who)
        if not stack:
            return None
        if len(stack) == 1:
            del self._stacks[who]
        return stack.pop()

    @property
    def top(self) -> Any:
        """The topmost, or None."""
        stack = self._stacks.get(get_ident())
        return stack[-1] if stack else None

    @property
    def stack(self) -> list[Any]:
        """All of them, the topmost last."""
        return self._stacks.get(get_ident(), [])

    def __len__(self) -> int:
        return len(self.stack)
