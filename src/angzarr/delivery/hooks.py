"""Hooks: watch each attempt and each settled delivery. They never decide and never fail one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Protocol

from angzarr.delivery.delivery import Delivery
from angzarr.delivery.outcome import Outcome

_log = logging.getLogger("angzarr.hooks")


class Hook(Protocol):
    """Something that watches. What it raises is logged and goes no further."""

    def attempt(self, delivery: Delivery, /) -> AbstractContextManager[object]:
        """Return a context that is open while the handler runs."""

    def settled(self, delivery: Delivery, outcome: Outcome, /) -> None:
        """See a delivery whose outcome is true."""


class Hooks:
    """All hooks as one, each fenced off from the delivery."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)

    @contextmanager
    def attempt(self, delivery: Delivery) -> Iterator[None]:
        """Open every hook's context around the handler."""
        if not self._hooks:
            yield
            return
        stack = ExitStack()
        for hook in self._hooks:
            _guard(partial(_enter, stack, hook, delivery))
        try:
            yield
        finally:
            _guard(stack.close)

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        """Show a settled delivery to every hook."""
        for hook in self._hooks:
            _guard(partial(hook.settled, delivery, outcome))


def _enter(stack: ExitStack, hook: Hook, delivery: Delivery) -> None:
    stack.enter_context(hook.attempt(delivery))


def _guard(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - a hook must not fail a delivery
        _log.exception("hook_failed")
