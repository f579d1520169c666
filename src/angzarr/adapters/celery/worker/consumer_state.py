"""The state of a worker's consumer: its heartbeat, its failures, and the pauses that follow (D7).

The loop writes it once a second and at each try to connect; health probes read it. A message that
the process failed to take becomes a dead letter only if the message is at fault. Otherwise it goes
back after a pause, because the process may lack threads, memory or files.

Celery reconnects five times a second. `ReconnectPauses` waits longer after each try in a row, so
that a fleet does not flood a broker that refuses it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from celery import Celery
from celery.concurrency.asynpool import AsynPool
from celery.concurrency.solo import TaskPool as SoloPool
from celery.worker import state
from celery.worker.state import maybe_shutdown

from angzarr.adapters.celery.message_check import check_message
from angzarr.adapters.celery.worker.pools import SteadyExecutor
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.errors import text_of
from angzarr.runtime.chance import chance
from angzarr.runtime.failures import FailureCounts, LogThrottle, is_machine_fault
from angzarr.runtime.health_report import Heartbeat

if TYPE_CHECKING:  # it needs an extra
    from angzarr.adapters.celery.worker.loop_watch import LoopWatch

_log = logging.getLogger("angzarr.worker")

#: Seconds until a message that went back is taken up again: at first, and at most. While all fail
#: it doubles, so that no worker turns in a hot loop (trap 5). It lasts before it doubles again: a
#: burst of failures is one.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
#: How often one message may bring out an error that no fault of the machine explains.
MOST_TRIES: Final = 3
#: Codes of letters: of a message that is malformed, and of one that no try could take.
MALFORMED, NOT_TAKEN = "INVALID_TASK", "NOT_TAKEN"
#: Messages whose tries are remembered.
_REMEMBERED: Final = 1000


class ReceiptFailures:
    """One worker's, on its parent's loop; it outlives connections."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._tries = FailureCounts(_REMEMBERED)
        self._pause = FIRST_PAUSE
        #: Until when who fails shares the pause; None: none failed since one was taken.
        self._shared_until: float | None = None
        self._seldom = LogThrottle(monotonic=monotonic)
        #: How many messages could not be taken since one was, and why not the last of them.
        self.failures = 0
        self.fault = ""
        self._since = self._last = 0.0

    def succeed(self) -> None:
        """Take note that a message was taken, after some were not."""
        self.failures, self.fault, self._pause = 0, "", FIRST_PAUSE
        self._shared_until = None

    def lasts(self) -> float | None:
        """The seconds for which no message could be taken; None: the last one could.

        What failed comes again; once it has not for long, another worker took it.
        """
        now = self._monotonic()
        if not self.failures or now - self._last > 2 * LONGEST_PAUSE:
            return None
        return now - self._since

    def fault_of(self, message: Any, error: Exception) -> tuple[str, Exception] | None:
        """The code and the reason of the letter that *message* becomes for *error*.

        Its shape proves that it is at fault, and is the reason: Celery stumbles wherever it looks
        first. Or it failed `MOST_TRIES` times while the machine lacked nothing. None: it is not
        known to be at fault, and goes back.
        """
        if is_machine_fault(error):
            return None
        try:
            check_message(message)
        except Exception as malformed:  # noqa: BLE001 - a hostile message fails in any way
            return None if is_machine_fault(malformed) else (MALFORMED, malformed)
        tries = self._tries.add(_identity(message))
        return (NOT_TAKEN, error) if tries >= MOST_TRIES else None

    def fail(self, error: Exception, what: str) -> float:
        """Take note of *error*, and return after how many seconds *what* goes back."""
        now = self._monotonic()
        if self.lasts() is None:
            self._since = now
        self._last, self.failures = now, self.failures + 1
        self.fault = f"{type(error).__name__}: {text_of(error)}"[:200]
        if self._seldom.now(self.fault):
            _log.critical(
                "message_not_taken: %s goes back to the broker, and so do others: %s: %s",
                what, self.fault, _cure(error), exc_info=None if is_machine_fault(error) else error,
            )  # fmt: skip
        return self._pause_at(now)

    def _pause_at(self, now: float) -> float:
        if self._shared_until is None or now >= self._shared_until:
            if self._shared_until is not None:
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
            self._shared_until = now + self._pause
        return self._pause


def _cure(error: Exception) -> str:
    if is_machine_fault(error):
        return "raise this worker's limits (pids, memory, open files), or lower its concurrency"
    return "this is a bug; the message becomes a letter when it fails again and again"


def _identity(message: Any) -> bytes:
    body = message.body
    raw = body if isinstance(body, bytes) else repr(body).encode("utf-8", "backslashreplace")
    headers = message.headers if isinstance(message.headers, dict) else {}
    return hashlib.sha256(repr(headers.get("id")).encode("utf-8", "replace") + raw).digest()


#: Seconds until the second try in a row, which double up to the longest.
FIRST_RECONNECT, LONGEST_RECONNECT = 0.5, 15.0
#: Seconds that a connection must have lasted for the next loss to be the first in a row.
CONNECTED_FOR: Final = 60.0
#: Seconds between two looks whether the worker must stop.
LOOKED_EVERY = 0.1


class ReconnectPauses:
    """Stands where Celery counts restarts.

    `step` is called before the first start and each but the second, which has no pause: Celery
    counts from -1, and asks whether the count is 0.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        chance: Callable[[], float] = chance,
        look: Callable[[], object] = maybe_shutdown,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._look = look
        self._tried_at: float | None = None
        self._wait = 0.0

    def step(self) -> None:
        """Wait as long as the tries in a row say, half of it by chance; raises WorkerShutdown."""
        tried_at = self._tried_at
        if tried_at is None or self._clock() - tried_at >= CONNECTED_FOR:
            self._wait = 0.0
        else:
            self._wait = min(max(FIRST_RECONNECT, 2 * self._wait), LONGEST_RECONNECT)
        until = self._clock() + self._wait * (1 + self._chance()) / 2
        while (left := until - self._clock()) > 0:
            self._look()
            self._sleep(min(left, LOOKED_EVERY))
        self._tried_at = self._clock()


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
class ConsumerState:
    """One worker's, in its parent process."""

    monotonic: Callable[[], float] = time.monotonic
    pulse: Heartbeat = field(default_factory=Heartbeat)
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
    receipts: ReceiptFailures = field(default_factory=ReceiptFailures)
    #: The threads of a threads pool; None: it is another pool.
    threads: SteadyExecutor | None = None
    #: The watch over the event loop of a pool of coroutines; None: it is another pool.
    coroutines: LoopWatch | None = None
    _is_solo: bool = False

    def beat(self) -> None:
        """Say that the worker moves: a try to connect, a wait for the store that goes on."""
        self.pulse.beat()

    def connect(self, *, pool: Any) -> None:
        """Take note that the loop begins to run on a new connection."""
        self._is_solo = isinstance(pool, SoloPool)
        self._turn(connected=True)

    def disconnect(self) -> None:
        """Take note that the loop has left its connection."""
        self._turn(connected=False)

    def look(self, consumer: Any) -> None:
        """Look at *consumer*, from its own loop; never raises Celery's own errors."""
        self.pulse.beat()
        now = self.monotonic()
        tasks = consumer.task_consumer
        if tasks is None or runtime_of(consumer.app).stopping():
            return
        missing = _missing(consumer.app, tasks)
        self.unserved = {
            queue: (self.unserved.get(queue, (now, ""))[0], why) for queue, why in missing.items()
        }
        self.away = _away(tasks.channel)
        self._count(consumer.pool, now)
        self.has_turned = True

    def is_busy(self) -> bool:
        """True if a task runs on the loop itself, which stands still meanwhile (solo)."""
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


def _missing(app: Celery, tasks: Any) -> dict[str, str]:
    """The queues that are to be consumed and are not, and why.

    A queue that the pauser or an operator stopped is left out: Celery does not select it.
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
    """Why *queue* is not consumed; empty: it is, as far as channel and broker say."""
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
