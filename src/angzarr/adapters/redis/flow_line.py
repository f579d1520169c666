"""FlowLine: one process's line to the flow store, for all that a fleet shares of its flow control.

A thread hears by push what changed there, looks once a second besides (a push can be lost), and
does what is due at each turn, such as telling what was counted. No one waits for it, and no call
fails because the store is away: flow control fails open.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from angzarr.adapters.redis.link import Connection, RedisClient
from angzarr.errors import StoreUnavailable
from angzarr.runtime.cooperative import call_blocking
from angzarr.runtime.failures import LogThrottle

_log = logging.getLogger("angzarr.flow")

T = TypeVar("T")

#: How long a connect or a reply may take: no caller waits longer for what is no condition.
TIMEOUT: Final = timedelta(milliseconds=500)
#: Seconds between two turns of the thread: counts are reported this often.
TURN: Final = 0.25
#: Seconds between two looks for a change whose push was lost.
LOOK_EVERY: Final = 1.0
#: So many looks that find a change without a notification mean that the subscription is mute.
MUTE: Final = 3
#: Messages that are taken in together at most.
_DRAUGHT: Final = 1000
#: Seconds between two tries to hear what is pushed.
LEFT_ALONE: Final = 1.0
#: Before all that the clock tells, which counts from the start of the machine.
_NEVER: Final = float("-inf")
#: Seconds that `close` waits for a turn under way.
FAREWELL: Final = 1.0

#: Called with the name of what changed, or "" when anything may have.
OnChange = Callable[[str], object]
#: Version, topic and name. Anybody may write to a channel: all else is not ours.
_NEWS: Final = re.compile(r"([0-9]{1,18}) (\S+) (.*)", re.DOTALL)


def flow_key(prefix: str, *parts: str) -> str:
    """A key of the flow store; all of them share a hash tag, so one script may use many."""
    return ":".join((f"{{{prefix}:flow}}", *parts))


def moment(milliseconds: float) -> datetime:
    """The time that the flow store's scripts write so, in milliseconds since the epoch."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


class FlowLine:
    """Safe to use from many threads; made anew by each process. Idle until `start`."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "angzarr",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = RedisClient(url, timeout=TIMEOUT)
        self.prefix = prefix
        self.channel = f"{prefix}:flow"
        self.version_key = flow_key(prefix, "version")
        self._monotonic = monotonic
        self._ahead = time.time() - monotonic()
        self._on_change: dict[str, OnChange] = {}
        self._duties: list[Callable[[], object]] = []
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._saying = threading.Lock()
        #: Whether the store was away when it was last asked.
        self.away = False
        self._told_away = False
        self._seldom = LogThrottle()
        self._version: int | None = None
        self._turned_at = 0.0
        self._looked_at = _NEVER
        self._subscribe_not_before = 0.0
        self._unheard = 0

    # -- what the parts of flow control use ----------------------------------------------------

    def on_change(self, topic: str, heard: OnChange) -> None:
        """Call *heard* in the thread when something of *topic* changed, or may have.

        Scripts say so by ``PUBLISH <channel> "<version> <topic> <name>"``, where the version is
        what ``INCR <version_key>`` returned.
        """
        self._on_change[topic] = heard

    def each_turn(self, duty: Callable[[], object]) -> None:
        """Call *duty* in the thread about four times a second while the store is there."""
        self._duties.append(duty)

    def ask(self, step: Callable[[], T], otherwise: T) -> T:
        """What *step* returns, or *otherwise* if the store is away; never raises.

        Once it is away only the thread waits for it, and looks whether it is back.
        """
        return otherwise if self.away else call_blocking(partial(self._attempt, step, otherwise))

    def now(self) -> datetime:
        """The store's time as it is known here; spans are measured by it alone."""
        return datetime.fromtimestamp(self._monotonic() + self._ahead, UTC)

    def told_time(self, milliseconds: int) -> None:
        """Take in the store's time, which came with a reply."""
        self._ahead = milliseconds / 1000 - self._monotonic()

    def last(self, stream: str, limit: int) -> list[tuple[str, dict[str, str]]]:
        """The last *limit* entries of *stream*, oldest first, each its id and its fields.

        Raises StoreUnavailable.
        """
        entries = self.client.execute("XREVRANGE", stream, "+", "-", "COUNT", limit)
        return [(id_, dict(zip(said[::2], said[1::2], strict=True))) for id_, said in entries[::-1]]

    # -- the thread ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to listen; safe to call again."""
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None and not self._ended.is_set():
                thread = threading.Thread(target=self._run, name="angzarr-flow", daemon=True)
                thread.start()
                self._thread = thread

    @property
    def listening(self) -> bool:
        """Whether it is heard what changes, so that what was learnt may be kept."""
        return self._thread is not None

    def close(self) -> None:
        """Flush what was counted, and end; safe to call twice."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(FAREWELL)
        self._turn()
        self.client.close()

    def _run(self) -> None:
        subscription: Connection | None = None
        while not self._ended.is_set():
            if subscription is None:
                subscription = self._subscribed()
            subscription = self._listened(subscription)
            if self._monotonic() >= self._turned_at + TURN:
                self._turn()
            if self._monotonic() >= self._looked_at + LOOK_EVERY:
                subscription = self._attempt(partial(self._look, subscription), subscription)
        if subscription is not None:
            subscription.disconnect()

    def _subscribed(self) -> Connection | None:
        """A connection that announces changes, None if there is none just now."""
        if self._monotonic() < self._subscribe_not_before:
            return None
        subscription: Connection | None = None
        try:
            subscription = self.client.connect()
            subscription.send_command("SUBSCRIBE", self.channel)
            subscription.read_response()
        except Exception as error:  # noqa: BLE001 - it is looked for changes all the same
            self._lost_subscription(subscription, error)
            return None
        self._version = None  # nothing was heard while there was no subscription
        self._unheard = 0
        self._looked_at = _NEVER
        return subscription

    def _lost_subscription(self, subscription: Connection | None, error: Exception) -> None:
        self._subscribe_not_before = self._monotonic() + LEFT_ALONE
        if subscription is not None:
            subscription.disconnect()
        if self._says("subscription"):
            _log.warning("flow_changes_not_pushed: they are looked for once a second: %s", error)

    def _listened(self, subscription: Connection | None) -> Connection | None:
        """Listen until the next turn is due; return the subscription, None if it broke."""
        due_in = max(self._turned_at + TURN - self._monotonic(), 0.0)
        if subscription is None:
            self._ended.wait(due_in)
            return None
        try:
            said = _read(subscription, due_in)
        except Exception as error:  # noqa: BLE001 - the thread must outlive whatever happens
            self._lost_subscription(subscription, error)
            return None
        self._take_in(said)
        return subscription

    def _take_in(self, said: Iterable[str]) -> None:
        news = [found.groups() for found in map(_NEWS.fullmatch, said) if found]
        for version, _, _ in news:
            self._unheard = 0
            if self._version is not None:
                # One that does not go up: the store was emptied, or a look was quicker.
                gone_up = int(version) - self._version
                self._version = None if gone_up <= 0 else self._version + (gone_up == 1)
        for topic, name in dict.fromkeys((topic, name) for _, topic, name in news):
            if not self.ask(partial(self._heard, topic, name), otherwise=False):
                self._version = None  # it has to be looked for

    def _look(self, subscription: Connection | None) -> Connection | None:
        """Let all look if something changed unheard; return the subscription, None if mute."""
        self._looked_at = self._monotonic()
        version = int(self.client.execute("GET", self.version_key) or 0)
        self._found()
        if version == self._version:
            return subscription
        self._unheard += self._version is not None
        # Each by itself: one that fails keeps no other from looking.
        looks = [partial(self._heard, topic, "") for topic in self._on_change]
        seen = [self._attempt(look, otherwise=False) for look in looks]
        self._version = version if all(seen) else None
        if self._unheard < MUTE or subscription is None:
            return subscription
        subscription.disconnect()
        return None

    def _heard(self, topic: str, name: str) -> bool:
        heard = self._on_change.get(topic)
        if heard is not None:
            heard(name)
        return True

    def _turn(self) -> None:
        self._turned_at = self._monotonic()
        if not self.away:
            for duty in self._duties:
                self.ask(duty, None)

    def _attempt(self, step: Callable[[], T], otherwise: T) -> T:
        try:
            return step()
        except StoreUnavailable as error:
            self._lost(error)
        except Exception:  # noqa: BLE001 - whatever is wrong there, deliveries go on
            if self._says("failed"):
                _log.exception("flow_step_failed: calls are let through meanwhile")
        return otherwise

    def _lost(self, error: Exception) -> None:
        self.away = True
        self.start()  # it is the thread that finds out when it is back
        if self._says("away"):
            self._told_away = True
            _log.warning(
                "flow_store_away: breakers, budgets and limits let calls through meanwhile,"
                " switches stay as they were (pid %d): %s", os.getpid(), error,
            )  # fmt: skip

    def _found(self) -> None:
        self.away = False
        if self._told_away:
            self._told_away = False
            _log.warning("flow_store_back: breakers and budgets count again (pid %d)", os.getpid())

    def _says(self, cause: str) -> bool:
        with self._saying:
            return self._seldom.now(cause)


def _read(subscription: Connection, seconds: float) -> list[str]:
    """What is said on *subscription* within *seconds*, as soon as there is something."""
    said: list[str] = []
    while len(said) < _DRAUGHT and subscription.can_read(0 if said else seconds):
        # Not decoded by redis-py, which would stumble over text that is not UTF-8.
        *_, text = subscription.read_response(disable_decoding=True)
        said.append(text.decode("utf-8", "replace"))
    return said
