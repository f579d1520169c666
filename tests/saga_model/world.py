"""World: a broker and its workers in this process, one delivery at a time, in any order."""

from __future__ import annotations

import base64
import json
import os
import random
import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.analysis.replay.replay import replay_message
from angzarr.dead_letters.letter import DeadLetter
from angzarr.delivery import delivery as deliveries
from angzarr.errors import GivenBack
from angzarr.events.event import Message
from angzarr.facts.fact import Fact
from angzarr.wiring.delivery import build_chains, build_executor
from saga_model.crashes import Crash, Saboteur

#: Replays of one event before the model says that it never ends.
MOST_REPLAYS = 30
#: Deliveries of one run before the model says that it never ends.
MOST_DELIVERIES = 5_000
LEASE = timedelta(minutes=10)


class Facts:
    """Takes facts and keeps none."""

    def carry(self, facts: list[Fact], *, before_ack: bool = False) -> tuple[str, ...]:
        self.append(facts, before_ack=before_ack)
        return ()

    def lines(self, facts: list[Fact]) -> tuple[str, ...]:
        """None of them."""
        return ()

    def append(self, facts: list[Fact], *, before_ack: bool = False) -> None:
        """Forget *facts*."""

    def close(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class Told:
    """What happened in a run."""

    deliveries: int = 0
    crashes: int = 0
    repeated: int = 0
    letters: int = 0
    refused: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)

    def totals(self) -> dict[str, int]:
        """Return the counts."""
        return {
            "deliveries": self.deliveries,
            "crashes": self.crashes,
            "repeated": self.repeated,
            "letters_replayed": self.letters,
            "refused": self.refused,
        }


class Waiting:
    """A schedule: whatever waits is delivered some time."""

    def __init__(self, pending: list[Message]) -> None:
        self._pending = pending

    def put(self, copy: Message, _at: object) -> None:
        """Let *copy* come; when is for the world to draw."""
        self._pending.append(copy)


class World:
    """The broker of *app* and whoever works for it, by a seed."""

    def __init__(
        self, app: Any, redis: Any, seed: int, *, crash: float = 0.04, again: float = 0.1
    ) -> None:
        self.chance = random.Random(seed)
        self.saboteur = Saboteur(self.chance, crash)
        self.again = again
        self.told = Told()
        self.pending: list[Message] = []
        self.letters = MemoryDeadLetterQueue()
        self._app, self._redis = app, redis
        self._queue = app.conf.task_default_queue
        self._owner = ""
        self._open()

    def _open(self) -> None:
        """Give the app an executor and chains that may die at every step that leaves them."""
        app, watch = self._app, self.saboteur.watch
        chains = build_chains(app._parts)
        books = watch(chains.books, "books", "read", "write")
        log = watch(chains.rejections, "log", "note")
        outbox = watch(chains.outbox, "outbox", "publish", "send", "tell", "escalate")
        chains = replace(
            chains,
            books=books,
            rejections=log,
            outbox=outbox,
            decider=replace(chains.decider, books=books),
            compensating=replace(chains.compensating, books=books, log=log, outbox=outbox),
        )
        app._parts.chains._made = _mine(chains)
        app._parts.reacting._made = _mine(replace(app._parts.reacting.get(), outbox=outbox))
        road = build_executor(app._parts)
        store = watch(road.claimer.store, "claims", "claim", "settle", "owns")
        settler = replace(
            road.settler,
            store=store,
            schedule=watch(Waiting(self.pending), "schedule", "put"),
            dead_letters=watch(self.letters, "letters", "put"),
            facts=Facts(),
        )
        claiming = replace(road.claimer, store=store)
        self._road = replace(road, claimer=claiming, settler=settler, poison_wave_breaker=None)
        self._live()

    def _live(self) -> None:
        """Be another process: its owner's lease runs, that of the one before has ended."""
        if self._owner:
            self._app._parts.claims.leases.end(self._owner)
        self._owner = f"model:{uuid.uuid4().hex}"
        self._app._parts.claims.leases.renew(self._owner, LEASE)

    def settle_all(self, commands: list[Any]) -> Told:
        """Send *commands*, which are callables, at drawn moments; deliver until nothing is left."""
        left = deque(commands)
        while True:
            self._fetch()
            if left and (not self.pending or self.chance.random() < 0.3):
                left.popleft()()
            elif self.pending:
                self._deliver(self.pending.pop(self.chance.randrange(len(self.pending))))
            elif not self._replay():
                return self.told

    def _fetch(self) -> None:
        while raw := self._redis.lpop(self._queue):
            self.pending.append(_message(raw, self._queue))

    def _deliver(self, message: Message) -> None:
        self.told.deliveries += 1
        assert self.told.deliveries < MOST_DELIVERIES, "it never ends"
        try:
            self.saboteur.armed = True
            outcome = self._road.take(self._read(message))
        except Crash:
            self._live()
            self.told.crashes += 1
            self.pending.append(message)
            return
        except GivenBack:
            self.pending.append(message)
            return
        finally:
            self.saboteur.armed = False
        word = type(outcome).__name__
        self.told.outcomes[word] = self.told.outcomes.get(word, 0) + 1
        if self.chance.random() < self.again:  # the acknowledgement was lost
            self.told.repeated += 1
            self.pending.append(message)

    def _read(self, message: Message) -> Any:
        args, kwargs, _ = json.loads(message.body)
        token = uuid.uuid4().hex
        return deliveries.read(message, args=args, kwargs=kwargs, token=token, owner=self._owner)

    def _replay(self) -> bool:
        """Send every letter again, as an operator does once its cause is gone."""
        receipts = self.letters.receive(list(self.domains()), limit=100, wait=timedelta(0))
        seen: dict[str, DeadLetter] = {receipt.letter.id: receipt.letter for receipt in receipts}
        self.letters.done(receipts)
        for letter in seen.values():
            if letter.error_type.endswith("CommandRejectedError"):
                self.told.refused += 1  # what its sender asked for cannot be
                continue
            self.told.letters += 1
            assert letter.replay < MOST_REPLAYS, f"{letter.explanation} never ends"
            self.pending.append(replay_message(letter, letter.replay + 1))
        return bool(seen)

    def domains(self) -> set[str]:
        """Return every domain that letters may be of."""
        return {*self._app.handlers.domains(), "unknown"}


def _mine(made: Any) -> tuple[int, Any]:
    return os.getpid(), made


def _message(raw: bytes, queue: str) -> Message:
    """Read what a Celery publisher put into a list of Redis."""
    told = json.loads(raw)
    properties = told["properties"]
    return Message(
        body=base64.b64decode(told["body"]),
        content_type=told["content-type"],
        content_encoding=told["content-encoding"],
        headers=told["headers"],
        queue=queue,
        routing_key=queue,
        priority=properties.get("priority"),
        properties={"correlation_id": properties.get("correlation_id")},
    )
