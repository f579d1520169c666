"""World: publishers, a broker, workers, letters, a ledger and collectors, in this process.

What decides who needs a body is the real code: offloader, claims, settler, queues of letters,
removals and collector. Broker and ledger are lists. What is in them outlives every crash.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.adapters.memory.idempotency import MemoryIdempotencyStore, MemoryOwnerLeases
from angzarr.analysis.ledger.payload_upkeep import LettersBodies, UnneededBodies
from angzarr.clock import Clock
from angzarr.dead_letters.holding_queue import HoldingQueue
from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.offloading_queue import OffloadingQueue
from angzarr.delivery.claims import Results
from angzarr.delivery.completions import LeftCompletion
from angzarr.delivery.delivery import (
    DeadLettered,
    Delivery,
    Handled,
    Outcome,
    Postponed,
    Retried,
    Skipped,
    Superseded,
    read,
)
from angzarr.delivery.edited_copies import edited_message
from angzarr.delivery.failure_policy import UNREADABLE, FailurePolicy
from angzarr.delivery.handlers import Domains
from angzarr.delivery.letter_builder import DeadLetterBuilder
from angzarr.delivery.settle import Settler
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.payloads.body_sealer import BodyKeys, BodySealer
from angzarr.payloads.claim_check import check_in
from angzarr.payloads.collector import CollectionTerms, PayloadCollector, PayloadState
from angzarr.payloads.holders import BodyRegistration, PayloadHold, letter_holder
from angzarr.resilience.idempotency import (
    FIRST,
    RECORD_LIFE,
    Claimed,
    Complete,
    Ending,
    Fail,
    InProgress,
    Position,
    Release,
    Wait,
)
from angzarr.resilience.idempotency_rules import answer_of
from angzarr.resilience.policies import POLICIES
from angzarr.resilience.policy_rules import policy_rules
from angzarr.testing import FakeClock
from payload_model.crashes import Crash, Killer, Killing
from payload_model.ground import Ground, KnownBodies, in_memory
from payload_model.parts import Beside, LateDeletions, Letters, Nothing

#: What the bodies of events say: few, so that events share bodies.
CONTENTS = ("a" * 200, "b" * 200, "c" * 200)
GRACE = 2 * RECORD_LIFE
KEYS = BodyKeys(keys={"k1": b"1" * 32}, current="k1")
OWNER = "worker"


class _Claims(MemoryIdempotencyStore):
    """Claims that tell of each that ends."""

    world: World

    def settle(self, key: str, token: str, ending: Ending, /, facts: Any = ()) -> bool:
        ended = super().settle(key, token, ending, facts)
        if ended:
            self.world.end(key, ending)
        return ended


class World:
    """Everything of one history."""

    def __init__(
        self,
        seed: int,
        *,
        rate: float,
        seals: bool = False,
        ground: Callable[[Clock], Ground] = in_memory,
    ) -> None:
        self.chance = random.Random(seed)
        #: Encrypts what is stored; None: it lies there as it is.
        self.sealer = BodySealer(keys=KEYS, cipher=XaesCipher()) if seals else None
        self.killer = Killer(self.chance, rate)
        #: How many events there are: of few more happens to each.
        self.events = self.chance.choice((1, 2, 6))
        #: How often events end in letters.
        self.deaths = self.chance.choice((2, 9))
        self.clock = FakeClock()
        #: Where bodies, holds and entries are.
        self.ground = ground(self.clock)
        self.holders, self.ledger = self.ground.holders, self.ground.ledger
        self.bodies = KnownBodies(self.ground.bodies)
        self.leases = MemoryOwnerLeases(self.clock)
        self.leases.renew(OWNER, timedelta(days=10_000))
        self.claims = _Claims(self.leases, clock=self.clock, holders=self.holders)
        self.claims.world = self
        self.late = LateDeletions(self.bodies, self.chance)
        #: Messages in the broker, and when each is due.
        self.queue: list[tuple[datetime, Message]] = []
        self.letters = Letters()
        #: The replay of each event at which it ended, well (a large number) or in a letter.
        self.ended: dict[str, int] = {}
        #: What other processes do while a collector is at work; None: nothing.
        self.beside: Callable[[], None] | None = None
        #: The position of each event's latest copy.
        self.ahead: dict[str, Position] = {}
        #: The hold of the copy that was published last.
        self.copied: PayloadHold | None = None
        #: Holders whose event goes on with another body.
        self.edited: set[str] = set()
        #: Letters, and their bodies, of duplicates that came when their event had long ended.
        self.lost: set[tuple[str, str]] = set()
        #: Events of which a message was superseded: it was published again meanwhile.
        self.superseded: set[str] = set()
        self.tokens = 0
        self.problems: list[str] = []
        self.connect()

    def connect(self) -> None:
        """Make the processes anew, as after a crash."""
        kill = self.killer
        holders, bodies = Killing(self.holders, kill), Killing(self.bodies, kill)
        registration = BodyRegistration(lambda: holders)
        self.offloader = BodyOffloader(
            bodies, 100, registration, monotonic=self._monotonic, sealer=self.sealer
        )
        offloading = OffloadingQueue(
            Killing(self.letters, kill), bodies, over=150, registration=registration
        )
        self.dead_letters = HoldingQueue(offloading, lambda: holders)
        self.policy = FailurePolicy(
            letter_builder=DeadLetterBuilder(
                clock=self.clock, component="c", worker="w", version="1", domains=Domains()
            ),
            clock=self.clock,
            chance=lambda: 0.0,
            policies=policy_rules(POLICIES, rules=[]),
        )
        self.settler = Settler(
            schedule=self, followers=Nothing(), dead_letters=self.dead_letters,
            replay_outcomes=self, store=Killing(self.claims, kill), ordering=Nothing(),
            facts=Nothing(), clock=self.clock, holders=holders,
        )  # fmt: skip
        self.upkeep = LettersBodies(Killing(self.ground.released, kill), holders)

    def let_pass(self, span: timedelta) -> None:
        """Let time pass for everybody."""
        self.clock.advance(span)
        self.ground.age(span)

    def _monotonic(self) -> float:
        return self.clock.now().timestamp()

    # -- publishing ----------------------------------------------------------------------------

    def publish(self, event: str, content: str, replay: int = 0) -> None:
        """Send *event*, which may be sent already."""
        headers: dict[str, Any] = {"task": "h", "id": event}
        if replay:
            headers[names.REPLAY] = replay
        whole = json.dumps([[content], {}, {}]).encode()
        fits = self.chance.random() < 0.2  # this broker takes it; a queue of letters may not
        body = whole if fits else self.offloader.offloaded(whole, "application/json", headers)
        message = self._message(body, headers)
        if (hold := self._read(message).hold) is not None:
            self.edited.discard(hold.holder)
        self._send(message)

    @staticmethod
    def _message(body: bytes, headers: dict[str, Any]) -> Message:
        return Message(
            body=body, content_type="application/json", content_encoding="utf-8",
            headers=headers, queue="q",
        )  # fmt: skip

    def _send(self, message: Message, due: datetime | None = None) -> None:
        self.killer.around(self.queue.append)((due or self.clock.now(), message))

    def put(self, message: Any, due_at: Any = None) -> None:
        """Take a copy from the settler (a schedule), or an answer to a replay, which is ignored."""
        if isinstance(message, Message):
            headers, body = dict(message.headers), message.body
            if len(body) > self.offloader.most:
                body = self.offloader.offloaded(body, "application/json", headers)
            copy = replace(message, body=body, headers=headers)
            self.copied = self._read(copy).hold
            self._send(copy, due_at)

    # -- delivering ----------------------------------------------------------------------------

    def deliver(self, number: int) -> None:
        """Let a worker take a message; it is acknowledged at the end, unless that crashes."""
        due, message = self.queue[number]
        if due > self.clock.now():
            self.let_pass(due - self.clock.now())
        self.clock.advance(timedelta(milliseconds=1))  # a message comes again later, never at once
        delivery = self._read(message)
        (answer,) = self.claims.claim([delivery.claim])
        outcome = (
            self._run(delivery) if isinstance(answer, Claimed) else self._other(delivery, answer)
        )
        if outcome is None:
            return
        if isinstance(outcome, Superseded):
            self.superseded.add(delivery.event.id)
        if isinstance(outcome, DeadLettered) and self._is_lost(delivery, outcome.letter):
            self.lost.add(_place_of(outcome.letter))
        if isinstance(outcome, Retried) and outcome.body is not None:
            edited = edited_message(delivery, outcome.body, self.offloader)
            outcome = replace(outcome, edited=edited)
        if self.chance.random() < 0.3:  # its end is left to the acknowledgement, as of a success
            self._settle_left(delivery, outcome)
        else:
            self.settler.settle(delivery, outcome)
        self.killer.around(self.queue.remove)((due, message))

    def _read(self, message: Message) -> Delivery:
        self.tokens += 1
        args, kwargs, _ = json.loads(message.body)
        return read(message, args=args, kwargs=kwargs, token=f"t{self.tokens}", owner=OWNER)

    def _run(self, delivery: Delivery) -> Outcome:
        """Fetch the body as the worker does, and choose how the handler ends."""
        if self.lacks_body(delivery):
            if not self.is_over(delivery):
                self.problems.append(f"the handler of {delivery.event.id} misses its body")
            # A duplicate that came days later, when no claim knew it any more.
            return self._dead(delivery, Reason.UNDELIVERABLE)
        delay = timedelta(seconds=self.chance.choice((0, 60, 400_000)))
        again = Retried(error=ValueError("no"), delay=delay, seen=UNREADABLE, max_attempts=9)
        body = json.dumps([[self.chance.choice(CONTENTS)], {}, {}]).encode()
        handled = Handled(value=None, result="null")
        dead = self._dead(delivery, Reason.REFUSED)
        return self.chance.choice(
            [
                handled, handled, handled, Skipped(reason="r"), again, replace(again, body=body),
                Postponed(delay=delay, why="w", claimed=True), *[dead] * self.deaths,
            ]
        )  # fmt: skip

    def _dead(self, delivery: Delivery, reason: Reason) -> DeadLettered:
        return self.policy.dead(delivery, None, ValueError("no"), reason, UNREADABLE)

    def _other(self, delivery: Delivery, answer: Any) -> Outcome | None:
        """The outcome of a delivery without a claim; None: it goes back."""
        if isinstance(answer, InProgress):
            self.claims.settle(delivery.key, self._holder(delivery), Release())
            return None  # its holder crashed: its lease has ended by the time it comes again
        outcome = Results(dumps=json.dumps, loads=json.loads).outcome_of(answer)
        if outcome is None:  # one id, two bodies
            return replace(self._dead(delivery, Reason.CONFLICT), claimed=False)
        return outcome

    def _holder(self, delivery: Delivery) -> str:
        record = self.claims._read(delivery.key)
        return record.token if record else ""

    def _settle_left(self, delivery: Delivery, outcome: Outcome) -> None:
        left = replace(delivery, answer=Claimed(), ack_follows=True)
        self.settler.settle(left, outcome)
        completion = self.settler.leave(left, outcome)
        if isinstance(completion, LeftCompletion):
            self.settler.complete(left, completion)

    def end(self, key: str, ending: Ending) -> None:
        """Note that an event has ended, and close its entry; called as its claim ends."""
        event = key.rpartition(":")[2]
        if isinstance(ending, Complete):
            self.ended[event] = 10**9
            self.ledger.end(event)
        elif isinstance(ending, Wait):
            self.ahead[event] = max(ending.position, self.ahead.get(event, FIRST))
            if ending.releases is not None and ending.releases != self.copied:
                self.edited.add(ending.releases.holder)
        elif isinstance(ending, Fail):
            record = self.claims._read(key)
            replay = record.position.replay if record else 0
            self.ended[event] = max(replay, self.ended.get(event, -1))

    # -- letters and ledger --------------------------------------------------------------------

    def ingest(self) -> None:
        """File the first letter; it is done with afterwards."""
        letter = self.letters.waiting[0]
        self.killer.around(self.ledger.file)(letter)
        self.letters.waiting.remove(letter)

    def removable(self) -> list[str]:
        """Entries that are closed; they are kept for longer than their letters come again.

        A letter of the same event that was made since may wait all the same.
        """
        coming = {_failure_of(letter) for letter in self.letters.waiting}
        entries = self.ledger.entries.items()
        return [
            event
            for event, entry in entries
            if entry.closed and not coming.intersection(map(_failure_of, entry.letters))
        ]

    def replay(self, event: str, content: str | None) -> None:
        """Send an entry's event again, as it is or edited."""
        letter = self.ledger.entries[event].letter
        edited = content is not None
        if content is None and letter.payload and not self._has(letter.payload.uri):
            return  # it is held, with the reason
        if content is None and letter.payload and letter.payload.is_sealed:
            headers = {**letter.message.headers, names.REPLAY: letter.replay + 1}
            headers.pop(names.HOP, None)
            self.offloader.hold_replay(headers)
            self._send(replace(letter.message, headers=headers))
            return
        if content is None:
            body = letter.message.body or self.bodies.fetch(letter.payload)
            content = json.loads(body)[0][0]
        number = self.killer.around(self.ledger.begin)(event, edited=edited)
        if number is not None:
            self.publish(event, content, number)

    # -- collecting ----------------------------------------------------------------------------

    def collect(self, limit: int | None = None) -> None:
        """Let a collector run; it may be cut off anywhere."""
        collector = PayloadCollector(
            register=Beside(Killing(self.holders, self.killer), self),
            store=Beside(self.late, self),
            terms=CollectionTerms(grace=GRACE),
        )
        UnneededBodies(collector, batch=limit or 100).remove(self.clock.now())

    def act_beside(self) -> None:
        """Let another process act, now and then, while a collector is at work."""
        if self.beside is None or self.chance.random() > 0.3:
            return
        act, self.beside = self.beside, None
        try:
            act()
        except Crash:
            self.connect()
        finally:
            self.beside = act

    # -- what must hold ------------------------------------------------------------------------

    def is_over(self, delivery: Delivery) -> bool:
        """True if the event of *delivery* ended at its replay, or later, or has a later copy.

        Claims know that for as long as they are kept; a duplicate may come after that.
        """
        event, position = delivery.event.id, delivery.position
        if delivery.hold is not None and delivery.hold.holder in self.edited:
            return True
        return self.ended.get(event, -1) >= position.replay or position < self.ahead.get(
            event, FIRST
        )

    def needed(self) -> Iterator[tuple[str, str]]:
        """Each URI that somebody will fetch, and who."""
        for _, message in self.queue:
            check = check_in(message.headers)
            if check is not None and self._will_run(self._read(message)):
                yield check.reference.uri, f"message {message.id}"
        filed = (one for entry in self.ledger.entries.values() for one in entry.letters)
        for letter in (*self.letters.waiting, *filed):
            if letter.payload is not None and _place_of(letter) not in self.lost:
                yield letter.payload.uri, f"letter {letter.id}"

    def _will_run(self, delivery: Delivery) -> bool:
        record = self.claims._read(delivery.key)
        answer = answer_of(record, delivery.claim, lambda _owner: False)
        return isinstance(answer, Claimed | InProgress) and not self.is_over(delivery)

    def lacks_body(self, delivery: Delivery) -> bool:
        """True if the body of *delivery* is in no store."""
        check = check_in(delivery.message.headers)
        return check is not None and not self._has(check.reference.uri)

    def _is_lost(self, delivery: Delivery, letter: DeadLetter) -> bool:
        """True if *letter* is of a duplicate that comes when its body goes, or has gone."""
        if not self.is_over(delivery):
            return False
        if self.lacks_body(delivery):
            return True
        found = self.holders.find(PayloadState.CONDEMNED, timedelta(0), limit=99)
        return _place_of(letter)[1] in {one.uri for one in found}

    def check_all(self) -> None:
        """Note each body that is needed and not there."""
        self.problems += [f"{who} misses {uri}" for uri, who in self.needed() if not self._has(uri)]

    def _has(self, uri: str) -> bool:
        return uri in self.bodies.known


def _place_of(letter: DeadLetter) -> tuple[str, str]:
    """*letter*, and where its body is."""
    return letter.id, letter.payload.uri if letter.payload else ""


def _failure_of(letter: DeadLetter) -> str:
    """What letters have in common that are made of one failure."""
    return letter_holder(letter.id, letter.sent_to_dlq_at)
