"""Breakers on Redis, one for a whole fleet: a closed one costs no round trip (spec D5).

Each process keeps what it last heard of a breaker. A closed one is asked in memory, successes are
told in batches; a failure is told at once, in the caller's thread, with all that went before it.
A probe is asked for and answered for in Redis, so that there are never more than were allowed.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any, Final

from angzarr.adapters.redis.breaker_state import (
    HeardBreakers,
    read_state,
    read_transition,
    told_settings,
)
from angzarr.adapters.redis.flow_line import FlowLine, flow_key
from angzarr.adapters.redis.link import Argument, Script
from angzarr.resilience import breaker_rules as rules
from angzarr.resilience.breaker import (
    Barred,
    BreakerRefusal,
    BreakerSettings,
    BreakerState,
    BreakerWatch,
    Permit,
    Phase,
    Transition,
    Watches,
    settings_of,
)
from angzarr.runtime.failures import A_MINUTE, LogThrottle

_STEP: Final = Script("breaker.lua")
_DEFAULTS: Final = BreakerSettings()
#: Steps whose first argument is the person who does it.
_BY_PEOPLE: Final = frozenset({"isolate", "reset"})
#: Keys of a step.
_KEYS: Final = 4
#: Steps that go in one round trip at most, which keeps each well within the time for a reply.
_AT_ONCE: Final = 100
#: The era of calls that were let through without any knowledge; nothing is counted for it.
_UNKNOWN: Final = -1


class RedisBreakers:
    """Fulfils `Breakers` and `BreakerControls`, safe to use from many threads.

    *settings* by name, else *default*; *watch* is told what this process caused; *line* is shared
    with others who use it.
    """

    def __init__(
        self,
        line: FlowLine,
        settings: Mapping[str, BreakerSettings] | None = None,
        default: BreakerSettings = _DEFAULTS,
        watch: BreakerWatch | None = None,
    ) -> None:
        self._line = line
        self._settings = dict(settings or {})
        self._default = default
        self._watch = watch or Watches()
        self._seldom = LogThrottle()
        self._id = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._seen = HeardBreakers()
        self._batches: dict[tuple[str, int], rules.CallBatch] = {}
        #: Names that callers want to hear of.
        self._wanted: set[str] = set()
        self._lock = Lock()
        line.on_change("breaker", self._changed)
        line.each_turn(self._tell)

    def admit(self, name: str, token: str, whose: str = "", /) -> Permit | Barred:
        """Ask to make a call; asks Redis only for a probe, and the first time for a name."""
        permit = self._seen.permits.get(name)
        if permit is not None:
            return permit
        answer = self._admit(name, token, whose)
        if isinstance(answer, Barred) and self._seldom.now(name):
            self._line.ask(partial(self._refuse, name, answer), None)
        return answer

    def record(self, permit: Permit, /, *, ok: bool, took: timedelta) -> None:
        """Say how the call ended: a success some time later, anything else now."""
        slow = self._of(permit.name).is_slow(took)
        if permit.probe:
            told = ("probed", permit.probe, int(ok and not slow))
            self._line.ask(partial(self._step, permit.name, *told), None)
            return
        if self._line.away:
            return  # told when it is back, it would be judged as if it had just happened
        key = (permit.name, permit.era)
        with self._lock:
            batch = self._batches.get(key, rules.CallBatch())
            self._batches[key] = batch.with_call(ok=ok, slow=slow)
        if slow or not ok:
            self._line.ask(partial(self._report, key), None)

    def forgo(self, permit: Permit, /) -> None:
        """Give a probe back; other permits need not be."""
        if permit.probe:
            self._line.ask(partial(self._step, permit.name, "forgo", permit.probe), None)

    def known(self, name: str, /) -> Permit | Barred | None:
        """What is certain as far as this process has heard.

        A name that it has not heard of yet it is told of within a turn of the line.
        """
        permit = self._seen.permits.get(name)
        if permit is not None:
            return permit
        seen = self._seen.state(name)
        if seen is None:
            if not self._line.away:
                self._wanted.add(name)
            self._line.start()
            return None
        return rules.known(seen, name, self._line.now(), self._of(name))

    def refuses(self, name: str, /) -> bool:
        """True if no new call would be let through, as far as this process has heard.

        Probes that are out are not announced; they are known here within a turn of the line.
        """
        seen = self._seen.state(name)
        if seen is None or seen.phase is Phase.HALF_OPEN:
            self._wanted.add(name)
            self._line.start()
        return seen is not None and self._refuses(name, seen)

    def phases(self) -> Mapping[str, Phase]:
        """Where each breaker stands that this process has used lately, or that is open."""
        return self._seen.phases()

    def isolate(self, name: str, /, *, by: str) -> None:
        """Hold the breaker open until it is reset; raises StoreUnavailable."""
        self._step(name, "isolate", by)

    def reset(self, name: str, /, *, by: str) -> None:
        """Close the breaker and forget what it saw; raises StoreUnavailable."""
        self._step(name, "reset", by)

    def states(self) -> Mapping[str, BreakerState]:
        """Every breaker that was used within a week; raises StoreUnavailable."""
        names = self._line.client.execute("ZRANGE", self._key("breakers"), 0, -1)
        return self._look_at(sorted({*names, *self._settings}))

    def history(self, limit: int) -> Sequence[Transition]:
        """The last *limit* transitions, oldest first; raises StoreUnavailable."""
        entries = self._line.last(self._key("breakers", "history"), limit)
        found = [read_transition(said) for _, said in entries]
        return [one for one in found if one is not None]

    def _admit(self, name: str, token: str, whose: str) -> Permit | Barred:
        seen = self._seen.state(name)
        if seen is None:
            self._line.start()
            if (seen := self._line.ask(partial(self._look, name), None)) is None:
                return Permit(name, _UNKNOWN)
        now, settings = self._line.now(), self._of(name)
        if seen.phase is Phase.HALF_OPEN:
            answer: Permit | Barred = Permit(name, seen.era, token)
        else:
            state, answer = rules.admit(seen, name, token, now, settings, whose)
            if state.phase is Phase.CLOSED and rules.share(seen, now, settings) >= 1.0:
                self._seen.end_ramp_up(name, seen)
        if isinstance(answer, Barred) or not answer.probe:
            return answer
        unasked: Permit | Barred = Permit(name, seen.era)
        return self._line.ask(partial(self._ask_for_probe, name, token, whose), unasked)

    def _ask_for_probe(self, name: str, token: str, whose: str) -> Permit | Barred:
        state, permitted, wait = self._step(name, "admit", token)
        now, settings = self._line.now(), self._of(name)
        if state.phase is Phase.CLOSED:  # since we last heard of it
            return rules.admit(state, name, token, now, settings, whose)[1]
        if permitted:
            return Permit(name, state.era, token)
        spread = rules.spread(state, now, settings)
        return Barred(retry_after=timedelta(milliseconds=wait), spread=spread)

    def _refuse(self, name: str, barred: Barred) -> None:
        """Report a refusal, unless another process did so within the minute (spec D5)."""
        key, span = self._key("refused", name), round(A_MINUTE * 1000)
        if self._line.client.execute("SET", key, 1, "NX", "PX", span):
            seen = self._seen.state(name)
            if seen is not None:
                now = self._line.now()
                self._watch.refused(BreakerRefusal(name, seen.phase, barred.retry_after, now))

    def _look(self, name: str) -> BreakerState:
        return self._step(name, "look")[0]

    def _look_at(self, names: Collection[str]) -> dict[str, BreakerState]:
        answers = self._steps([(name, "look") for name in names])
        return {name: state for name, (state, _, _) in zip(names, answers, strict=True)}

    def _changed(self, name: str) -> None:
        names = [name] if name else self._seen.names()
        self._look_at([one for one in names if self._seen.state(one) is not None])

    def _tell(self) -> None:
        wanted = list(self._wanted)
        self._look_at(wanted)
        self._wanted.difference_update(wanted)
        self._seen.use(wanted)
        self._report(*list(self._batches))
        self._seen.sweep(self._refuses)

    def _refuses(self, name: str, seen: BreakerState) -> bool:
        return rules.refuses(seen, name, self._line.now(), self._of(name))

    def _report(self, *keys: tuple[str, int]) -> None:
        """Report what ended since the last time; what cannot be reported now never is."""
        with self._lock:
            ended = [(key, self._batches.pop(key, None)) for key in keys]
        self._seen.use(name for name, _ in keys)
        told: list[tuple[Any, ...]] = []
        for (name, era), batch in ended:
            if batch and self._counts(name, era):
                told.append((name, "report", era, *batch))
        self._steps(told)

    def _counts(self, name: str, era: int) -> bool:
        """True if calls of *era* count, as far as is known here."""
        seen = self._seen.state(name)
        if seen is None:  # calls that took so long that their breaker was forgotten meanwhile
            return era != _UNKNOWN
        return seen.era == era and seen.phase is Phase.CLOSED

    def _step(self, name: str, step: str, *what: Argument) -> tuple[BreakerState, bool, int]:
        """Run one step in Redis and take in the state that it returns."""
        self._seen.use([name])
        return self._steps([(name, step, *what)])[0]

    def _steps(self, steps: Sequence[tuple[Any, ...]]) -> list[tuple[BreakerState, bool, int]]:
        """Run steps, each (name, step, *what it takes), and take in the states they return."""
        answers = []
        for start in range(0, len(steps), _AT_ONCE):
            some = steps[start : start + _AT_ONCE]
            calls = [(*self._keys(one[0]), *self._said(*one)) for one in some]
            asked_at = time.monotonic()
            replies = self._line.client.run_many(_STEP, calls, keys=_KEYS)
            answers += [
                self._take(one, reply, asked_at) for one, reply in zip(some, replies, strict=True)
            ]
        return answers

    def _take(
        self, told: tuple[Any, ...], reply: Sequence[Any], asked_at: float
    ) -> tuple[BreakerState, bool, int]:
        name, step, *what = told
        now, stored, before, permitted, wait = reply
        self._line.told_time(now)
        state = read_state(stored)
        if self._line.listening:  # else what changes there would not be heard
            self._seen.take_in(name, state, asked_at)
        by = str(what[0]) if step in _BY_PEOPLE else ""
        change = rules.transition(name, Phase(before), state, by)
        if change is not None:
            self._watch.changed(change)
        return state, bool(permitted), wait

    def _keys(self, name: str) -> Sequence[str]:
        return (
            self._key("breaker", name),
            self._key("breakers"),
            self._line.version_key,
            self._key("breakers", "history"),
        )

    def _said(self, name: str, step: str, *what: Argument) -> Sequence[Argument]:
        step_id = f"{self._id}-{next(self._numbers)}"
        rules_ = told_settings(self._of(name))
        return (step, name, self._line.channel, rules_, step_id, *what)

    def _key(self, *parts: str) -> str:
        return flow_key(self._line.prefix, *parts)

    def _of(self, name: str) -> BreakerSettings:
        return settings_of(name, self._settings, self._default)
