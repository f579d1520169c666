"""A thread of a worker's parent for steps that its event loop must not wait for.

Stores, brokers and dead-letter queues may take seconds or be away. The loop that talks to the
broker and to the children must go on meanwhile.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from angzarr.delivery.retry_until_available import FIRST_WAIT, LONGEST_WAIT, MOST_TRIES
from angzarr.errors import NotYet, is_absence
from angzarr.runtime.chance import chance
from angzarr.runtime.failures import LogThrottle, is_machine_fault

_log = logging.getLogger("angzarr.worker")

#: Seconds that the end of a worker waits for the step that is being taken.
PATIENCE = 2.0


@dataclass(eq=False, slots=True)
class _Job:
    due: float
    number: int
    step: Callable[[], object]
    what: str
    #: Takes the place of *step* once that failed `MOST_TRIES` times though no server is away.
    give_up: Callable[[], object] | None = None
    tries: int = 0
    wait: float = FIRST_WAIT.total_seconds()

    def __lt__(self, other: _Job) -> bool:
        """Compare without making a tuple: a heap loses what cannot be compared for want of it."""
        return self.due < other.due or (self.due == other.due and self.number < other.number)


class Trouble(NamedTuple):
    """The reason why no steps are taken, and whether the thread itself has ended."""

    says: str
    ended: bool


class SettleThread:
    """Takes steps, each until it works; one that fails waits and keeps no other from its turn.

    Want of memory, wherever it strikes, loses no step. Should the thread end for it all the same,
    `keep` starts a successor, which goes on with the step in hand.
    """

    def __init__(self, name: str = "angzarr-settle") -> None:
        self._name = name
        self._jobs: list[_Job] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._begun = self._ended = False
        #: Whether the last step, or what follows on one, failed for want of memory and the like.
        self._lacks = False
        #: The step in hand: it leaves only once it is done or back in line.
        self._job: _Job | None = None
        self._seldom = LogThrottle()

    def submit(
        self,
        step: Callable[[], object],
        *,
        what: str,
        after: float = 0.0,
        give_up: Callable[[], object] | None = None,
    ) -> None:
        """Take *step* as soon as possible, but not before *after* seconds from now.

        It must be safe to repeat: it is taken again until it returns. Where *give_up* is given it
        takes the place of a step that failed ten times while no server was away. Once this thread
        was stopped nothing is taken any more: the message that *step* is about goes back. If this
        raises, for want of memory, *step* is not taken; for want of a thread it waits for one.
        """
        with self._changed:
            if self._ended:
                return
            job = _Job(time.monotonic() + after, next(self._numbers), step, what, give_up)
            self._begun = True
            self._start_or_say()
            self._changed.notify_all()  # who wakes waits for the lock
            heapq.heappush(self._jobs, job)

    def start(self) -> None:
        """Start now what else starts with its first step; raises what stands against it."""
        with self._changed:
            self._begun = True
            if not self._ended and not self._is_alive():
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def keep(self) -> None:
        """Start it once more if it ended, which it never should. To be called each second or so."""
        if self._begun and not self._ended and not self._is_alive():
            with self._changed:
                self._start_or_say()

    def trouble(self) -> Trouble | None:
        """The trouble that keeps steps from being taken, for probes; None if it knows of none."""
        if not self._begun or self._ended:
            return None
        if not self._is_alive():
            says = f"the thread {self._name} does not run: it starts once the process can have one"
            return Trouble(says, ended=True)
        if not self._lacks:
            return None
        says = f"the thread {self._name} lacks memory, threads or files: it tries again"
        return Trouble(says, ended=False)

    def _is_alive(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def _start_or_say(self) -> None:
        ended = self._thread is not None and not self._is_alive()
        try:
            self.start()
        except Exception as error:  # noqa: BLE001 - `keep` tries again
            self._say("start", "settle_thread_not_started: %s: trying again: %r", self._name, error)
            return
        if ended:
            self._say("end", "settle_thread_ended: %s goes on as a new thread", self._name)

    def finish(self, patience: float) -> None:
        """Wait until no step is due or being taken, *patience* seconds at most."""
        with self._changed:
            self._changed.wait_for(self._is_idle, patience)

    @property
    def empty(self) -> bool:
        """True if no step is being taken or waits, not even one that is not due."""
        with self._changed:
            return self._job is None and not self._jobs

    def _is_idle(self) -> bool:
        now = time.monotonic()
        return self._job is None and all(job.due > now for job in self._jobs)

    def stop(self) -> None:
        """Take no more steps; messages that are not settled go back unacknowledged."""
        with self._changed:
            self._ended = True
            left, self._jobs = len(self._jobs), []
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if left:
            _log.warning("not_settled: %d messages go back to the broker", left)
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE)

    def _run(self) -> None:
        while not self._ended:
            try:
                self._turn()
            except BaseException:  # noqa: BLE001 - the step in hand stays there, and is taken again
                self._lacks = True
                time.sleep(FIRST_WAIT.total_seconds())

    def _turn(self) -> None:
        """Take one step. An error outside it came between a step and its place in line."""
        job = self._job or self._next()
        if job is None:
            return
        try:
            job.step()
        except BaseException as error:  # noqa: BLE001 - it runs users' hooks too, and must go on
            self._put_off(job, error)
        else:
            self._lacks = False
            self._let_go()

    def _next(self) -> _Job | None:
        """Take the next job in hand once it is due; None at the end."""
        with self._changed:
            while not self._ended:
                left = self._jobs[0].due - time.monotonic() if self._jobs else None
                if left is not None and left <= 0:
                    self._job = heapq.heappop(self._jobs)
                    return self._job
                self._changed.wait(left)
            return None

    def _put_off(self, job: _Job, error: BaseException) -> None:
        self._lacks = is_machine_fault(error)
        if not isinstance(error, NotYet):  # who raised that has said so, and counts for itself
            self._count(job, error)
        pause = job.wait * (0.5 + chance())
        job.wait = min(job.wait * 2, LONGEST_WAIT.total_seconds())
        job.due = time.monotonic() + pause
        with self._changed:
            if not self._ended:
                heapq.heappush(self._jobs, job)
            self._let_go()

    def _count(self, job: _Job, error: BaseException) -> None:
        """Give *job* up if *error* came too often; else say that it is held."""
        if job.give_up is not None and not is_absence(error):
            job.tries += 1
            if job.tries >= MOST_TRIES:
                job.step, job.give_up = job.give_up, None
                self._say(
                    str(job.number), "gave_up: %s goes back to the broker: %r", job.what, error
                )
                return
        trace = None if isinstance(error, OSError) else error
        held = "holding %s: it could not be settled, trying again: %r"
        self._say("", held, job.what, error, exc_info=trace)

    def _let_go(self) -> None:
        with self._changed:
            self._job = None
            self._changed.notify_all()

    def _say(
        self, cause: str, text: str, *values: object, exc_info: BaseException | None = None
    ) -> None:
        """Say it once a minute for each *cause*; to be heard matters less than to go on."""
        try:
            if self._seldom.now(cause):
                _log.critical(text, *values, exc_info=exc_info)
        except BaseException:  # noqa: BLE001, S110 - see above
            pass
