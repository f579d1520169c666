"""A services in memory for tests of the dashboard, with callers of every role."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cached_property

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.adapters.memory.configuration import MemoryConfigurationStore
from angzarr.adapters.memory.event_store import (
    MemoryEventBooks,
    MemoryEventStore,
    MemoryRejectionLog,
)
from angzarr.adapters.memory.fact_reader import MemoryFactReader
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.adapters.memory.lanes import MemoryLanes
from angzarr.adapters.sql.ledger.fact_outbox import LedgerFactOutbox
from angzarr.adapters.sql.ledger.groups import SqlPeers
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.aggregates.book import Address
from angzarr.analysis.classification.classify import Classifier, ReplayDelays, Unattended
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.classification.rules import built_in_rules
from angzarr.analysis.replay.compensation import Compensator
from angzarr.analysis.replay.editor import Editor
from angzarr.analysis.replay.replay import Replayer, ReplayTargets
from angzarr.analysis.replay.skip import Skips
from angzarr.dashboard.access import hash_of
from angzarr.dashboard.fact_services import FactServices
from angzarr.dashboard.ordered_handlers import OrderedServices, Surveyor
from angzarr.dashboard.services import RejectedServices, Services
from angzarr.dashboard.site import build_site
from angzarr.dead_letters.protection import Clearance, Protection
from angzarr.dead_letters.redaction import Redaction
from angzarr.delivery.breaker_log import BreakerLog
from angzarr.errors import BrokerUnavailable
from angzarr.facts.act import ActKind
from angzarr.facts.act_log import ActLog
from angzarr.facts.fact_text import fact_from_text
from angzarr.ordering.lane import Order
from angzarr.projections.checkpoint import OrderingStores
from angzarr.projections.ordered_handler import OrderedHandler
from angzarr.resilience.breaker import BreakerSettings
from angzarr.sagas.log import case_of
from angzarr.sagas.story import Hiding
from angzarr.settings.analysis import AnalysisSettings
from angzarr.settings.dashboard import DashboardSettings, DashboardToken, Role
from angzarr.wiring.event_store import EventDatabase
from contracts.facts import a_fact
from contracts.ledger import letter_of, ordered_letter_of
from contracts.rejections import AT, a_rejection
from contracts.waiting_events import early_of
from contracts.waiting_events import letter_of as lane_letter_of
from hand_clock import HandClock
from sqlite_ledger import SqliteAlerts, SqliteBrake, SqliteLedger, SqliteWrites, jobs_in, put_job

#: Role → its caller's token.
TOKENS = {role: f"{role.value}-token" for role in Role}
SETTINGS = DashboardSettings(
    tokens=tuple(
        DashboardToken(name=f"{role.value}@test", role=role, sha256=hash_of(token))
        for role, token in TOKENS.items()
    ),
    rate=100_000,
    burst=100_000,
)


#: A projection that the app registers.
SALES = OrderedHandler(
    "projection.sales",
    Order(domains=frozenset({"order", "stock"}), types=frozenset({"OrderPlaced"}), moves=True),
)


class World:
    """A services with its stores by name."""

    def __init__(self, settings=SETTINGS, clock=None) -> None:
        self.settings = settings
        self.clock = clock or HandClock()
        self.ledger = SqliteLedger(self.clock)
        self.groups = self.ledger
        self.peers = SqlPeers(self.ledger.database)
        self.jobs = Jobs(self.ledger.database, self.clock)
        self.writes = SqliteWrites(self.clock)
        self.brake = SqliteBrake(self.clock)
        self.alerts = SqliteAlerts(self.clock)
        #: By name.
        self.webhooks = {}
        touchy = BreakerSettings(min_calls=2, failures_in_a_row=2)
        watch = BreakerLog(facts=lambda: self.fact_log)
        self.breakers = InProcessBreakers(
            {"crm": touchy}, default=touchy, watch=watch, clock=self.clock
        )

        self.lanes = MemoryLanes(self.clock)
        self.event_stores = EventDatabase(MemoryEventBooks(), MemoryRejectionLog())
        #: What the app registers of ordered handlers, and the workers that run.
        self.registered = [SALES]
        self.members = []
        #: What is raised where lanes, books or the fleet are asked, if anything.
        self.configurations = MemoryConfigurationStore()
        self.configurations_away = None
        self.lanes_away = self.books_away = self.fleet_away = None
        self.fact_log = MemoryFactLog()
        self.facts = MemoryFactReader(self.fact_log)
        self._told = set()
        #: What is raised where facts are asked, and how often the page of an entry asked.
        self.facts_away, self.facts_asked = None, 0
        self.budgets = []
        self.redaction = Redaction()

        self.sent = []
        #: By domain: what dead-letter queues have.
        self.unread = {}
        #: By entry id: how many later events wait behind it.
        self.waiting = {}
        self.approval_over = None
        self.approves_edits = False
        #: Reads the data of a task, or raises DecodeError.
        self.decode = None
        #: Why breakers cannot be had, if they cannot.
        self.unshared = None
        self.replayer = Replayer(
            ledger=self.ledger,
            publisher=self,
            targets=ReplayTargets(
                tasks={"orders.sync"}, queues={"orders", "spare"}, clear=Clearance()
            ),
            clock=self.clock,
            answer_deadline=timedelta(hours=1),
        )

        self.protect = Protection()

    @property
    def editor(self):
        return Editor(
            replayer=self.replayer, decoder=lambda _task: self.decode, protect=self.protect
        )

    def controls(self):
        if self.unshared:
            raise self.unshared
        return self.breakers

    def publish(self, message):
        self.sent.append(message)

    def of(self, handler, /):
        return "orders.undo" if handler == "orders.sync" else ""

    def send(self, call, /):
        self.sent.append(call)

    @property
    def skips(self):
        return Skips(replayer=self.replayer)

    def behind(self, entries):
        return {one.id: self.waiting[one.id] for one in entries if one.id in self.waiting}

    @cached_property
    def ordered(self):
        def give(store, away):
            if error := getattr(self, away):
                raise error
            return store

        stores = OrderingStores(self.lanes, self.lanes.checkpoints)
        events = MemoryEventStore(self.event_stores.books)
        return OrderedServices(
            registered=lambda: self.registered,
            stores=lambda: give(stores, "lanes_away"),
            books=lambda: give(events, "books_away"),
            members=lambda: give(self.members, "fleet_away"),
        )

    @cached_property
    def rejected(self):
        def event_stores():
            if self.books_away:
                raise self.books_away
            return self.event_stores

        return RejectedServices(
            event_stores=event_stores, hide=Hiding(self.redaction), fallback_domain="saga-failures"
        )

    @cached_property
    def fact_services(self):
        def store():
            if self.facts_away:
                raise self.facts_away
            return self.facts

        def hasty():
            self.facts_asked += 1
            return store()

        return FactServices(store=store, hasty=hasty, clock=self.clock, budgets=self.budgets)

    def open_configurations(self):
        if self.configurations_away:
            raise self.configurations_away
        return self.configurations

    def services(self):
        return Services(
            ledger=self.ledger,
            groups=self.groups,
            jobs=self.jobs,
            writes=self.writes,
            brake=self.brake,
            alerts=self.alerts,
            webhooks=lambda: self.webhooks,
            classifier=Classifier(
                rules=built_in_rules(),
                pauses=ReplayDelays(
                    backoff=AnalysisSettings().replay_backoff(), chance=lambda: 0.0
                ),
                max_replays=3,
                longest_wait=timedelta(days=1),
                unattended=Unattended(oldest=timedelta(days=30)),
            ),
            gathering=EvidenceCollector(
                peers=self.peers,
                obstacle=self.replayer.obstacle,
                clock=self.clock,
            ),
            replayer=self.replayer,
            compensator=Compensator(ledger=self.ledger, replayer=self.replayer, compensations=self),
            skips=self.skips,
            editor=self.editor,
            breakers=self.controls,
            told=lambda _letter: {"signature": "none"},
            clock=self.clock,
            behind=self.behind,
            ordered=self.ordered,
            configurations=self.open_configurations,
            surveyor=Surveyor(self.ordered, self.clock, lambda count: count()),
            rejected=self.rejected,
            facts=self.fact_services,
            acts=ActLog(facts=lambda: self.fact_log, clock=self.clock),
            unread=lambda: self.unread,
            most_replays=10,
            approval_over=self.approval_over,
            approves_edits=self.approves_edits,
        )

    @cached_property
    def site(self):
        return build_site(self.services(), self.settings, hosts=["testserver"])

    @property
    def app(self):
        return self.site.app

    def file(self, count=3, **fields):
        """File letters of *count* events; return their entries."""
        letters = [letter_of(f"e{number}", **fields) for number in range(count)]
        return self.ledger.add_failed_events(letters)

    def hold_up(self, root="o-1", **fields):
        """Let a filed dead letter hold up a lane, with two events behind it; return its entry."""
        lane = SALES.lane(Address("order", root))
        entry = self.ledger.add_failed_event(ordered_letter_of(f"event-{root}"))
        self.lanes.note(lane_letter_of(lane, 0, **{"letter_id": entry.letter_id} | fields))
        for sequence in (1, 2):
            self.lanes.park(early_of(lane, sequence), 9)
        return entry

    def reject(self, *, later=timedelta(0), reason="the table is full", **fields):
        """Keep the case of a rejected command; return it."""
        case = case_of(a_rejection(reason, data={"pin": "4711"}), AT)
        return self.event_stores.rejections.note(replace(case, rejected_at=AT + later, **fields))

    def acts(self):
        """The facts of acts since the last call, as relays would move them on, oldest first."""
        found = []
        for database in (self.ledger.database, self.brake._database):
            outbox = LedgerFactOutbox(database)
            waiting = outbox.read(1000)
            outbox.remove([one.place for one in waiting])
            found += [fact_from_text(one.text) for one in waiting]
        told = [fact for fact in self.fact_log.read() if fact.id not in self._told]
        self._told |= {fact.id for fact in told}
        return found + [fact for fact in told if fact.subtype in set(ActKind)]

    def fail(self, entry, attempts=2):
        """Keep facts of runs of an entry that failed, one minute after the other."""
        for number in range(attempts):
            fact = a_fact(
                f"run:{number}",
                type="error",
                subtype="transient",
                at=AT + timedelta(minutes=number),
                event_id=entry.event_id,
                tool_id=entry.handler_name,
                data={
                    "error_code": "HTTP_503",
                    "error_message": f"<b>away</b> {number}",
                    "retry_attempt": number,
                    "replay": 0,
                    "outcome": "retried",
                    "delay_ms": 1500,
                },
            )
            assert self.facts.add(fact) is None

    def break_(self, name="crm"):
        for number in range(2):
            permit = self.breakers.admit(name, f"{number}")
            self.breakers.record(permit, ok=False, took=timedelta(0))


class Jobs(SqlReplayJobs):
    """Jobs that go on when a test says so."""

    @property
    def all(self):
        return jobs_in(self._database)

    def put(self, job, **fields):
        put_job(self._database, replace(self.all[job.id], **fields))
        return self.all[job.id]


def send_with_trouble():
    """Return a `send` whose second message finds the broker away, and whose third finds a bug."""
    calls = []

    def send(call):
        calls.append(call)
        if len(calls) == 2:
            raise BrokerUnavailable("away")
        if len(calls) == 3:
            raise RuntimeError("a bug")

    return send
