"""Fetcher: the steps of one consuming channel, each of which lets go and fetches in one script.

A step is sent and its reply read when it is there, so that a loop goes on meanwhile; what is
acknowledged in the time waits for the next step. One step is under way at a time.

Aftermath: the commands of a step that failed, and what follows from that.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from typing import Any, NamedTuple, Protocol

from redis.exceptions import NoScriptError

from angzarr.adapters.redis.keyspace_listener import KeyspaceListener
from angzarr.adapters.redis.link import Argument, Link
from angzarr.adapters.redis.session import Session
from angzarr.adapters.redis.step import STEP, Done, Ending, Fetched, Lists, flat
from angzarr.runtime.chance import chance
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.group_commit import GROUP_COMMIT


class StepErrors:
    """Reads the parts of a step's reply that are empty nearly always."""

    def __init__(self) -> None:
        self._odd: set[str] = set()

    def tell(  # noqa: PLR0917 - the parts of the reply, in their order
        self,
        session: Session | None,
        done: list[Done],
        missing: list[bytes],
        fenced: list[bytes],
        kept: list[bytes],
        odd: list[bytes],
    ) -> None:
        """Report what did not go as it should; usually all are empty."""
        for key in {name.decode(errors="replace") for name in odd} - self._odd:
            self._odd.add(key)
            _log.error("queue_unreadable: the key %s is not a list; another program wrote it", key)
        if missing:
            _log.warning(
                "acknowledged_too_late: %d messages were given to others, since the lease of this"
                " worker had ended, or had been acknowledged before a connection broke",
                len(missing),
            )
        if fenced:
            told = {tag.decode() for tag in fenced}
            for one in done:
                if one.tag in told and one.ending is not None:
                    one.ending.on_fenced()
        if kept and session is not None:
            _log.error("claims_not_ended: %d messages are given back", len(kept))
            session.give_back([tag.decode() for tag in kept])


_log = logging.getLogger("angzarr.transport")

#: The most that one step lets go of: a script must not hold up a server for long.
TAGS_A_STEP = 500
#: Seconds after which empty lists are looked at without a notice, and where there is never one.
SAFETY_LOOK = 5.0
LOOK_WITHOUT_NOTICE = 0.1
#: Seconds before Redis is tried again, after it was lost.
RETRY = 0.1
#: Every idle consumer gets the notice, and one gets the message. Each waits up to this many
#: seconds for each notice in a row that brought nothing, so that hundreds do not ask at once.
DAMPING, MOST_DAMPING = 0.001, 0.02
#: Seconds that acknowledgements may wait for others while the consumer has enough to do.
GATHERING = 0.005

#: Seconds without an answer after which a fetcher that has room counts as not asking.
LONGEST_SILENCE = 3 * SAFETY_LOOK
#: Seconds within which one that was lost tries again, once Redis is known to be back.
TRIED_WITHIN = 20 * RETRY

#: Fetches of this process, counted: a tag's number tells how old it is.
NUMBERS = itertools.count(1)


class Consumer(Protocol):
    """What a fetcher asks of its channel."""

    def room(self) -> int:
        """How many messages the consumers can take now."""

    def lists(self) -> Lists:
        """The lists to fetch from, in the order of this turn."""

    def is_busy(self) -> bool:
        """True if the consumers have enough to do for the next milliseconds."""


class _Flight(NamedTuple):
    """A step under way."""

    done: list[Done]
    lists: Lists
    notified: bool


class Fetcher:
    """Fetches for *consumer* into *session*, or without one where nothing is acknowledged."""

    def __init__(
        self,
        listener: KeyspaceListener,
        link: Link,
        session: Session | None,
        consumer: Consumer,
        name: str,
    ) -> None:
        self.listener = listener
        self.session = session
        self.ready: deque[Fetched] = deque()
        self._link = link
        self._consumer = consumer
        self._name = name
        self._number = next(NUMBERS)
        self._done: deque[Done] = deque()
        self._flight: _Flight | None = None
        self._must_poll = True
        self._notified = False
        self._misses = 0
        self._not_before = 0.0
        self._looked_at = 0.0
        self._answered_at = time.monotonic()
        self._lost_at: float | None = None
        self._told_lost = False
        self._seldom = LogThrottle()
        self._aftermath = StepErrors()

    # -- what the channel says -----------------------------------------------------------------

    def look(self) -> None:
        """Look at the lists with the next step: they are others now, or it is time."""
        self._must_poll = True

    def let_go(self, tag: str, ending: Ending | None = None) -> None:
        """Let go of a message with the next step, or with `flush`, its claim ended before."""
        self._done.append(Done(tag, ending))

    def flush(self) -> None:
        """Let go at once of all that was acknowledged; raises redis-py's errors, losing nothing."""
        while done := self._take_done():
            try:
                args = (*self._args(0, 1, "first"), *flat(done))
                reply = self._link.run(STEP, self._keys(), *args)
            except BaseException:
                self._done.extendleft(reversed(done))
                raise
            self._aftermath.tell(self.session, done, *reply[1:])

    # -- a step --------------------------------------------------------------------------------

    def turn(self) -> None:
        """Send a step if there is something to say or to ask, and it is time.

        Raises redis-py's errors; call `lost` then.
        """
        if self._flight is not None:
            return
        now = time.monotonic()
        if self._lost_at is not None and not self._is_back(now):
            return
        gathering = now - self._looked_at < GATHERING and not self.ready
        if self._done and gathering and self._consumer.is_busy():
            return
        wanted = 0 if now < self._not_before else self._wanted(now)
        if not wanted and not self._done:
            return
        if self.listener.connection is None:
            self._connect()
        self._send(wanted, now)

    def turn_in(self) -> float | None:
        """Seconds until its next turn, if nothing comes before; or None."""
        now = time.monotonic()
        if self._lost_at is not None:
            return RETRY
        if self._done and now - self._looked_at < GATHERING:
            return GATHERING
        if not self.listener.notifies:
            return LOOK_WITHOUT_NOTICE
        return self._not_before - now if now < self._not_before else None

    def on_reply(self) -> None:
        """Read the reply of the step under way, whose messages are `ready` then."""
        connection = self.listener.connection
        try:
            reply = connection.read_response()
        except NoScriptError:
            self._teach()
            return
        flight, self._flight = self._flight, None
        if flight is None:
            msg = f"Redis said {reply!r:.100} unasked"
            raise ConnectionError(msg)
        self._read(reply, flight)

    def on_notice(self) -> None:
        """Look at the lists again: one was written to."""
        self.listener.answer()
        self._notified = True
        if self._flight is None:
            self._must_poll = True
            delay = chance() * min(self._misses * DAMPING, MOST_DAMPING)
            self._not_before = time.monotonic() + delay

    def forget(self) -> None:
        """Forget the connection. What was under way is said again, by the same token."""
        self._take_back()
        self.listener.disconnect()
        self._must_poll = True

    def lost(self, error: Exception) -> None:
        """Forget the connection, and wait until Redis is back."""
        self.forget()
        self._lost_at = time.monotonic()
        if self.session is not None:
            self.session.check()
        if not self._told_lost and self._seldom.now():
            self._told_lost = True
            _log.warning(
                "redis_lost: %s; running tasks go on, and it is tried again until it is back", error
            )

    def tags(self) -> set[str]:
        """The tags of messages fetched and not delivered, or acknowledged and not reported."""
        flying = self._flight.done if self._flight is not None else ()
        return {one.tag for one in (*self.ready, *self._done, *flying)}

    def may_bring(self, tag: str) -> bool:
        """True if *tag* may be of the fetch under way, or of one whose reply was lost."""
        return tag.startswith(f"{self._name}:{self._number}:")

    def rest(self) -> list[Done]:
        """The tags acknowledged and not reported; they are forgotten here."""
        self._take_back()
        GROUP_COMMIT.write()
        rest, self._done = list(self._done), deque()
        return rest

    @property
    def is_lost(self) -> bool:
        """Whether Redis is away, as far as is known."""
        return self._lost_at is not None

    def unserved(self) -> str:
        """Say why Redis is not asked although it should be; empty: it is, or it is away.

        For probes: what is said at two looks in a row is so.
        """
        if self.session is not None and not self.session.lives:
            return "the thread that keeps its lease has ended"
        now = time.monotonic()
        if self._lost_at is not None:
            tried = now - self._lost_at
            waits = tried < TRIED_WITHIN or not self._is_back(now)
            return "" if waits else f"Redis is back, and it was tried last {tried:.0f} s ago"
        silent = now - self._answered_at
        if silent < LONGEST_SILENCE or not self._consumer.room():
            return ""
        return f"Redis has answered no fetch for {silent:.0f} s"

    def overdue(self, seconds: float) -> bool:
        """True if a reply has been missing for *seconds*: the other end may be gone."""
        return self._flight is not None and time.monotonic() - self._looked_at > seconds

    def finish(self) -> None:
        """Wait for the step under way, whose messages are `ready` then."""
        if self._flight is not None:
            self.on_reply()

    # ------------------------------------------------------------------------------------------

    def _wanted(self, now: float) -> int:
        every = SAFETY_LOOK if self.listener.notifies else LOOK_WITHOUT_NOTICE
        if not self._must_poll and now - self._looked_at < every:
            return 0
        return self._consumer.room()

    def _take_back(self) -> None:
        if self._flight is not None:
            self._done.extendleft(reversed(self._flight.done))
            self._flight = None

    def _teach(self) -> None:
        """Teach Redis the step script; what it did not understand is said again."""
        self._take_back()
        self.listener.connection.send_command("SCRIPT", "LOAD", STEP.text)
        self.listener.connection.read_response()
        self._must_poll = True

    def _connect(self) -> None:
        self.listener.connect()
        self._teach()
        if self._told_lost:
            _log.warning("redis_back: consuming goes on")
        self._lost_at, self._told_lost = None, False

    def _is_back(self, now: float) -> bool:
        """True if Redis may be tried again: the session's thread found it, or some time is over."""
        lost_at = self._lost_at or 0.0
        if self.session is None:
            return now - lost_at > RETRY
        renewed_at = self.session.renewed_at
        return renewed_at is not None and renewed_at > lost_at

    def _send(self, wanted: int, now: float) -> None:
        lists = self._consumer.lists() if wanted else Lists([], [], fair=False)
        if not lists.names:
            wanted = 0
        self._flight = _Flight(self._take_done(), lists, self._notified)
        self._notified = False
        self._looked_at = now
        keys = (*self._keys(), *lists.names)
        order = "fair" if lists.fair else "first"
        args = self._args(wanted, len(lists.queues), order)
        self.listener.connection.send_command(
            "EVALSHA", STEP.digest, len(keys), *keys, *args, *flat(self._flight.done)
        )

    def _keys(self) -> tuple[str, str, str]:
        return keys_of(self.session)

    def _args(self, wanted: int, width: int, order: str) -> tuple[Argument, ...]:
        token = f"{self._name}:{self._number}"
        session = "" if self.session is None else self.session.keys.session
        return (wanted, token, width, order, session)

    def _read(self, reply: list[Any], flight: _Flight) -> None:
        state, missing, fenced, kept, odd, *messages = reply
        self._answered_at = time.monotonic()
        self._aftermath.tell(self.session, flight.done, missing, fenced, kept, odd)
        if state == b"no lease" and self.session is not None:
            self.session.renew()
        if state in (b"idle", b"no lease"):
            self._must_poll = self._must_poll or self._notified
            return
        first = f"{self._name}:{self._number}"
        self._number = next(NUMBERS)
        self._must_poll = state == b"full" or self._notified
        for position in range(0, len(messages), 2):
            index, raw = messages[position], messages[position + 1]
            queue = flight.lists.queues[(index - 1) % len(flight.lists.queues)] if index else ""
            origin = flight.lists.names[index - 1] if index else ""
            self.ready.append(Fetched(f"{first}:{position // 2 + 1}", queue, raw, origin))
        if messages:
            self._misses = 0
        elif flight.notified:
            self._misses += 1

    def _take_done(self) -> list[Done]:
        """What is let go with the next step; what is told of it is written now."""
        done = self._done
        taken: list[Done] = []
        while done and len(taken) < TAGS_A_STEP:
            try:
                taken.append(done.popleft())
            except IndexError:  # another thread was quicker
                break
        try:
            if taken:
                GROUP_COMMIT.write()
        except BaseException:
            done.extendleft(reversed(taken))
            raise
        return taken


def keys_of(session: Session | None) -> tuple[str, str, str]:
    """The keys that the step script takes before the lists."""
    return ("", "", "") if session is None else session.keys.of_scripts
