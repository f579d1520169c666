"""ReplayOutcome: the outcome of a replayed letter, sent to the analysis worker.

Outcome signing: only who has a signing key tells the analysis worker how a replay ended (L3).

Any writer to the broker could otherwise have an entry called handled. Pure but for the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Protocol

from angzarr.dead_letters.signing import Signatures, Trust
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.text import printable


def outcomes_queue(prefix: str) -> str:
    """The broker queue that carries them: ``angzarr-replay-outcomes`` by default.

    Apps that share a broker must differ in their prefix, or would take each other's answers.
    """
    return f"{prefix}-replay-outcomes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """The end of replay number `replay` of the letter `letter_id`.

    `outcome` is ``handled``, ``duplicate``, ``skipped`` or ``dead_lettered``; a replay that is
    retried or postponed has not ended yet and tells nothing. ``parked`` is no end either: it waits
    in its lane behind an earlier event, however long that takes. `handle` belongs to the queue.
    """

    letter_id: str
    replay: int
    outcome: str
    handler: str
    event_id: str
    #: Key id and HMAC of all fields above; empty: its worker has no signing key.
    signature: str = ""
    handle: Any = None


class ReplayOutcomes(Protocol):
    """The queue of outcomes; both ends take a repeated one without harm."""

    def put(self, outcome: ReplayOutcome, /) -> None:
        """Publish it and wait for the confirm; raises BrokerUnavailable without one."""

    def receive(self, *, limit: int, wait: timedelta) -> list[ReplayOutcome]:
        """Take up to *limit*, waiting at most *wait* for the first; back if never `done`."""

    def done(self, outcomes: Sequence[ReplayOutcome], /) -> None:
        """Let these outcomes go."""

    def close(self) -> None:
        """Give back what was not done and close connections; safe to call twice."""


_log = logging.getLogger("angzarr.analysis")

#: Begins the signed form.
_FORM: Final = b"angzarr-replay-outcome-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedOutcomes:
    """A queue of outcomes whose ends trust each other by a signing key.

    One that is not signed as it must be is let go unread: its replay counts as not answered, and
    its entry is held at the deadline.
    """

    queue: ReplayOutcomes
    signatures: Signatures
    #: Whether those of workers without a key are believed.
    accept_unsigned: bool = False
    seldom: LogThrottle = field(default_factory=LogThrottle)

    def put(self, outcome: ReplayOutcome, /) -> None:
        """Put *outcome*, signed; raises BrokerUnavailable."""
        key = self.signatures.current
        if key is not None:
            signature = self.signatures.signature(key, _form_of(outcome))
            outcome = replace(outcome, signature=signature)
        self.queue.put(outcome)

    def receive(self, *, limit: int, wait: timedelta) -> list[ReplayOutcome]:
        """Take up to *limit* and return those that are to be believed."""
        believed: list[ReplayOutcome] = []
        doubted: list[ReplayOutcome] = []
        for one in self.queue.receive(limit=limit, wait=wait):
            (believed if self._is_believed(one) else doubted).append(one)
        if doubted:
            self._say(doubted[0])
            self.queue.done(doubted)
        return believed

    def done(self, outcomes: Sequence[ReplayOutcome], /) -> None:
        """Let these outcomes go."""
        self.queue.done(outcomes)

    def close(self) -> None:
        """Close the queue."""
        self.queue.close()

    def _is_believed(self, outcome: ReplayOutcome) -> bool:
        trust = self.signatures.verify(outcome.signature, lambda: _form_of(outcome)).trust
        return trust is Trust.VALID or (self.accept_unsigned and trust is Trust.UNSIGNED)

    def _say(self, one: ReplayOutcome) -> None:
        if self.seldom.now():
            _log.error(
                "replay_outcome_not_signed: ignored that letter %s was %s by replay %s: give all"
                " workers the same dlq.signing_keys, or set dlq.accept_unsigned while some are of a"
                " release that signs no answers",
                printable(one.letter_id[:64]), printable(one.outcome[:20]), one.replay,
            )  # fmt: skip


def _form_of(outcome: ReplayOutcome) -> bytes:
    """The signed form of *outcome*: all its fields in their order, as JSON."""
    fields = (
        outcome.letter_id, outcome.replay, outcome.outcome, outcome.handler, outcome.event_id
    )  # fmt: skip
    return _FORM + json.dumps(fields).encode()
