"""ProcessPlan: which processes to start, drain, stop and kill next.

It is pure: it takes the time as a number, and a function for chance.

A process is started by a fork server, which has loaded the app once; a reload begins another one,
of the next generation. Processes of an older generation are drained one by one, each after a new
one is ready, so that a reload costs no capacity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

#: Seconds until a process that died at its start is started again: at first, and at most.
FIRST_RESTART, LONGEST_RESTART = 0.5, 30.0
#: Seconds without a death after which the next is the first in a row.
LASTED: Final = 60.0
#: Seconds between two steps of autoscaling up, and until the first step down.
GROWS_EVERY: Final = 1.0
IDLE_FOR: Final = 30.0
#: The load from which a process is full, and how much of one process is kept to spare.
FULL: Final = 0.9
SPARE: Final = 0.5


class ProcessPhase(Enum):
    """How far a process is."""

    #: Asked for; it has not said that it is up.
    STARTING = "starting"
    #: It takes messages, or will once its servers answer.
    UP = "up"
    #: It takes no more messages, and ends by itself once what runs has ended.
    DRAINING = "draining"


@dataclass(slots=True)
class ManagedProcess:
    """One process as its supervisor knows it."""

    number: int
    generation: int
    started_at: float
    #: When it said something last; at first, when it was started.
    heard_at: float
    phase: ProcessPhase = ProcessPhase.STARTING
    #: Whether it takes messages and may run them, and whether it moves.
    ready: bool = False
    live: bool = True
    #: Whether it was ready at any time.
    worked: bool = False
    #: The part of what it could do that it does: 0 is idle, 1 is all it can.
    load: float = 0.0
    #: What its claims are held by; a successor ends that if it dies.
    owner: str = ""


class Do(Enum):
    """What to do to a process."""

    START = "start"
    #: Let it finish what runs, however long that takes.
    DRAIN = "drain"
    #: Let it finish within its grace.
    STOP = "stop"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class ProcessOrder:
    """One thing to do now."""

    do: Do
    number: int
    generation: int
    why: str = ""
    #: Owners of processes that died, whose claims the new process frees.
    owners: tuple[str, ...] = ()


@dataclass(slots=True)
class ProcessPlan:
    """The processes that are there and that should be: between *least* and *most* of them.

    *silent_after* is how many seconds a process may say nothing, or say that it does not move,
    before it is killed. *chance* draws a number in [0, 1), which spreads restarts.
    """

    least: int
    most: int
    silent_after: float
    chance: Callable[[], float]
    generation: int = 1
    wanted: int = 0
    processes: dict[int, ManagedProcess] = field(default_factory=dict)
    #: Whether any process was ever up: before that the first is started alone, and its refusal ends
    #: all.
    was_up: bool = False
    stopping: bool = False
    _deaths: int = 0
    _died_at: float = float("-inf")
    _not_before: float = float("-inf")
    _owners: list[str] = field(default_factory=list)
    _full_since: float | None = None
    _idle_since: float | None = None

    def __post_init__(self) -> None:
        self.wanted = self.wanted or self.least

    # -- what happened ---------------------------------------------------------------------------

    def say(self, number: int, words: dict[str, object], now: float) -> None:
        """Take note of what process *number* said of itself; see `ProcessLink`."""
        process = self.processes.get(number)
        if process is None:
            return
        process.heard_at = now
        process.ready = words.get("ready") is True
        process.worked |= process.ready
        process.live = words.get("live") is not False
        load = words.get("load")
        process.load = float(load) if isinstance(load, int | float) else 0.0
        process.owner = str(words.get("owner", process.owner))
        if process.phase is ProcessPhase.STARTING:
            process.phase, self.was_up = ProcessPhase.UP, True
        if words.get("draining"):
            process.phase = ProcessPhase.DRAINING

    def leave(self, number: int) -> None:
        """Take note that process *number* was told to end by others, and shall not be replaced."""
        if number in self.processes:
            self.processes[number].phase = ProcessPhase.DRAINING
            self.wanted, self.most = max(0, self.wanted - 1), max(0, self.most - 1)
            self.least = min(self.least, self.wanted)

    def end(self, number: int, *, failed: bool, now: float) -> float:
        """Take note that process *number* ended; return the seconds until one may start again.

        One that *failed* died of itself: by a signal, or with an error. Deaths in a row of those
        that never were ready double the pause, half of which is by chance. What worked before it
        died is replaced soon, or a wave of poison would leave the others without a process.
        """
        process = self.processes.pop(number, None)
        if process is None:
            return 0.0
        if failed and process.owner:
            self._owners.append(process.owner)
        if process.phase is ProcessPhase.DRAINING or (process.worked and not failed):
            return 0.0
        is_first, self._died_at = now - self._died_at >= LASTED, now
        self._deaths = 0 if process.worked else self._deaths + 1
        pause = 0.0 if process.worked and is_first else _pause(max(0, self._deaths - 1))
        pause *= (1 + self.chance()) / 2
        self._not_before = now + pause
        return pause

    def reload(self, generation: int) -> None:
        """Let all processes be of *generation* from now on; others are replaced one by one."""
        self.generation = generation

    def resize(self, step: int) -> None:
        """Want *step* processes more, but at least one; where a range was given, within it."""
        wanted = max(1, self.wanted + step)
        if self.least == self.most:
            self.least = self.most = wanted
        self.wanted = min(max(wanted, self.least), self.most)

    def forget(self, number: int) -> None:
        """Take note that process *number* is out of reach, or was never asked for.

        It may live for a while: its claims are not freed.
        """
        self.processes.pop(number, None)

    def stop(self) -> None:
        """Start nothing more."""
        self.stopping = True

    # -- what to do ------------------------------------------------------------------------------

    def due(self, now: float) -> list[ProcessOrder]:
        """What to do now. Each order counts as carried out."""
        if self.stopping:
            return []
        self._scale(now)
        return [*self._kills(now), *self._drains(), *self._starts(now)]

    def _active(self) -> list[ManagedProcess]:
        return [one for one in self.processes.values() if one.phase is not ProcessPhase.DRAINING]

    def _kills(self, now: float) -> list[ProcessOrder]:
        """End what hangs: what stands still is asked to stop, and killed once it is silent too."""
        orders = []
        for one in self.processes.values():
            if now - one.heard_at > self.silent_after:
                one.heard_at = now  # its end is told; if not, it is killed again
                why = f"it has said nothing for {self.silent_after:g} s"
                orders.append(ProcessOrder(Do.KILL, one.number, one.generation, why))
            elif not one.live and one.phase is not ProcessPhase.DRAINING:
                one.phase = ProcessPhase.DRAINING
                orders.append(ProcessOrder(Do.STOP, one.number, one.generation, "it stands still"))
        return orders

    def _drains(self) -> list[ProcessOrder]:
        """Drain what is too much: first of old generations, then the highest number."""
        active = self._active()
        old = [one for one in active if one.generation != self.generation]
        fit = sum(one.ready for one in active if one.generation == self.generation)
        surplus = fit + len(old) - self.wanted if old else len(active) - self.wanted
        if surplus <= 0:
            return []
        first = sorted(old or active, key=lambda one: -one.number)[:surplus]
        why = "a new one is ready" if old else "fewer are wanted"
        for one in first:
            one.phase = ProcessPhase.DRAINING
        return [ProcessOrder(Do.DRAIN, one.number, one.generation, why) for one in first]

    def _starts(self, now: float) -> list[ProcessOrder]:
        if now < self._not_before:
            return []
        active = self._active()
        mine = sum(one.generation == self.generation for one in active)
        room = self.wanted + (1 if mine < len(active) else 0) - len(active)
        if not self.was_up or mine < len(active):  # one at a time
            starting = any(one.phase is ProcessPhase.STARTING for one in active)
            room = min(room, 0 if starting else 1)
        return [self._start(now) for _ in range(min(room, self.wanted - mine))]

    def _start(self, now: float) -> ProcessOrder:
        number = next(n for n in range(1, len(self.processes) + 2) if n not in self.processes)
        self.processes[number] = ManagedProcess(number, self.generation, now, now)
        owners, self._owners = tuple(self._owners), []
        return ProcessOrder(Do.START, number, self.generation, owners=owners)

    # -- autoscaling -----------------------------------------------------------------------------

    def _scale(self, now: float) -> None:
        """Grow while all are full; shrink once fewer could long have done it with some to spare."""
        if self.least == self.most:
            return
        active = self._active()
        if len(active) != self.wanted or any(one.phase is not ProcessPhase.UP for one in active):
            return
        full = bool(active) and min(one.load for one in active) >= FULL
        self._full_since = first_of(self._full_since, now) if full else None
        idle = sum(one.load for one in active) <= len(active) - 1 - SPARE
        self._idle_since = first_of(self._idle_since, now) if idle else None
        if self.wanted < self.most and _lasted(self._full_since, GROWS_EVERY, now):
            self.wanted, self._full_since = self.wanted + 1, None
        elif self.wanted > self.least and _lasted(self._idle_since, IDLE_FOR, now):
            self.wanted, self._idle_since = self.wanted - 1, None


def first_of(since: float | None, now: float) -> float:
    """Since when something has been so: *since*, or *now* for the first time."""
    return now if since is None else since


def _lasted(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now - since >= seconds


def _pause(deaths: int) -> float:
    """Seconds until a restart after so many earlier deaths in a row."""
    return min(FIRST_RESTART * 2.0 ** min(deaths, 16), LONGEST_RESTART)


@dataclass(slots=True)
class SinglePlan:
    """One process that must never run twice, such as a scheduler; it has number 0.

    A reload stops it first and starts it anew once it has ended.
    """

    chance: Callable[[], float]
    _running: ManagedProcess | None = None
    _deaths: int = 0
    _not_before: float = float("-inf")

    def due(self, generation: int, now: float) -> list[ProcessOrder]:
        """What to do now. Each order counts as carried out."""
        running = self._running
        if running is None:
            if now < self._not_before:
                return []
            self._running = ManagedProcess(0, generation, now, now)
            return [ProcessOrder(Do.START, 0, generation)]
        if running.generation == generation or running.phase is ProcessPhase.DRAINING:
            return []
        running.phase = ProcessPhase.DRAINING
        return [ProcessOrder(Do.STOP, 0, running.generation, "the app was loaded anew")]

    def end(self, *, failed: bool, now: float) -> float:
        """Take note that it ended; return the seconds until it is started again."""
        running, self._running = self._running, None
        if running is None or running.phase is ProcessPhase.DRAINING:
            return 0.0
        self._deaths = 1 if now - running.started_at >= LASTED else self._deaths + failed
        pause = _pause(self._deaths) * (1 + self.chance()) / 2
        self._not_before = now + pause
        return pause
