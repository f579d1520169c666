"""Steps: what one delivery finished, and knows of what earlier runs of its event finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from angzarr.delivery.compensation import CompensationAction, Place, Step, StepLog, Undos, place_of
from angzarr.delivery.context import StepRetries
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.handlers import Handler
from angzarr.errors import ConfigurationError, DeliveryError

#: How often a write is tried in place (spec D3).
POLICY = "event_handler"


class Steps:
    """Made for each delivery, so it is light: nothing is asked or written unless a step is."""

    __slots__ = ("_log", "_undos", "cause", "delivery", "handler", "known", "retries", "unwritten")

    def __init__(
        self,
        delivery: Delivery,
        handler: Handler,
        undos: Undos,
        log: StepLog | None,
        retries: Callable[[str], StepRetries],
    ) -> None:
        """*log* None: of a call that is not claimed, whose steps nobody else could undo."""
        self.delivery = delivery
        self.handler = handler
        self._undos = undos
        self._log = log
        self.retries = retries
        #: Whether something may be in the log.
        self.known = False
        #: Why the log says that undoing began, if a parent process said so.
        self.cause = ""
        #: The steps of this run that the log may lack, in their order.
        self.unwritten: dict[str, Step] = {}

    @property
    def place(self) -> Place:
        """Where its log is."""
        return place_of(self.delivery)

    def register(self, action: CompensationAction) -> None:
        """See `Context.register_compensation`."""
        step = self._noted(action)
        _refuse_in_a_loop()
        if self._log is not None:
            add = partial(self._log.add, self.place, step)
            self._written(step, ours=self.retries(POLICY).call(add))

    async def aregister(self, action: CompensationAction) -> None:
        """See `Context.aregister_compensation`."""
        step = self._noted(action)
        if self._log is not None:
            add = partial(self._log.add, self.place, step)
            done = await self.retries(POLICY).acall(lambda: asyncio.to_thread(add))
            self._written(step, ours=done)

    def _noted(self, action: CompensationAction) -> Step:
        """Return the step, which is undone from here on should the log not get it."""
        step = self._undos.step(action)
        self.unwritten.pop(step.name, None)
        self.unwritten[step.name] = step
        self.known = True
        return step

    def _written(self, step: Step, *, ours: bool) -> None:
        if not ours:
            msg = f"step {step.name!r} is not kept: another delivery has taken this event over"
            raise DeliveryError(msg)
        self.unwritten.pop(step.name, None)


def _refuse_in_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    msg = (
        "ctx.register_compensation would block the event loop while the step is written: use"
        " await ctx.aregister_compensation(…)"
    )
    raise ConfigurationError(msg)
