"""Publisher: sends the stream, each event until the broker confirmed it, and remembers what was.

An event whose publishing failed is sent again under the same id, so it may reach the broker twice.
While more waits than the fleet does in a few seconds, the publisher waits (`load`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import cycle, islice

import redis

from angzarr.errors import BrokerUnavailable, PublishError
from chaos.fleet import NotRunning
from chaos.history import EFFECTS, Pair, Reader
from chaos.load import MOST_WAITING, awaited, seconds_waiting
from chaos.revocations import Revocation
from chaos.sender import Sender
from chaos.stream import Planned

#: Seconds between two tries, and between two looks at what waits.
PAUSE, LOOK = 0.3, 0.2
#: Events that a flood sends again, and how often each.
FLOOD, TIMES = 20, 8


class Publisher:
    """Sends with *sender*; *reader* tells what has begun, *readiness* which workers are up."""

    def __init__(
        self, sender: Sender, reader: Reader, readiness: Callable[[], Mapping[str, int]]
    ) -> None:
        self._sender, self._reader, self._readiness = sender, reader, readiness
        #: Confirmed, in order; when each was first sent; how many sends were confirmed in all.
        self.published: list[Planned] = []
        self.sent_at: dict[str, float] = {}
        self.sends = 0
        #: Event id → who heard that it is revoked.
        self.revocations: dict[str, Revocation] = {}
        #: Event id → what the app said when it would not send it.
        self.refused: dict[str, str] = {}
        #: Seconds for which it waited since too much was waiting.
        self.held = 0.0
        #: When each pair is due that has not begun.
        self._due: dict[Pair, float] = {}
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, stream: Iterable[Planned], seconds: float, least: int = 0) -> None:
        """Begin to send *stream*; nothing is begun that was not within *seconds*.

        But for the first *least*, which are sent however slow the fleet is.
        """
        until = time.monotonic() + seconds
        self._begin(partial(self._run, stream, until, least))

    def finish(self, patience: float) -> None:
        """Wait until all is sent; raises what ended it, NotRunning if *patience* seconds do."""
        deadline = time.monotonic() + patience
        while self._threads:
            thread = self._threads.pop(0)  # the first one begins the others
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._over.set()
                raise NotRunning(f"the stream was not published within {patience:.0f} s more")
        if self._errors:
            raise self._errors[0]

    def flood(self, target: int) -> int:
        """Send some of what was handled again and again, under the same ids; return how often.

        What is not known to be handled is not sent again: that could revive what was lost.
        """
        done = {run.pair for run in self._reader.runs() if run.how in EFFECTS}
        known = [
            one
            for one in self.published
            if one.pairs and not one.fate.lethal and done.issuperset(one.pairs)
        ]
        first = target % max(len(known), 1)
        again = list(islice(cycle(known), first, first + FLOOD)) * TIMES
        for one in again:
            self._until_confirmed(one)
        return len(again)

    def _begin(self, call: Callable[[], None]) -> None:
        def run() -> None:
            try:
                call()
            except BaseException as error:
                self._errors.append(error)

        self._threads.append(threading.Thread(target=run, name="chaos-publisher", daemon=True))
        self._threads[-1].start()

    def _run(self, stream: Iterable[Planned], until: float, least: int) -> None:
        due = time.monotonic()
        for planned in stream:
            due += planned.gap
            self._over.wait(max(0.0, due - time.monotonic()))
            while self._waiting() > MOST_WAITING and time.monotonic() < until:
                self._over.wait(LOOK)
                self.held += LOOK
                due = time.monotonic()
            if self._over.is_set() or (time.monotonic() >= until and planned.number >= least):
                return
            if planned.fate.name == "revoked":  # the others do not wait until it is heard
                self._begin(partial(self._revoke_and_send, planned, until))
            else:
                self._send(planned)

    def _waiting(self) -> float:
        runs = self._reader.runs()
        for run in runs:
            self._due.pop(run.pair, None)
        return seconds_waiting(self._due, runs, time.monotonic())

    def _revoke_and_send(self, planned: Planned, until: float) -> None:
        self.revocations[planned.id] = self._sender.revoke(planned, self._readiness, until)
        self._send(planned)

    def _send(self, planned: Planned) -> None:
        now = self.sent_at[planned.id] = time.monotonic()
        self._due.update(dict.fromkeys(awaited(planned), now + planned.delay))
        if all(self._until_confirmed(planned) for _ in range(planned.copies)):
            self.published.append(planned)

    def _until_confirmed(self, planned: Planned) -> bool:
        """Send one message; return False if it is refused, or the run is over before."""
        while not self._over.is_set():
            try:
                self._sender.send(planned)
            except (PublishError, BrokerUnavailable, OSError, redis.RedisError):
                self._over.wait(PAUSE)
            except Exception as error:
                self.refused[planned.id] = repr(error)
                return False
            else:
                self.sends += 1
                return True
        return False
