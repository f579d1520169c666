"""Chains of commands, events and rejections in memory, whose process may die at any step."""

from __future__ import annotations

import json
import logging
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from tests.hand_clock import START, HandClock

from angzarr.adapters.memory.event_store import MemoryEventBooks, MemoryRejectionLog
from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Origin, origin_headers
from angzarr.aggregates.decider import Decider
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import read
from angzarr.delivery.failure_policy import FailurePolicy
from angzarr.delivery.handlers import Domains, Handler
from angzarr.delivery.letter_builder import DeadLetterBuilder
from angzarr.delivery.sealed_origin import SealedOrigin
from angzarr.errors import GiveUp, Postpone, Skip
from angzarr.events.event import Event, Message, canonical_json
from angzarr.events.headers import to_headers
from angzarr.resilience.policies import POLICIES
from angzarr.resilience.policy_rules import policy_rules
from angzarr.sagas.command_handlers import Chains, Reacting
from angzarr.sagas.compensating import Compensating
from angzarr.sagas.outbox import Outbox
from angzarr.sagas.rejection import Rejection, notification_task, rejection_of, to_event
from angzarr.sagas.rejection_answers import Flags

POLICY = replace(POLICIES["default"], max_attempts=3)
HANDLER = Handler(name="t", bind=lambda _delivery, _context: lambda: None, policy=POLICY)
NOTHING = Flags()


class Killed(BaseException):
    """The process ends here: nothing that stands below it in the code is run."""


@dataclass
class Steps:
    """Counts what is done outside, and ends the process before or after one of them."""

    kill_at: frozenset[int] = frozenset()
    count: int = 0
    names: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> None:
        self.names.append(name)
        self.count += 1
        if self.count - 1 in self.kill_at:
            raise Killed


class _Books(MemoryEventBooks):
    steps: Steps

    def write(self, write, /):
        self.steps("write")
        answer = super().write(write)
        self.steps("written")
        return answer


class _Log(MemoryRejectionLog):
    steps: Steps

    def note(self, case, /):
        self.steps("note")
        kept = super().note(case)
        self.steps("noted")
        return kept


@dataclass
class Sent:
    """What left the process: *what* is event, command, notification or escalation."""

    what: str
    event: Event
    headers: dict[str, Any]

    @property
    def body(self) -> bytes:
        return canonical_json(self.event.data)


class RecordingOutbox(Outbox):
    """Keeps what is sent, in order."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.sent: list[Sent] = []
        self.escalated: list[tuple[Rejection, str]] = []
        #: What came encrypted of which events and notices were made, in order.
        self.sealed: list[SealedOrigin | None] = []

    def publish(self, events, sealed=None, /):
        self.sealed.append(sealed)
        for event in events:
            self._send("event", event, {})

    def send(self, commands, /):
        for command in commands:
            self._send("command", command.event, origin_headers(command.origin))

    def tell(self, rejection, /):
        self.sealed.append(rejection.sealed)
        self._send("notification", to_event(rejection), {})

    def escalate(self, rejection, reason, /):
        self.steps("escalate")
        self.escalated.append((rejection, reason))

    def _send(self, what, event, headers):
        self.steps(f"send {what}")
        self.sent.append(Sent(what, event, headers))
        self.steps(f"sent {what}")

    def of(self, what: str) -> list[Event]:
        return [one.event for one in self.sent if one.what == what]


@dataclass
class Meters:
    """What was counted."""

    rejections: list[tuple[str, str]] = field(default_factory=list)
    ends: list[tuple[str, str, float]] = field(default_factory=list)

    def rejected(self, saga, domain):
        self.rejections.append((saga, domain))

    def ended(self, saga, status, seconds):
        self.ends.append((saga, status.value, seconds))


def address(domain="player", root="p-1", edition=""):
    return Address(domain, root, edition)


class World:
    """One process; `run` delivers what was sent until nothing is left."""

    def __init__(self, *, fallback=NOTHING, max_depth=50, kill_at=()):
        self.steps = Steps(frozenset(kill_at))
        self.clock = HandClock()
        self.books, self.log = _Books(), _Log()
        self.books.steps = self.log.steps = self.steps
        self.outbox = RecordingOutbox(self.steps)
        #: Headers of each message besides.
        self.came_with: dict[str, Any] = {}
        self.meters = Meters()
        self.aggregates: dict[str, Any] = {}
        self.reactions: list[Any] = []
        self.compensating = Compensating(
            books=self.books, log=self.log, outbox=self.outbox, meters=self.meters,
            clock=self.clock, chance=lambda: 0.5, fallback=fallback, domain="failures",
            shown=lambda text: text.replace("hunter2", "***"),
        )  # fmt: skip
        self.chains = Chains(
            books=self.books, rejections=self.log,
            decider=Decider(
                books=self.books, aggregates=self.aggregates, clock=self.clock,
                chance=lambda: 0.5,
            ),
            compensating=self.compensating, outbox=self.outbox, meters=self.meters,
            clock=self.clock, max_depth=max_depth,
        )  # fmt: skip
        self.failure_policy = FailurePolicy(
            letter_builder=DeadLetterBuilder(
                clock=self.clock, component="app", worker="host", version="1", domains=Domains()
            ),
            clock=self.clock, chance=lambda: 0.0, policies=policy_rules(POLICIES),
        )  # fmt: skip
        self.reacting = Reacting(outbox=self.outbox, clock=self.clock, max_depth=max_depth)
        #: (task, event id) of what ended, and with which body.
        self.ended: dict[tuple[str, str], bytes] = {}
        self.letters: list[tuple[str, Exception]] = []
        self.skipped: list[str] = []
        self.runs = self.deaths = self.postponed = 0

    # -- who takes what --------------------------------------------------------------------------

    def aggregate(self, kind, domain):
        kind.domain = domain
        kind.check()
        self.aggregates[domain] = kind
        return kind

    def saga(self, kind, name):
        kind.name = name
        kind.check()
        self.reactions.append((f"saga.{name}", kind, self.reacting.react))
        return kind

    def manager(self, kind, name):
        kind.name = name
        self.aggregate(kind, name)
        self.reactions.append((f"process.{name}", kind, self.chains.manage))
        return kind

    def tasks_for(self, sent):
        """Yield the name of each task that takes *sent*, and what it calls."""
        event = sent.event
        if sent.what == "command":
            yield f"command.{event.domain}.{event.type}", self.chains.carry_out
        elif sent.what == "notification":
            kind = self.aggregates[event.domain]
            yield notification_task(event.domain), lambda ctx: self.chains.notified(kind, ctx)
        else:
            for task, kind, react in self.reactions:
                if event.type in kind.methods.reacts_to:
                    yield task, lambda ctx, kind=kind, react=react: react(kind, ctx)

    # -- deliveries ------------------------------------------------------------------------------

    def context(self, event, headers=None, attempt=1):
        """Return the context of a delivery of *event*, after its way over the wire."""
        body = json.dumps([[event.data], {}, {}])
        message = Message(
            body=body.encode(), content_type="application/json", content_encoding="utf-8",
            queue="q", headers={"id": "m", "task": "t", **to_headers(event), **(headers or {})},
        )  # fmt: skip
        args = json.loads(body)[0]
        delivery = read(message, args=args, kwargs={}, token="t", owner="w")
        # As once its body was opened, if it says that this was encrypted.
        message = replace(message, headers={**message.headers, **self.came_with})
        delivery = replace(delivery, attempt=attempt, message=message)
        return Context(
            delivery=delivery, make_policy=lambda: POLICY,
            make_log=lambda _fields: logging.getLogger("test"),
            make_final=partial(self.failure_policy.is_final, delivery, HANDLER),
        )  # fmt: skip

    def command(self, command, **options):
        """Deliver *command*, and return what its task returns."""
        return self.chains.carry_out(
            self.context(command.event, origin_headers(command.origin), **options)
        )

    def tell(self, rejection, **options):
        """Deliver the notification of *rejection*, and return what its task returns."""
        event = to_event(rejection)
        kind = self.aggregates[rejection.origin.source.domain]
        return self.chains.notified(kind, self.context(event, **options))

    def post(self, command):
        """Put *command* on the broker."""
        self.outbox.sent.append(Sent("command", command.event, origin_headers(command.origin)))

    def run(self, most=1000):
        """Deliver all that was sent, and what that leads to, until nothing is left."""
        left = deque(self.outbox.sent)
        while left:
            before = len(self.outbox.sent)
            sent = left.popleft()
            for task, call in self.tasks_for(sent):
                assert self.runs < most, "endless"
                self._end(task, sent, call)
            left.extend(self.outbox.sent[before:])

    def _end(self, task, sent, call):
        """Deliver *sent* to one task until that ended it, or somebody did before."""
        key = (task, sent.event.id)
        if key in self.ended:
            assert self.ended[key] == sent.body, f"{task}: one id, two bodies"
            return
        attempt = 1
        while True:
            try:
                attempt = self._deliver(task, sent, call, attempt)
            except Killed:
                self.deaths += 1
                self.clock.sleep(timedelta(seconds=7))  # whoever takes it over comes later
                continue
            if attempt is None:
                self.ended[key] = sent.body
                return

    def _deliver(self, task, sent, call, attempt):
        """Run it once; return which attempt comes next, None if it ended."""
        self.runs += 1
        context = self.context(sent.event, sent.headers, attempt)
        try:
            call(context)
        except Skip as said:
            self.skipped.append(str(said))
        except Postpone:
            self.postponed += 1
            assert self.postponed < 100, "endless"
            return attempt
        except GiveUp as said:
            self.letter(task, said)
            said.afterwards()
        except Exception as error:
            if not context.is_final(error):
                return attempt + 1
            self.letter(task, error)
        self.steps("end")
        return None

    def letter(self, task, error):
        self.steps("letter")
        self.letters.append((task, error))

    # -- what is there ---------------------------------------------------------------------------

    def events(self, *place):
        """Return the events of a book, as (type, data)."""
        book = self.books.read(address(*place), whole=True).book
        assert [event.sequence for event in book.events] == list(range(len(book.events)))
        return [(event.type, event.data) for event in book.events]

    def outcome(self):
        """Return all that is there, once each and without times: what a death must not change."""
        books = self.books._by_address.items()
        return {
            "books": {place: [_timeless(event) for event in shelf.events]
                      for place, shelf in books if shelf.events or shelf.decisions},
            "sent": {(one.what, one.event.id): (_timeless(one.event), one.headers)
                     for one in self.outbox.sent},
            "escalated": {(rejection.id, why) for rejection, why in self.outbox.escalated},
            "letters": {(task, str(error)) for task, error in self.letters},
            "skipped": set(self.skipped),
            "cases": {case.id: _case_timeless(case) for case in self.log._cases.values()},
        }  # fmt: skip

    def case(self):
        """Return the one case of the log."""
        (case,) = self.log.look("")
        return case


def _case_timeless(case):
    """Return *case* without the moments that it and its rejection name."""
    said = {name: value for name, value in case.rejection["data"].items() if name != "rejected_at"}
    kept = {**case.rejection, "data": said}
    return replace(case, rejected_at=START, changed_at=START, rejection=kept)


def _timeless(event):
    """Return *event* without the moments that it and its data name."""
    data = event.data
    if isinstance(data, dict):
        data = {name: said for name, said in data.items() if not name.endswith("_at")}
    return replace(event, data=data, occurred_at=None)


def a_command(payload, domain, root, *, origin=None, id="c-1", **fields):
    """Return a command as it is sent."""
    event = Event(
        id=id, type=type(payload).__name__, data=payload.model_dump(), domain=domain, root=root,
        **fields,
    )  # fmt: skip
    return Command(event=event, origin=origin)


def a_rejection(
    payload, domain="table", root="t-1", *, source=None, saga="seating", sequence=0, reason="full",
    clock=None, **fields,
):  # fmt: skip
    """Return the rejection of a command that *saga* sent for an event of *source*."""
    origin = Origin(saga=saga, source=source or address(), sequence=sequence)
    command = a_command(payload, domain, root, origin=origin, **fields)
    return rejection_of(command, origin, reason, (clock or HandClock()).now())
