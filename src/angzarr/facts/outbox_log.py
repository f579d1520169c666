"""A fact log over an outbox: facts of a claim's ending ride in it, others are put there at once.

A store that is away fails no delivery: facts wait in memory, and are put there once it is back. The
delivery itself is held meanwhile, unacknowledged, since it needs that store for its claim.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from angzarr.facts.fact import Fact, FactLog
from angzarr.facts.fact_text import fact_text
from angzarr.facts.lost_acts import tell_lost_act_lines
from angzarr.facts.outbox import FactOutbox
from angzarr.facts.spool import FactSpool

_log = logging.getLogger("angzarr.facts")

#: Seconds for which an outbox that failed is left to the spool's thread: no delivery waits for it.
LEFT_ALONE: Final = 5.0


class OutboxFactLog:
    """Facts that a relay moves from *outbox* to their sink.

    While *keeps* is false the claims cannot keep facts, and *otherwise* takes all of them.
    """

    def __init__(
        self,
        outbox: FactOutbox,
        *,
        otherwise: FactLog,
        keeps: Callable[[], bool] = lambda: True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox = outbox
        self._otherwise = otherwise
        self._keeps = keeps
        self._monotonic = monotonic
        self._again_at = float("-inf")
        self._spool: FactSpool[str] = FactSpool(outbox.put, on_lost=tell_lost_act_lines)

    def append(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> None:
        """Put *facts* in the outbox, in one call to its store."""
        if not self._keeps():
            self._otherwise.append(facts, before_ack=before_ack)
        elif texts := lines_of(facts):
            self._put(texts)

    def carry(self, facts: Sequence[Fact], /, *, before_ack: bool = False) -> tuple[str, ...]:
        """The lines of *facts*, for the claim's ending."""
        if not self._keeps():
            return self._otherwise.carry(facts, before_ack=before_ack)
        return lines_of(facts)

    def lines(self, facts: Sequence[Fact], /) -> tuple[str, ...]:
        """The lines of *facts*, if claims keep any."""
        return lines_of(facts) if self._keeps() else self._otherwise.lines(facts)

    def flush(self, within: timedelta, /) -> bool:
        """Wait until the outbox has what waits for it."""
        return self._spool.flush(within) and self._otherwise.flush(within)

    def close(self) -> None:
        """Put what waits for a store that was away, within two seconds or so."""
        self._spool.close()
        self._otherwise.close()

    def _put(self, texts: Sequence[str]) -> None:
        if self._spool.is_empty and self._monotonic() >= self._again_at:
            try:
                self._outbox.put(texts)
            except Exception as error:  # noqa: BLE001 - the spool tells of it if it lasts
                self._again_at = self._monotonic() + LEFT_ALONE
                _log.debug("facts_left_to_the_spool: %r", error)
            else:
                return
        self._spool.append(texts)


def lines_of(facts: Sequence[Fact]) -> tuple[str, ...]:
    """The lines of *facts*, without those that have none: their data may do anything when read."""
    lines = []
    for fact in facts:
        try:
            lines.append(fact_text(fact))
        except Exception:  # noqa: BLE001 - a fact must not fail its delivery
            _log.exception("fact_refused: it cannot be written as a line")
    return tuple(lines)
