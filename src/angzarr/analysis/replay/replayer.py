"""Replayer: begins replays in an order that a crash cannot spoil (decisions 12).

The ledger commits `retrying, replay n` first, then the message is published, then the ledger
notes that the broker has it. Whoever dies in between leaves an entry that falls due again and is
published under the same n, which the claim makes harmless.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from angzarr.analysis.ledger.entry import Entry, Failure, payload_of
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.ledger.ordering_state import WENT_ON, passed
from angzarr.analysis.ledger.replay_options import AS_IT_IS, ReplayOrder, continued
from angzarr.analysis.ledger.transition import replayable
from angzarr.analysis.replay.replay import ReplayTargets, replay_message
from angzarr.clock import Clock
from angzarr.dead_letters.letter import DeadLetter
from angzarr.dead_letters.refusal import Refusal
from angzarr.errors import PayloadCorrupt, PayloadGone, PayloadTooLarge
from angzarr.events.publisher import Publisher
from angzarr.payloads.store import PayloadStore

#: How long a replay may take to be published before somebody else does it.
LEASE: Final = timedelta(seconds=30)
#: Why an entry is not replayed that another one changed since it was read: read it again.
CHANGED: Final = "the entry was changed meanwhile"
_REPLAYED: Final = "a replay sends it all the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayer:
    """Sends entries on their road again.

    Both verbs raise LedgerUnavailable, BrokerUnavailable, PayloadStoreUnavailable.
    """

    ledger: Ledger
    publisher: Publisher
    targets: ReplayTargets
    clock: Clock
    #: How long a replay may take, its own retries included, before a person is asked.
    answer_deadline: timedelta
    lease: timedelta = LEASE
    #: Where the bodies of large letters are; None: this app has no such store.
    payloads: PayloadStore | None = None

    def replay(
        self,
        entry: Entry,
        failure: Failure,
        *,
        by: str,
        order: ReplayOrder = AS_IT_IS,
        original: bool = False,
    ) -> str:
        """Begin the next replay of *entry*; return why not, or an empty string once it is sent.

        It carries an edit whose replay no letter answered, unless *original*.
        After BrokerUnavailable the replay is begun: the analysis worker sends it. A body that
        cannot be had begins none.
        """
        if not original:
            order = self.continued(entry, order)
        if problem := self.problem(entry, failure, order):
            return problem
        letter = self.sendable(failure, order)
        if isinstance(letter, Refusal):
            return letter
        begun = self.ledger.mark_retrying(
            entry.id,
            entry.replays + 1,
            revision=entry.revision,
            by=by,
            lease=self.lease,
            order=order,
        )
        if begun is None:
            return CHANGED
        self._send(begun, letter)
        return ""

    def continued(self, entry: Entry, order: ReplayOrder = AS_IT_IS) -> ReplayOrder:
        """Return *order* with the edit that the next replay of *entry* sends again, if any."""
        if order.letter is not None or entry.letter_replay >= entry.replays:
            return order
        detail = self.ledger.open(entry.id)
        return continued(order, detail.unanswered) if detail else order

    def problem(self, entry: Entry, failure: Failure, order: ReplayOrder = AS_IT_IS) -> str:
        """Return why *entry* cannot be replayed now, or an empty string; changes nothing."""
        if not replayable(entry):
            return WENT_ON if passed(entry) else f"the entry is {entry.status}"
        return self.obstacle(failure, order)

    def obstacle(self, failure: Failure, order: ReplayOrder = AS_IT_IS) -> str:
        """Return why *failure* can be sent nowhere, or an empty string; asks no server."""
        failure = order.letter or failure
        if problem := self.targets.problem(failure, order):
            return problem
        if (payload := payload_of(failure)) and self.payloads is None:
            return f"its body lies at {payload}, and this app has no dlq.payloads.url: set it"
        return ""

    def publish(self, entry: Entry, failure: Failure, order: ReplayOrder = AS_IT_IS) -> str:
        """Publish the replay that *entry* has begun; return why not, or an empty string."""
        if problem := self.obstacle(failure, order):
            return problem
        letter = self.sendable(failure, order)
        if isinstance(letter, Refusal):
            return letter
        self._send(entry, letter)
        return ""

    def sendable(
        self, failure: Failure, order: ReplayOrder = AS_IT_IS, *, too_large: str = _REPLAYED
    ) -> DeadLetter | Refusal:
        """Return the letter with its body, verified and opened, or why it cannot be had, ever.

        *too_large*: what helps with a body that is not opened for people.
        """
        letter = self._fetched(order.letter or failure, too_large)
        return letter if isinstance(letter, Refusal) else self.targets.cleared(letter, order)

    def _fetched(self, failure: Failure, too_large: str) -> Failure | Refusal:
        if not isinstance(failure, DeadLetter):
            return failure
        if failure.payload is None or self.payloads is None:
            return failure
        try:
            body = self.payloads.fetch(failure.payload)
        except PayloadTooLarge as error:
            return Refusal(f"{error}: {too_large}")
        except (PayloadGone, PayloadCorrupt) as error:
            return Refusal(error)
        return replace(failure, message=replace(failure.message, body=body), payload=None)

    def _send(self, entry: Entry, letter: DeadLetter) -> None:
        self.publisher.publish(replay_message(letter, entry.replays))
        answer_by = self.clock.now() + self.answer_deadline
        self.ledger.mark_published(entry.id, entry.replays, answer_by=answer_by)
