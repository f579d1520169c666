"""Movement: what shows that a worker's consumer moves; written on its loop, read by probes.

It is written once a second, and at each try to connect: nothing of it is on the way of a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery.concurrency.asynpool import AsynPool
from celery.worker import state

from angzarr.adapters.celery.worker.failed_receipts import Receipts
from angzarr.adapters.celery.worker.thread_pool import SteadyExecutor
from angzarr.runtime.heartbeat import Pulse


@dataclass(slots=True)
class Children:
    """The processes of a prefork pool, as the loop saw them last."""

    wanted: int = 0
    up: int = 0
    #: Since when fewer are up than there should be, and since when none is.
    short_since: float | None = None
    none_since: float | None = None

    def look(self, wanted: int, up: int, now: float) -> None:
        """Take note of how many there are."""
        self.wanted, self.up = wanted, up
        self.short_since = None if up >= wanted else self.short_since or now
        self.none_since = None if up or not wanted else self.none_since or now


@dataclass(slots=True)
class Movement:
    """One worker's, in its parent process."""

    monotonic: Callable[[], float] = time.monotonic
    pulse: Pulse = field(default_factory=Pulse)
    #: Whether Celery's loop runs on a connection; else it connects, in turns.
    is_connected: bool = False
    #: Whether the loop has turned on that connection.
    has_turned: bool = False
    #: When `is_connected` changed last.
    changed_at: float = field(default_factory=time.monotonic)
    #: Queues from which the broker should be asked and is not: since when, and what is missing.
    unserved: dict[str, tuple[float, str]] = field(default_factory=dict)
    #: What the transport says while the broker is away from it, though the loop goes on.
    away: str = ""
    children: Children | None = None
    #: The messages that it failed to take.
    receipts: Receipts = field(default_factory=Receipts)
    #: The threads of a threads pool; None: it is another pool.
    threads: SteadyExecutor | None = None
    _is_solo: bool = False

    def beat(self) -> None:
        """Say that the worker moves: a try to connect, a wait for the store that goes on."""
        self.pulse.beat()

    def connect(self, *, pool: Any) -> None:
        """Take note that the loop begins to run on a new connection."""
        self._is_solo = pool.__class__.__module__.endswith(".solo")
        self._turn(connected=True)

    def disconnect(self) -> None:
        """Take note that the loop has left its connection."""
        self._turn(connected=False)

    def look(self, consumer: Any) -> None:
        """Look at *consumer*, from its own loop; never raises what is Celery's affair."""
        self.pulse.beat()
        now = self.monotonic()
        tasks = consumer.task_consumer
        if tasks is None or consumer.app.stopping():
            return
        missing = _missing(consumer.app, tasks)
        self.unserved = {
            queue: (self.unserved.get(queue, (now, ""))[0], why) for queue, why in missing.items()
        }
        self.away = _away(tasks.channel)
        self._count(consumer.pool, now)
        self.has_turned = True

    def is_busy(self) -> bool:
        """Tell whether a task runs on the loop itself, which stands still meanwhile (solo)."""
        return self._is_solo and len(state.active_requests) > 0

    def _turn(self, *, connected: bool) -> None:
        self.pulse.beat()
        self.is_connected, self.changed_at = connected, self.monotonic()
        self.has_turned, self.unserved, self.away = False, {}, ""

    def _count(self, pool: Any, now: float) -> None:
        billiard = getattr(pool, "_pool", None)
        if not isinstance(billiard, AsynPool):
            return
        if self.children is None:
            self.children = Children()
        up = len(billiard._all_inqueues)  # noqa: SLF001 - those that have said that they are up
        self.children.look(billiard._processes, up, now)  # noqa: SLF001


def _missing(app: Any, tasks: Any) -> dict[str, str]:
    """Return the queues that are to be consumed and are not, with what is missing.

    Those that the valve or an operator closed are not to be consumed: Celery does not select them.
    """
    channel = tasks.channel
    found = {}
    for queue in list(app.amqp.queues.consume_from.values()):
        if not queue.name:  # the broker names it, and it goes with its connection
            continue
        if why := _unserved(channel, tasks._active_tags, queue.name):  # noqa: SLF001 - kombu's
            found[queue.name] = why
    return found


def _unserved(channel: Any, tags: dict[str, str], queue: str) -> str:
    """Say what is missing; empty: the broker is asked, or does as it was asked."""
    tag = tags.get(queue)
    if tag is None:
        return "it has no consumer"
    if getattr(channel, "is_open", None) is False:
        return "its channel is closed"
    # RabbitMQ's channels know a consumer by its callback, all others by its tag.
    known = getattr(channel, "callbacks", None)
    known = getattr(channel, "_consumers", None) if known is None else known
    if known is not None and tag not in known:
        return "its consumer was cancelled"
    ask = getattr(channel, "unserved", None)
    return "" if ask is None else str(ask(queue))


def _away(channel: Any) -> str:
    ask = getattr(channel, "away", None)
    return "" if ask is None else str(ask())
