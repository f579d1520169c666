"""Session: what one consuming channel holds unacknowledged, and the lease that keeps it.

A thread renews the lease while the process lives, however long a task runs, and gives back what
sessions hold whose owner died. Nothing here is bound to a connection: a session outlives the loss
of one, and whatever was fetched before can be acknowledged after it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from redis.exceptions import RedisError, ResponseError

from angzarr.adapters.redis.link import Argument, Link, Script
from angzarr.adapters.redis.step import STEP, after_death, with_deaths_of, without_deaths
from angzarr.events.received import ENVELOPE
from angzarr.runtime.chance import chance
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.json_bounds import check_json

_log = logging.getLogger("angzarr.transport")

_RENEW = Script("renew.lua", frees=True)
_OVERDUE = Script("overdue.lua", frees=True)
_GIVE_BACK = Script("give_back.lua", frees=True)
_END = Script("end_session.lua", frees=True)

#: What a server or a network does that is away for a while.
AWAY = (RedisError, OSError)
#: Renewals in the span of one lease: three may fail before others take it for dead.
RENEWALS = 4
#: Dead sessions that are looked at in one turn, and messages that one script moves.
SESSIONS_A_TURN = 16
MESSAGES_A_SCRIPT = 50

#: Digits of the length of a list's name.
_DIGITS = 10

#: Seconds between two tries to reach a Redis that is away, at most.
RETRIED_EVERY = 0.5
#: Seconds that the end of a session waits for its thread, which may wait for a server.
LONGEST_JOIN = 1.0


class Keys(NamedTuple):
    """The names of a session's keys; kombu's ``global_keyprefix`` is part of them."""

    session: str
    lease: str
    sessions: str
    unacked_prefix: str

    @classmethod
    def new(cls, lease: str, unacked_prefix: str) -> Keys:
        """The keys of a new session under *lease*; they share *unacked_prefix*."""
        session = f"{lease}#{os.urandom(4).hex()}"
        return cls(session, lease, f"{unacked_prefix}owners", unacked_prefix)

    @property
    def unacked(self) -> str:
        """The hash of what this session holds: tag → list it came from, raw message."""
        return f"{self.unacked_prefix}{self.session}"

    @property
    def of_scripts(self) -> tuple[str, str, str]:
        """What the scripts take first: what is held, the lease, the sessions of all."""
        return (self.unacked, self.lease, self.sessions)

    def of(self, session: str) -> Keys:
        """The keys of another *session*; its name begins with its lease's key."""
        return self._replace(session=session, lease=session.rpartition("#")[0])


class Session:
    """The messages that a channel has fetched and not let go; safe to use from any thread.

    *shared* says that the lease belongs to the whole process (claims hang on it as well), so that
    ending the session does not end it.
    """

    def __init__(self, link: Link, keys: Keys, span: timedelta, *, shared: bool) -> None:
        self.keys = keys
        self._link = link
        self._span = span
        self._shared = shared
        self._pid = os.getpid()
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._steady_since: float | None = None
        self._seldom = LogThrottle()
        self._thread: threading.Thread | None = None
        self._done: Sequence[Argument] = ()
        #: When the lease was last renewed (time.monotonic); None while Redis is away.
        self.renewed_at: float | None = None

    def start(self) -> None:
        """Take the lease and keep it from now on; raises redis-py's errors."""
        self.renew()
        self._thread = threading.Thread(target=self._keep, name="angzarr-session", daemon=True)
        self._thread.start()

    @property
    def lives(self) -> bool:
        """Whether its thread does."""
        return self._thread is not None and self._thread.is_alive()

    def renew(self) -> float:
        """Renew the lease and return in how many seconds the next of all leases ends."""
        milliseconds = round(self._span.total_seconds() * 1000)
        keys = (self.keys.lease, self.keys.sessions)
        left = self._link.run(_RENEW, keys, milliseconds, self.keys.session)
        self.renewed_at = time.monotonic()
        if self._steady_since is None:
            self._steady_since = self.renewed_at
        return float(left) / 1000

    def give_back(self, tags: Sequence[str], *, last: bool = False) -> int:
        """Put what *tags* name back into its lists, flagged as redelivered; return how many.

        They are fetched next, in their old order, or after all others if *last*.
        """
        return self._give_back(self.keys, tags, last=last, dead=False)

    def held(self, known: int) -> list[str]:
        """The tags of all that this session holds, none if it is no more than *known*.

        Raises redis-py's errors.
        """
        if int(self._link.execute("HLEN", self.keys.unacked)) <= known:
            return []
        return self._tags(self.keys)

    def check(self) -> None:
        """Renew now: a connection was lost, and `renewed_at` tells whether Redis is there."""
        self.renewed_at = None
        self._wake.set()

    def end(self, done: Sequence[Argument] = ()) -> None:
        """Let go of *done* (see `flat`), give back what is left, and end.

        If Redis is away, a thread goes on trying.
        """
        self._done = done
        self._ending.set()
        self._wake.set()
        if os.getpid() != self._pid:
            return  # inherited over a fork: it is the parent's
        if self._thread is not None:
            self._thread.join(LONGEST_JOIN)  # or it would renew what has ended
        try:
            self._leave()
        except AWAY as error:
            _log.warning("session_not_ended: its messages come back when Redis does (%s)", error)
            threading.Thread(target=self._keep_leaving, name="angzarr-leave", daemon=True).start()

    # -- the thread ----------------------------------------------------------------------------

    def _keep(self) -> None:
        renew_every = self._span.total_seconds() / RENEWALS
        while not self._ending.is_set():
            wait = renew_every
            try:
                due_in = self.renew()
                if due_in < renew_every:
                    if self._steady():
                        self.judge()
                    wait = max(due_in, renew_every / 20) * (1 + chance() / 20)
            except AWAY as error:
                self._lost(error)
                wait = min(renew_every / 4, RETRIED_EVERY)
            except Exception:  # noqa: BLE001 - the thread must outlive it: no renewals, no worker
                _log.exception("session_thread_failed: of %s", self.keys.session)
            self._wake.wait(wait)
            if not self._ending.is_set():
                self._wake.clear()

    def _lost(self, error: Exception) -> None:
        if self._steady_since is not None and self._seldom.now():
            _log.warning("owner_lease_not_renewed: Redis is away (%s)", error)
        self.renewed_at = self._steady_since = None

    def _steady(self) -> bool:
        """True if this process may judge others.

        After Redis itself was away all leases have ended; each living session has renewed its own
        before half a span is over.
        """
        since = self._steady_since
        return since is not None and time.monotonic() - since >= self._span.total_seconds() / 2

    def judge(self) -> int:
        """Give back what sessions hold whose lease has ended; return how many messages."""
        again = round(self._span.total_seconds() * 1000 / 2)
        dead = self._link.run(_OVERDUE, (self.keys.sessions,), SESSIONS_A_TURN, again)
        return sum(self._bury(self.keys.of(_text(name))) for name in dead)

    def _bury(self, dead: Keys) -> int:
        try:
            moved = self._give_back(dead, self._tags(dead), last=False, dead=True)
        except (ResponseError, ValueError) as error:  # one that is odd keeps no others
            _log.error("session_not_buried: %s (%s)", dead.session, error)
            return 0
        if moved > 0:
            _log.warning(
                "messages_given_back: %d that %s held when its lease ended", moved, dead.session
            )
        return max(moved, 0)

    def _tags(self, keys: Keys) -> list[str]:
        return [_text(tag) for tag in self._link.execute("HKEYS", keys.unacked)]

    # -- giving back ---------------------------------------------------------------------------

    def _give_back(self, keys: Keys, tags: Sequence[str], *, last: bool, dead: bool) -> int:
        """Move messages a few at a time, those that are to be fetched first moved last."""
        ordered = sorted(tags, key=_age, reverse=not last)
        moved = 0
        for start in range(0, max(len(ordered), 1), MESSAGES_A_SCRIPT):
            if dead:
                self._renew_if_due()  # there may be a great deal to give back
            now = self._move(keys, ordered[start : start + MESSAGES_A_SCRIPT], last, dead)
            if now < 0:
                break
            moved += now
        return moved

    def _renew_if_due(self) -> None:
        renewed_at = self.renewed_at or 0.0
        if time.monotonic() - renewed_at > self._span.total_seconds() / RENEWALS:
            self.renew()

    def _move(self, keys: Keys, tags: Sequence[str], last: bool, dead: bool) -> int:  # noqa: FBT001 - private
        held = self._link.execute("HMGET", keys.unacked, *tags) if tags else []
        messages = [
            part
            for tag, value in zip(tags, held, strict=True)
            if value is not None and _is_whole(value)
            for part in (tag, *_returned(value, dead=dead))
        ]
        if not messages and not dead:
            return 0
        args = (keys.session, "dead" if dead else "own", "LPUSH" if last else "RPUSH", *messages)
        return int(self._link.run(_GIVE_BACK, keys.of_scripts, *args))

    def _leave(self) -> None:
        if self._done:
            args = (0, "", 1, "first", self.keys.session, *self._done)
            self._link.run(STEP, self.keys.of_scripts, *args)
            self._done = ()
        self.give_back(self._tags(self.keys))
        ending = "shared" if self._shared else "whole"
        self._link.run(_END, self.keys.of_scripts, self.keys.session, ending)
        self._link.close()

    def _keep_leaving(self) -> None:
        while True:
            time.sleep(self._span.total_seconds() / RENEWALS)
            try:
                self._leave()
            except AWAY:
                continue
            return


def split_held(value: bytes) -> tuple[bytes, bytes]:
    """List and raw message of what an unacked hash holds: ``length:list raw``."""
    length, _, rest = value.partition(b":")
    size = int(length)
    return rest[:size], rest[size:]


def _is_whole(value: bytes) -> bool:
    """True if `split_held` can read *value*; what it cannot is not ours, and stays."""
    length, colon, rest = value.partition(b":")
    return bool(colon) and length.isdigit() and len(length) <= _DIGITS and int(length) <= len(rest)


def _returned(value: bytes, *, dead: bool) -> tuple[bytes, bytes]:
    """The list a message came from, and the message as it goes back; see `returned`."""
    origin, raw = split_held(value)
    flagged = _redelivered(without_deaths(raw))
    return origin, after_death(flagged, raw) if dead else with_deaths_of(flagged, raw)


def _redelivered(raw: bytes) -> bytes:
    """A message flagged as stock kombu does it.

    What is damaged goes back as it is; its next reader will find out.
    """
    try:
        check_json(raw, ENVELOPE)
        message = json.loads(raw.decode())
        message["headers"]["redelivered"] = True
        message["properties"]["delivery_info"]["redelivered"] = True
    except (ValueError, TypeError, KeyError, RecursionError):
        return raw
    return json.dumps(message).encode()


def _age(tag: str) -> tuple[int, ...]:
    """What orders the *tag* of a message by the time it was fetched: ``…:fetch:number``."""
    return tuple(int(part) for part in tag.rsplit(":", 2)[-2:] if part.isdecimal())


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
