"""A road over memory adapters and a clock that tests move."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from tests.hand_clock import HandClock, seldom_by

from angzarr.adapters.celery.worker.json_bodies import loads
from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.configuration import MemoryConfigurationStore, MemoryPinStore
from angzarr.adapters.memory.idempotency import (
    MemoryIdempotencyStore,
    MemoryOwnerLeases,
    MemoryStepLog,
)
from angzarr.adapters.memory.limits import InProcessBudgets, InProcessLimits
from angzarr.adapters.memory.switches import InProcessSwitches
from angzarr.configuration.reader import ConfigurationReader
from angzarr.delivery.admission import Admission, SwitchGate
from angzarr.delivery.bodies import BodyLoader, OpenedBody
from angzarr.delivery.claims import Claimer, LastStarts, Results
from angzarr.delivery.compensation import Undos
from angzarr.delivery.compensation_runner import CompensationRunner
from angzarr.delivery.configuration import PinnedConfiguration
from angzarr.delivery.context import ContextTools
from angzarr.delivery.costs import CostRecorder
from angzarr.delivery.delivery import read
from angzarr.delivery.edited_copies import EditedCopies
from angzarr.delivery.executor import DeliveryExecutor
from angzarr.delivery.failure_policy import FailurePolicy
from angzarr.delivery.handlers import Domains, Handler, Handlers
from angzarr.delivery.invoke import HandlerInvoker, Hooks
from angzarr.delivery.letter_builder import DeadLetterBuilder
from angzarr.delivery.ordering import Ordering
from angzarr.delivery.retry_until_available import RetryUntilAvailable
from angzarr.delivery.settle import Settler
from angzarr.delivery.step_retry import InPlace
from angzarr.delivery.unsettled import UnsettledOutcomes
from angzarr.errors import BrokerUnavailable, DeadLetterQueueUnavailable
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.resilience.breaker_guard import BreakerGuard, Guard, guards
from angzarr.resilience.claim_memory import LEASE, Tenure
from angzarr.resilience.policies import POLICIES
from angzarr.resilience.policy_rules import policy_rules
from angzarr.resilience.taxonomy import ILLNESS, classify
from memory_payloads import MemoryPayloadStore


@dataclass
class Away:
    """Fails `times` times, then works."""

    times: int = 0

    def __call__(self, error):
        if self.times:
            self.times -= 1
            raise error


@dataclass
class Journal:
    """Everything that left the road, in order."""

    clock: HandClock
    entries: list = field(default_factory=list)
    copies: list = field(default_factory=list)
    letters: list = field(default_factory=list)
    followed: list = field(default_factory=list)
    replayed: list = field(default_factory=list)
    facts: list = field(default_factory=list)
    broker_away: Away = field(default_factory=Away)
    letters_away: Away = field(default_factory=Away)
    refusal: str | None = None

    def schedule_put(self, copy, at):
        self.broker_away(BrokerUnavailable("the broker is away"))
        self.entries.append("copy")
        self.copies.append((copy, at))

    def put_letters(self, letters):
        self.letters_away(DeadLetterQueueUnavailable("the queue is away"))
        if self.refusal:
            refused, self.refusal = self.refusal, None
            return [refused]
        self.entries.append("letter")
        self.letters.extend(letters)
        return [None] * len(letters)


class _Schedule:
    def __init__(self, journal):
        self.journal = journal

    def put(self, copy, at):
        self.journal.schedule_put(copy, at)


class _Followers:
    def __init__(self, journal):
        self.journal = journal

    def has_any(self):
        return True

    def publish(self, delivery, value):
        self.journal.broker_away(BrokerUnavailable("the broker is away"))
        self.journal.entries.append("followers")
        self.journal.followed.append((delivery.event.id, value))

    def tell_retry(self, error):
        self.journal.entries.append("tell_retry")


class _Letters:
    def __init__(self, journal):
        self.journal = journal

    def put(self, letters):
        return self.journal.put_letters(letters)

    def close(self):
        pass


class _Replays:
    def __init__(self, journal):
        self.journal = journal

    def put(self, outcome):
        self.journal.entries.append("replay")
        self.journal.replayed.append(outcome)


class _Facts:
    def __init__(self, journal):
        self.journal = journal

    def append(self, facts, *, before_ack=False):
        self.journal.entries.append("fact before ack" if before_ack else "fact")
        self.journal.facts.extend(facts)

    def carry(self, facts, *, before_ack=False):
        self.append(facts, before_ack=before_ack)
        return self.lines(facts)

    def lines(self, facts):
        return tuple(fact.subtype for fact in facts)

    def close(self):
        pass


class _Store(MemoryIdempotencyStore):
    """A memory store that writes its endings into the journal, and questions down."""

    journal: Journal

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.asked = []

    def owns(self, key, token, facts=()):
        self.asked.append(key)
        return super().owns(key, token, facts)

    def settle(self, key, token, ending, facts=()):
        self.journal.entries.append(type(ending).__name__.lower())
        return super().settle(key, token, ending, facts)


class TimeIsOver(Exception):
    """What a hard time limit is told as."""


class World:
    def __init__(self):
        self.clock = HandClock()
        self.journal = Journal(self.clock)
        self.leases = MemoryOwnerLeases(self.clock)
        self.store = _Store(self.leases, clock=self.clock)
        self.store.journal = self.journal
        self.undos = Undos()
        self.log = MemoryStepLog(self.store, clock=self.clock)
        self.configurations = MemoryConfigurationStore()
        self.reader = ConfigurationReader(self.configurations, self.clock)
        self.pins = MemoryPinStore(self.clock)
        self.here = True
        self.stop = self.closed = False
        self.handlers = Handlers()
        self.breakers = InProcessBreakers(clock=self.clock)
        self.switches = InProcessSwitches(clock=self.clock)
        self.budgets = InProcessBudgets(clock=self.clock)
        self.limits = InProcessLimits(clock=self.clock)
        self.cost_budgets = None
        self.tokens = 0
        #: Where bodies lie that messages only name; None: this app has no such store.
        self.payloads = MemoryPayloadStore()
        self.opened = []
        self.most_unpacked, self.keeps = 2**20, False
        self.letters_hold = True
        self.sealer = None
        #: What stores and encrypts the copies of this process; None: nothing does.
        self.offloader = None
        self.lanes = None
        self.most_parked = 10
        self.hooks = Hooks()
        self.rules = []
        self.hide = None
        self.domains = Domains()
        self.time_limits = {}
        self.leases.renew("w1", timedelta(days=30))
        self.tenure = self.tenure_of(timedelta(days=30))

    def tenure_of(self, span):
        """Return a tenure by the clock of this world."""
        return Tenure(self.leases, span=span, monotonic=lambda: self.clock.now().timestamp())

    def handler(self, call, name="h", **options):
        def bind(delivery, context):
            return lambda: call(delivery.args[0], context)

        options["breakers"] = guards(options.pop("breaker", None))
        self.handlers.add(Handler(name=name, bind=options.pop("bind", bind), **options))

    def breaker(self, _handler, name):
        return BreakerGuard(
            guard=Guard(name), breakers=lambda: self.breakers,
            is_ill=lambda error: classify(error, now=self.clock.now()).category in ILLNESS,
        )  # fmt: skip

    def road(self):
        retry = RetryUntilAvailable(
            clock=self.clock, chance=lambda: 0.5, stopping=lambda: self.stop,
            seldom=seldom_by(self.clock),
        )  # fmt: skip
        results = Results(dumps=json.dumps, loads=json.loads)
        policy = FailurePolicy(
            letter_builder=DeadLetterBuilder(
                clock=self.clock, component="app", worker="host", version="1",
                domains=self.domains, hide=self.hide,
            ),
            clock=self.clock, chance=lambda: 0.0, policies=policy_rules(POLICIES, rules=self.rules),
        )  # fmt: skip
        facts = _Facts(self.journal)
        in_place = InPlace(
            failure_policy=policy, stopping=lambda: self.stop, time_limit=self.time_limits.get
        )
        compensations = CompensationRunner(
            undos=self.undos, log=self.log, failure_policy=policy, facts=facts, retry=retry,
            here=self.here, time_over=TimeIsOver,
        )  # fmt: skip
        schedule = _Schedule(self.journal)
        ordering = Ordering(
            lanes=lambda: self.lanes, handlers=self.handlers, retry=retry, schedule=schedule,
            clock=self.clock, most_parked=self.most_parked, seldom=seldom_by(self.clock),
        )  # fmt: skip
        settler = Settler(
            schedule=schedule, ordering=ordering, followers=_Followers(self.journal),
            dead_letters=_Letters(self.journal), replay_outcomes=_Replays(self.journal),
            store=self.store, facts=facts, clock=self.clock, holders=self.store.holders,
            letters_hold=self.letters_hold,
        )  # fmt: skip
        return DeliveryExecutor(
            handlers=self.handlers, ordering=ordering,
            bodies=BodyLoader(
                store=self.payloads, read=lambda body: OpenedBody(*loads(body)),
                loaded=lambda delivery, opened: self.opened.append((delivery.token, opened)),
                retry=retry, failure_policy=policy, most=self.most_unpacked, keeps=self.keeps,
                sealer=self.sealer,
            ),
            claimer=Claimer(store=self.store, tenure=self.tenure, retry=retry),
            admission=Admission(
                switch_gate=SwitchGate(
                    switches=self.switches, domain=self.domains.of_delivery, chance=lambda: 0.0
                ),
                breakers=self.breakers, budgets=self.budgets, limits=self.limits,
                chance=lambda: 0.0, sleep=self.clock.sleep,
            ),
            invoker=HandlerInvoker(results=results, failure_policy=policy, hooks=self.hooks),
            results=results, failure_policy=policy,
            clock=self.clock,
            context_tools=ContextTools(
                make_log=lambda _fields: logging.getLogger("test"),
                make_breaker=self.breaker,
                costs=CostRecorder(facts=facts, clock=self.clock, budgets=self.cost_budgets),
            ),
            in_place=in_place, compensation_runner=compensations,
            configuration=PinnedConfiguration(
                reader=lambda: self.reader, pins=self.pins, retry=retry
            ),
            last_starts=LastStarts(store=self.store, retry=retry),
            unsettled=UnsettledOutcomes(
                handlers=self.handlers, failure_policy=policy, compensation_runner=compensations,
                in_place=in_place,
            ),
            edited_copies=EditedCopies(bodies=self.offloader, retry=retry),
            settler=settler, retry=retry, hooks=self.hooks, closed=lambda: self.closed,
        )  # fmt: skip

    def message(self, data="data", *, event_id="e1", task="h", **headers):
        return Message(
            body=json.dumps([[data], {}, {}]).encode(), content_type="application/json",
            content_encoding="utf-8", queue="q",
            headers={"id": "m1", "task": task, names.EVENT_ID: event_id, **headers},
        )  # fmt: skip

    def delivery(self, message=None, *, owner="w1", **made):
        message = message or self.message(**made)
        self.tokens += 1
        args, kwargs, _ = json.loads(message.body)
        return read(message, args=args, kwargs=kwargs, token=f"t{self.tokens}", owner=owner)

    def died(self, times, message=None, **made):
        """Let *times* workers die that had begun with an event."""
        for start in range(times):
            self.leases.renew(f"dead{start}", timedelta(seconds=1))
            self.store.claim([self.delivery(message, owner=f"dead{start}", **made).claim])
            self.clock.sleep(timedelta(seconds=2))

    def boarded(self, message=None):
        """Return a delivery, of the usual event or *message*, claimed when it was fetched."""
        self.tenure = self.tenure_of(LEASE)
        delivery = self.delivery(message)
        sure_until = self.tenure.renew(delivery.owner)
        (answer,) = self.store.claim([replace(delivery.claim, counted=False)])
        return replace(delivery, answer=replace(answer, sure_until=sure_until))

    def rival(self):
        """Return what another worker is answered that claims the usual event now."""
        return self.store.claim([self.delivery(owner="w2").claim])

    def last_token(self):
        return f"t{self.tokens}"

    def take(self, message=None, **made):
        return self.road().take(self.delivery(message, **made))

    def last_copy(self):
        return self.journal.copies[-1][0]


@pytest.fixture
def world():
    return World()


@pytest.fixture(scope="session")
def make_world():
    return World


@pytest.fixture
def no_context():
    return nullcontext()
