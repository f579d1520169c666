"""Configurations as a handler reads them: always the version that its event is pinned to (spec F3).

An event is pinned by its publisher, or by the first run that reads: the pin is written beside the
claim before the value is returned. From then on copies, letters and all that follows carry it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from angzarr.configuration.pins import MOST_PINS, PinStore
from angzarr.configuration.reader import ConfigurationReader, PinnedVersion
from angzarr.delivery.delivery import Delivery
from angzarr.delivery.retry_until_available import RetryUntilAvailable
from angzarr.errors import ConfigurationError, ConfigurationVersionMissing
from angzarr.events.headers import CONFIG_PINS, are_pins_unreadable
from angzarr.runtime.cooperative import call_blocking, in_event_loop


class ConfigurationReads(Protocol):
    """What the handler of one event reads."""

    def read(self, id: str, /) -> PinnedVersion:
        """The version of configuration *id* that the event is pinned to, from now on at least."""

    async def aread(self, id: str, /) -> PinnedVersion:
        """The same; the event loop goes on meanwhile."""


class NoConfiguration:
    """Refuses: this context belongs to no app."""

    def read(self, id: str, /) -> PinnedVersion:
        """Refuse."""
        msg = f"this context does not belong to an app: configuration {id!r} is not known here"
        raise ConfigurationError(msg)

    async def aread(self, id: str, /) -> PinnedVersion:
        """Refuse."""
        return self.read(id)


@dataclass(slots=True)
class DeliveryConfiguration:
    """Made for each delivery, so it is light: nothing is asked unless the handler reads.

    *pins* None: of a call that is not claimed, whose first reads no other process could know.
    """

    delivery: Delivery
    reader: Callable[[], ConfigurationReader]
    pins: PinStore | None

    def read(self, id: str, /) -> PinnedVersion:
        """See `ConfigurationReads.read`. Raises ConfigurationError within an event loop."""
        _refuse_in_a_loop()
        return call_blocking(partial(self._read, id))

    async def aread(self, id: str, /) -> PinnedVersion:
        """See `ConfigurationReads.aread`."""
        return await asyncio.to_thread(self._read, id)

    def _read(self, id: str) -> PinnedVersion:
        reader, pinned = self.reader(), self.delivery.event.config_pins
        if (version := pinned.get(id)) is not None:
            return reader.pinned(id, version)
        if are_pins_unreadable(self.delivery.message.headers):
            msg = (
                f"the header {CONFIG_PINS} of event {self.delivery.event.id} is not a JSON object"
                " of configurations and versions: correct its publisher and publish it again"
            )
            raise ConfigurationVersionMissing(msg)
        if len(pinned) >= MOST_PINS:
            msg = f"event {self.delivery.event.id} is pinned to {MOST_PINS} configurations already"
            raise ConfigurationError(msg)
        current = reader.current(id)
        if self.pins is None:
            kept = {id: current.version}
        else:
            kept = dict(self.pins.keep(self.delivery.key, {id: current.version}))
        self.delivery.pin(kept)
        version = self.delivery.event.config_pins[id]
        return current if version == current.version else reader.pinned(id, version)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedConfiguration:
    """Configurations of one process. Safe to use from many threads."""

    reader: Callable[[], ConfigurationReader]
    pins: PinStore
    retry: RetryUntilAvailable

    def of(self, delivery: Delivery) -> DeliveryConfiguration:
        """What the handler of *delivery* reads."""
        return DeliveryConfiguration(delivery, self.reader, self.pins)

    def recall(self, delivery: Delivery, *, began: bool) -> None:
        """Pin *delivery* to what an earlier run of it read, if one *began* or may have.

        That run may have died since. A letter or a copy that is made without a further run carries
        its pins all the same. A delivery that comes for the first time costs nothing.
        """
        if not (began or delivery.redelivered):
            return
        kept = self.retry.until_done(
            lambda: self.pins.read(delivery.key),
            what="read what it is pinned to",
            delivery=delivery,
        )
        delivery.pin(kept)


def _refuse_in_a_loop() -> None:
    if not in_event_loop():
        return
    msg = "ctx.config would block the event loop while it reads: use await ctx.aconfig(…)"
    raise ConfigurationError(msg)
