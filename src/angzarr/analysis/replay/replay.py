"""Replay: the message that sends a failed event on its road again, and who sends it (A4).

The ledger commits `retrying, replay n` first, then the message is published, then the ledger notes
that the broker has it. A crash in between leaves an entry that falls due again and is published
under the same n, which the claim makes harmless.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from angzarr.analysis.ledger.entry import Entry, HistoryLine, Status
from angzarr.analysis.ledger.failure import Failure, Unreadable, payload_of
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.ledger.operator_actions import WENT_ON, passed
from angzarr.analysis.ledger.replay_options import (
    AS_IT_IS,
    ReplayOrder,
    continued,
    expecting,
    redirected,
    repinned,
)
from angzarr.analysis.ledger.transition import replayable
from angzarr.clock import Clock
from angzarr.dead_letters.letter import DeadLetter, NoTarget, Reason, Refusal
from angzarr.dead_letters.protection import Clearance
from angzarr.dead_letters.queue import RawLetter
from angzarr.dead_letters.sealed_letters import SealedLetters
from angzarr.errors import PayloadCorrupt, PayloadGone, PayloadTooLarge
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.events.publication import Publisher
from angzarr.payloads.store import PayloadStore

#: What belongs to one run, one copy or one broker; a replay starts afresh.
_DROPPED: Final = frozenset(
    {
        *names.BROKER_COUNTERS,
        names.ATTEMPT,
        names.HOP,
        names.FIRST_ATTEMPT_AT,
        names.HELD_SINCE,
        names.REQUEUED,
        names.REST,
        names.WAITED_FOR,
        names.SKIP,
        names.REPLAYED_BY,
        "x-delay",
    }
)
#: Celery reads these headers itself and expects them to exist.
_RESET: Final[dict[str, Any]] = {"retries": 0, "eta": None, "expires": None}
#: The broker's own time limit on a message (AMQP, milliseconds).
_EXPIRATION: Final = "expiration"
#: What a skip brings in place of a body that cannot be read, and how Celery says it is packed.
_NO_BODY: Final = b"[[null], {}, {}]"
_COMPRESSION: Final = "compression"
_NO_MESSAGE: Final = "the letter holds no Celery message to send"
#: They may say that the message is not the whole, as the field that names a payload does.
_UNKNOWN_FIELDS: Final = "the letter has fields that this release does not know: use one that does"
_NEW_TASK_IDS: Final = uuid.UUID("0d3f64a5-1f5c-5d0a-8c55-7a1f3be1c6aa")


def _as_it_is(letter: DeadLetter) -> DeadLetter | Refusal:
    return letter


def _nobody_elses(_failure: Failure) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTargets:
    """The possible targets of replays: the app's registered tasks, its known queues."""

    tasks: AbstractSet[str]
    queues: AbstractSet[str]
    #: Checks a letter and gives it the message to send, or says why not; see `Clearance`.
    clear: Callable[[DeadLetter], DeadLetter | Refusal] = _as_it_is
    #: Does the same to what is no letter.
    clear_record: Callable[[RawLetter], DeadLetter | Refusal] = field(
        default_factory=lambda: Clearance().record
    )
    #: Says that another app wrote it, or nothing: a task of the same name here may be another.
    of_another: Callable[[Failure], str] = _nobody_elses
    #: The queue of each task, where it is not the one that its letter came from.
    homes: Mapping[str, str] = field(default_factory=dict)

    def problem(self, failure: Failure, order: ReplayOrder = AS_IT_IS) -> str:
        """Why *failure* cannot be replayed, in one sentence, or an empty string.

        A `Distrusted` says that the letter itself is not to be believed.
        """
        cleared = self.cleared(failure, order)
        return cleared if isinstance(cleared, Refusal) else ""

    def unknown(self, order: ReplayOrder) -> str:
        """The places that *order* names and this app does not know, or an empty string."""
        if order.to_handler and order.to_handler not in self.tasks:
            return f"no handler is registered as {order.to_handler!r}"
        if order.to_queue and order.to_queue not in self.queues:
            return f"the app knows no queue {order.to_queue!r}"
        return ""

    def cleared(self, failure: Failure, order: ReplayOrder = AS_IT_IS) -> DeadLetter | Refusal:
        """The letter with the message that a replay sends, or why there is none."""
        if isinstance(failure, Unreadable):
            letter = self.clear_record(failure.as_raw_letter())
        else:
            letter = self.clear(failure)
        if isinstance(letter, Refusal):
            return letter
        if not (order.to_handler or order.to_queue) and (why := self.of_another(failure)):
            return Refusal(why)
        if order is AS_IT_IS:  # nearly always
            return self._sendable(letter)
        if self._strands(letter, order):
            return Refusal(
                f"later events wait behind it for {letter.handler}, which another handler does not"
                " let go on: replay it as it is, or skip it and publish the event anew"
            )
        sendable = self._sendable(redirected(letter, order, self._home(letter, order)))
        if isinstance(sendable, Refusal):
            return sendable
        return expecting(repinned(sendable, order), order)

    def _strands(self, letter: DeadLetter, order: ReplayOrder) -> bool:
        """True if *order* would leave a lane behind that nothing would move any more.

        A renamed handler has its lanes under the new name: nothing waits in the old ones.
        """
        elsewhere = order.to_handler not in {"", letter.message.task}
        return elsewhere and letter.holds_up and letter.message.task in self.tasks

    def _home(self, letter: DeadLetter, order: ReplayOrder) -> str:
        return self.homes.get(order.to_handler, letter.message.queue)

    def _sendable(self, letter: DeadLetter) -> DeadLetter | Refusal:
        message = letter.message
        if letter.reason is Reason.CONFLICT:
            return Refusal(
                "its event id belongs to another body: publish it again under an id of its own"
            )
        task = message.task
        if letter.envelope or not task:
            return Refusal(_UNKNOWN_FIELDS if task else _NO_MESSAGE)
        if task not in self.tasks:
            return NoTarget(f"no handler is registered as {task!r}")
        if message.queue not in self.queues:
            return NoTarget(f"the app knows no queue {message.queue!r}")
        return letter


def replay_message(letter: DeadLetter, replay: int, by: str = "") -> Message:
    """*letter*'s message as replay number *replay*, for its original queue; *by* asked for it.

    Body, task id, event id, correlation id, pins and trace stay as they were; attempt, hop, age,
    eta and expiry begin anew. A revoked task gets a new id: workers remember the old one.
    """
    message = letter.message
    headers = {name: value for name, value in message.headers.items() if name not in _DROPPED}
    headers |= _RESET
    headers |= {
        names.REPLAYED: "true",
        names.ORIGINAL_MESSAGE_ID: headers.get(names.ORIGINAL_MESSAGE_ID) or message.id,
        names.REPLAY: replay,
        names.LETTER_ID: letter.id,
        names.QUEUE: message.queue,
    }
    if by:
        headers[names.REPLAYED_BY] = by[: names.LONGEST_REASON]
    if was_revoked(letter):
        headers |= _renamed(letter, replay)
    properties = {name: value for name, value in message.properties.items() if name != _EXPIRATION}
    return replace(message, headers=headers, properties=properties)


def skip_message(letter: DeadLetter, replay: int, reason: str) -> Message:
    """The message that moves *letter*'s lane past its event: replay *replay*, not handled.

    The same road and claim as a replay; *reason* is what the worker's facts say of it. A body that
    cannot be read is left out: it would never come as far as the lane.
    """
    message = replay_message(letter, replay)
    headers = {**message.headers, names.SKIP: names.skip_reason(reason)}
    if letter.event is not None:
        return replace(message, headers=headers)
    headers.pop(_COMPRESSION, None)
    return replace(
        message,
        headers=headers,
        body=_NO_BODY,
        content_type="application/json",
        content_encoding="utf-8",
    )


def asked_by(history: Iterable[HistoryLine]) -> str:
    """Who began the last replay that *history* tells of; empty: none was begun."""
    begun = [line.who for line in history if line.what == Status.RETRYING]
    return begun[-1] if begun else ""


def was_revoked(letter: DeadLetter) -> bool:
    """True if the task was revoked before it ran."""
    return letter.reason is Reason.REVOKED


def _renamed(letter: DeadLetter, replay: int) -> dict[str, str]:
    """A task id that is new, yet the same each time; the event keeps its own."""
    task_id = str(uuid.uuid5(_NEW_TASK_IDS, f"{letter.message.id}\x00{replay}"))
    event_id = letter.event.id if letter.event else letter.message.id
    return {"id": task_id, names.EVENT_ID: event_id}


#: How long a replay may take to be published before another worker does it.
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
    #: Opens letters whose body is encrypted, for who may see it.
    bodies: SealedLetters = field(default_factory=SealedLetters)

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
        letter = self.sendable(failure, order, checks=True)
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
        self._send(begun, letter, by)
        return ""

    def continued(self, entry: Entry, order: ReplayOrder = AS_IT_IS) -> ReplayOrder:
        """*order* with the edit that the next replay of *entry* sends again, if any."""
        if order.letter is not None or entry.letter_replay >= entry.replays:
            return order
        detail = self.ledger.open(entry.id)
        return continued(order, detail.unanswered) if detail else order

    def problem(self, entry: Entry, failure: Failure, order: ReplayOrder = AS_IT_IS) -> str:
        """Why *entry* cannot be replayed now, or an empty string; changes nothing."""
        if not replayable(entry):
            return WENT_ON if passed(entry) else f"the entry is {entry.status}"
        return self.obstacle(failure, order)

    def obstacle(self, failure: Failure, order: ReplayOrder = AS_IT_IS) -> str:
        """Why *failure* can be sent nowhere, or an empty string; asks no server."""
        failure = order.letter or failure
        if problem := self.targets.problem(failure, order):
            return problem
        if (payload := payload_of(failure)) and self.payloads is None:
            return f"its body lies at {payload}, and this app has no dlq.payloads.url: set it"
        return ""

    def publish(
        self, entry: Entry, failure: Failure, order: ReplayOrder = AS_IT_IS, *, by: str = ""
    ) -> str:
        """Publish the replay that *entry* has begun; return why not, or an empty string.

        *by* asked for it, see `asked_by`.
        """
        if problem := self.obstacle(failure, order):
            return problem
        letter = self.sendable(failure, order, checks=True)
        if isinstance(letter, Refusal):
            return letter
        self._send(entry, letter, by)
        return ""

    def sendable(
        self,
        failure: Failure,
        order: ReplayOrder = AS_IT_IS,
        *,
        too_large: str = _REPLAYED,
        checks: bool = False,
    ) -> DeadLetter | Refusal:
        """The letter with its body, verified and opened, or why it cannot be had, ever.

        A body that is encrypted stays so, and in its store; *checks*: that it is there, as it was.
        *too_large*: what helps with a body that is not opened for people.
        """
        letter = self._fetched(order.letter or failure, too_large, checks=checks)
        return letter if isinstance(letter, Refusal) else self.targets.cleared(letter, order)

    def opened(self, failure: Failure, *, too_large: str = _REPLAYED) -> DeadLetter | Refusal:
        """The letter with its body, whatever encrypts it, or why it cannot be had here."""
        letter = self.sendable(failure, too_large=too_large)
        return letter if isinstance(letter, Refusal) else self.unsealed(letter, too_large)

    def unsealed(self, letter: DeadLetter, too_large: str = _REPLAYED) -> DeadLetter | Refusal:
        """*letter*, which is sendable, with the body that came encrypted opened; or why not."""
        try:
            return self.bodies.opened(letter, self.payloads)
        except PayloadTooLarge as error:
            return Refusal(f"{error}: {too_large}")

    def _fetched(self, failure: Failure, too_large: str, *, checks: bool) -> Failure | Refusal:
        if not isinstance(failure, DeadLetter):
            return failure
        if failure.payload is None or self.payloads is None:
            return failure
        is_sealed = failure.payload.is_sealed  # then the message is whole, and names it
        try:
            body = b"" if is_sealed and not checks else self.payloads.fetch(failure.payload)
            if is_sealed:
                return replace(failure, payload=None)
        except PayloadTooLarge as error:
            return Refusal(f"{error}: {too_large}")
        except (PayloadGone, PayloadCorrupt) as error:
            return Refusal(error)
        return replace(failure, message=replace(failure.message, body=body), payload=None)

    def _send(self, entry: Entry, letter: DeadLetter, by: str) -> None:
        self.publisher.publish(replay_message(letter, entry.replays, by))
        answer_by = self.clock.now() + self.answer_deadline
        self.ledger.mark_published(entry.id, entry.replays, answer_by=answer_by)
