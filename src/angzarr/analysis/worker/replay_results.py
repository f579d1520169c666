"""Answers: the analysis worker's duty that closes entries whose replay ended well (decisions 22).

A word that it does not know is a newer worker's, and is let go.

It must never let an answer go before the ledger has committed what it says.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from angzarr.analysis.ledger.entry import BY_REPLAY, Status
from angzarr.analysis.ledger.ledger import Answer, Ledger
from angzarr.analysis.worker.intake import BATCH
from angzarr.dead_letters.replay_outcome import ReplayOutcome, ReplayOutcomes
from angzarr.runtime.log_throttle import Seldom
from angzarr.runtime.text import printable

_log = logging.getLogger("angzarr.analysis")
#: Characters of a letter's id that a line has; ours have 64.
_LONGEST_SAID: Final = 200

#: What an outcome makes of an entry; a replay that failed again is told by its letter.
_ENDINGS: Final = {
    "handled": Status.RESOLVED,
    "duplicate": Status.RESOLVED,
    "skipped": Status.SKIPPED,
    "parked": Status.RETRYING,  # not over: its answer comes with its turn
}


@dataclass(slots=True, kw_only=True)
class Answers:
    """Takes what workers say of replays and notes it, idempotently."""

    outcomes: ReplayOutcomes
    ledger: Ledger
    batch: int = BATCH
    seldom: Seldom = field(default_factory=Seldom)
    name: str = field(default="answers", init=False)
    #: Answers so far that are of no letter that is known here.
    _unknown: int = field(default=0, init=False)
    _answers: list[ReplayOutcome] = field(default_factory=list, init=False)

    def turn(self, wait: timedelta) -> int:  # noqa: ARG002 - letters are what it waits for
        """Note a batch of answers."""
        if not self._answers:
            self._answers = self.outcomes.receive(limit=self.batch, wait=timedelta(0))
        self._note([one for one in self._answers if one.outcome in _ENDINGS])
        if self._answers:
            self.outcomes.done(self._answers)
        taken, self._answers = len(self._answers), []
        return taken

    def _note(self, ended: Sequence[ReplayOutcome]) -> None:
        if not ended:
            return
        entries = self.ledger.find_by_letters({one.letter_id for one in ended})
        answers = []
        for one in ended:
            if (entry := entries.get(one.letter_id)) is None:
                self._note_unknown(one)
                continue
            by = f"{BY_REPLAY}{one.replay} ({one.outcome})"
            answers.append(Answer(entry.id, one.replay, by, _ENDINGS[one.outcome]))
        self.ledger.note_answers(answers)

    def _note_unknown(self, outcome: ReplayOutcome) -> None:
        """Say once a minute that a replay of no letter of ours was answered."""
        self._unknown += 1
        if self.seldom.now():
            said = printable(outcome.letter_id)[:_LONGEST_SAID]
            _log.warning(
                "unknown_letters_answered: replays of %d so far, the last of %s",
                self._unknown,
                said,
            )
