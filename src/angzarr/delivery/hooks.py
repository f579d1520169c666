"""Hooks: watch each attempt and each settled delivery. They never decide and never fail one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
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

    def attempt(self, delivery: Delivery) -> AbstractContextManager[object]:
        """Return a context around the handler, made of every hook's own."""
        return _Attempt(self._hooks, delivery)

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        """Show a settled delivery to every hook."""
        for hook in self._hooks:
            try:
                hook.settled(delivery, outcome)
            except Exception:  # noqa: BLE001 - a hook must not fail a delivery
                _log.exception("hook_failed")


class _Attempt:
    """The open contexts of one attempt: an ExitStack whose members cannot break it."""

    __slots__ = ("_delivery", "_hooks", "_open")

    def __init__(self, hooks: Sequence[Hook], delivery: Delivery) -> None:
        self._hooks = hooks
        self._delivery = delivery
        self._open: list[AbstractContextManager[object]] = []

    def __enter__(self) -> None:
        for hook in self._hooks:
            try:
                context = hook.attempt(self._delivery)
                context.__enter__()
                self._open.append(context)
            except Exception:  # noqa: BLE001 - a hook must not fail a delivery
                _log.exception("hook_failed")

    def __exit__(self, *error: object) -> None:
        for context in reversed(self._open):
            try:
                context.__exit__(None, None, None)
            except Exception:  # noqa: BLE001 - a hook must not fail a delivery
                _log.exception("hook_failed")
