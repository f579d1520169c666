"""Fates: what an event is sent to suffer, and the ends that are right for it. Pure.

The words of `ends` are those of a ledger entry's reason, and two for what never gets there:
``handled`` and ``skipped``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HANDLED: Final = "handled"
SKIPPED: Final = "skipped"
POISON: Final = "poison"

#: The handlers of `chaos.app`, by their task names.
MAIN: Final = "chaos.main"
PAIR: Final = ("chaos.pair_sync", "chaos.pair_async")
LETHAL: Final = "chaos.lethal"
LIMITED: Final = "chaos.limited"
GUARDED: Final = "chaos.guarded"
ORDERED: Final = "chaos.ordered"
BATCHED: Final = "chaos.batched"
STEPS: Final = ("chaos.first_step", "chaos.second_step")

#: Consumed by every worker; only by those that run one thing at a time in a process: these fates
#: end it.
QUEUE: Final = "chaos"
LETHAL_QUEUE: Final = "chaos-lethal"
QUEUES: Final = (QUEUE, LETHAL_QUEUE)

#: Runs that the policy of `chaos.app` allows, and starts that make poison (the default).
MOST_ATTEMPTS: Final = 4
MOST_STARTS: Final = 3
#: Seconds after which SQS gives a message to others: less than a worker is frozen.
VISIBILITY: Final = 8
#: Seconds after which the hard time limit ends a run of `chaos.limited`.
TIME_LIMIT: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """One fate: who suffers it, how often it is drawn, and where its events may end."""

    name: str
    ends: frozenset[str]
    weight: float = 1.0
    handlers: tuple[str, ...] = (MAIN,)
    #: Its runs end their own process, or are ended by a time limit.
    lethal: bool = False
    #: A message that is no event of ours: it has no handler, its letter is known by its bytes.
    raw: bool = False
    #: Its handlers are to begin.
    begins: bool = True
    #: The brokers on which it makes sense; empty: all.
    brokers: frozenset[str] = frozenset()

    @property
    def in_steps(self) -> bool:
        """Whether its handlers run one after the other, each a task with an id of its own."""
        return self.handlers == STEPS


def _fate(name: str, *ends: str, **more: object) -> Fate:
    return Fate(name=name, ends=frozenset(ends), **more)  # type: ignore[arg-type]


#: SQS has no broadcasts.
_BROADCASTS: Final = frozenset({"redis", "rabbitmq"})
_ALL = (
    _fate("ok", HANDLED, weight=12),
    _fate("slow", HANDLED, weight=8),
    _fate("pair", HANDLED, weight=4, handlers=PAIR),
    _fate("chain", HANDLED, weight=2, handlers=STEPS),
    _fate("delayed", HANDLED, weight=2),
    _fate("duplicates", HANDLED, weight=2),
    _fate("transient", HANDLED, weight=4),
    _fate("postponed", HANDLED, weight=2),
    _fate("skip", SKIPPED, weight=2),
    _fate("permanent", "refused", weight=2),
    _fate("bug", "refused", weight=1),
    _fate("exhausted", "exhausted", weight=1),
    _fate("oversize", "refused", weight=0.3),
    # Of a body that lies beside the queue; some fail in their first run.
    _fate("large", HANDLED, weight=1),
    # Gives up in its first run; where that is cut short, a later one handles it. Never both.
    _fate("fickle", HANDLED, "refused", weight=4),
    # Calls a dependency that is ill from time to time, behind a breaker of the fleet.
    _fate("guarded", HANDLED, "exhausted", weight=4, handlers=(GUARDED,)),
    # Of a few aggregates, each in order: to a plain handler, and to a projection.
    _fate("ordered", HANDLED, weight=8, handlers=(ORDERED,)),
    # Several in one call; some of them fail in their first runs.
    _fate("batched", HANDLED, weight=1, handlers=(BATCHED,)),
    _fate("killed", HANDLED, weight=1, handlers=(LETHAL,), lethal=True),
    _fate("exits", HANDLED, weight=1, handlers=(LETHAL,), lethal=True),
    _fate("poison", POISON, weight=0.5, handlers=(LETHAL,), lethal=True),
    _fate("overtime", HANDLED, weight=0.5, handlers=(LIMITED,), lethal=True),
    _fate("endless", "exhausted", weight=0.3, handlers=(LIMITED,), lethal=True),
    _fate("unknown", "undeliverable", weight=1, handlers=("chaos.nobody",), begins=False),
    _fate("garbage", "undeliverable", weight=4, raw=True),
    _fate("damaged", "undeliverable", weight=1, raw=True, brokers=frozenset({"redis"})),
    # Workers that did not hear of a revocation handle it: `revocations` says who may not have.
    _fate("revoked", HANDLED, "revoked", weight=0.5, begins=False, brokers=_BROADCASTS),
    _fate("expired", "too_old", weight=0.5, begins=False),
)

FATES: Final = {fate.name: fate for fate in _ALL}


def fates_for(broker: str, only: frozenset[str] = frozenset()) -> list[Fate]:
    """Return the fates that *broker* can bring about, *only* some of them if it is not empty."""
    return [
        fate
        for fate in _ALL
        if (not fate.brokers or broker in fate.brokers) and (not only or fate.name in only)
    ]
