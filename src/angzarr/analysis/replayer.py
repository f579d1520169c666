"""Replayer: begins replays in an order that a crash cannot spoil (decisions 12).

The ledger commits `retrying, replay n` first, then the message is published, then the ledger
notes that the broker has it. Whoever dies in between leaves an entry that falls due again and is
published under the same n, which the claim makes harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from angzarr.analysis.entry import Entry, Failure
from angzarr.analysis.ledger import Ledger
from angzarr.analysis.replay import ReplayTargets, replay_message
from angzarr.analysis.transition import replayable
from angzarr.clock import Clock
from angzarr.dead_letters.letter import DeadLetter
from angzarr.events.publisher import Publisher

#: How long a replay may take to be published before somebody else does it.
LEASE: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayer:
    """Sends entries on their road again. Both verbs raise LedgerUnavailable, BrokerUnavailable."""

    ledger: Ledger
    publisher: Publisher
    targets: ReplayTargets
    clock: Clock
    #: How long a replay may take, its own retries included, before a person is asked.
    answer_deadline: timedelta
    lease: timedelta = LEASE

    def replay(self, entry: Entry, failure: Failure, *, by: str) -> str:
        """Begin the next replay of *entry*; return why not, or an empty string once it is sent.

        After BrokerUnavailable the replay is begun: the analysis worker sends it.
        """
        if problem := self.problem(entry, failure):
            return problem
        begun = self.ledger.mark_retrying(
            entry.id, entry.replays + 1, revision=entry.revision, by=by, lease=self.lease
        )
        if begun is None:
            return "the entry was changed meanwhile"
        return self.publish(begun, failure)

    def problem(self, entry: Entry, failure: Failure) -> str:
        """Return why *entry* cannot be replayed now, or an empty string; changes nothing."""
        if not replayable(entry):
            return f"the entry is {entry.status}"
        return self.targets.problem(failure)

    def publish(self, entry: Entry, failure: Failure) -> str:
        """Publish the replay that *entry* has begun; return why not, or an empty string."""
        problem = self.targets.problem(failure)
        if problem or not isinstance(failure, DeadLetter):
            return problem
        self.publisher.publish(replay_message(failure, entry.replays))
        answer_by = self.clock.now() + self.answer_deadline
        self.ledger.mark_published(entry.id, entry.replays, answer_by=answer_by)
        return ""
