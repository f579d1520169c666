"""An app with a ledger, for commands: SQLite and memory, no server."""

from __future__ import annotations

import types
from datetime import timedelta

from tests.contracts.ledger import HOLD, letter_of, message_of
from tests.hand_clock import START
from tests.judging import classifier

from angzarr.adapters.memory.configuration import MemoryConfigurationStore
from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.reader import SqlFactReader
from angzarr.adapters.sql.ledger.alerts import SqlAlerts
from angzarr.adapters.sql.ledger.brake import SqlBrake
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.fact_outbox import LedgerFactOutbox
from angzarr.adapters.sql.ledger.groups import SqlGroups, SqlPeers
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.classification.grouping import Grouping
from angzarr.analysis.ledger.ledger import Decided
from angzarr.analysis.replay.replay import ReplayTargets
from angzarr.analysis.worker.intake import OtherApps
from angzarr.clock import SystemClock
from angzarr.dead_letters.bounds import LETTER
from angzarr.dead_letters.protection import Clearance, Protection
from angzarr.dead_letters.sealed_letters import SealedLetters
from angzarr.errors import BrokerUnavailable, ConfigurationError
from angzarr.facts.act_log import ActLog
from angzarr.facts.outbox import SeveralSinks
from angzarr.facts.relay import FactRelay, SoleDuty
from angzarr.runtime.processes import PeriodicThread
from angzarr.settings.analysis import AutomaticSettings
from angzarr.settings.base import HealthSettings
from angzarr.wiring.facts import FactRelayThread


class FakeOutcomes:
    def __init__(self) -> None:
        self.waiting = []

    def receive(self, *, limit, wait):
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    def done(self, outcomes):
        pass

    def close(self):
        pass


class FakePublisher:
    def __init__(self) -> None:
        self.sent = []
        self.away = False
        self.on_publish = None

    def publish(self, message):
        if self.away:
            raise BrokerUnavailable("the broker is away")
        self.sent.append(message)
        if self.on_publish:
            self.on_publish(message)


class FakeCompensations:
    """``orders.sync`` is undone by ``orders.unsync``."""

    def __init__(self) -> None:
        self.sent = []
        self.away = False

    def of(self, handler):
        return "orders.unsync" if handler == "orders.sync" else ""

    def send(self, call):
        if self.away:
            raise BrokerUnavailable("the broker is away")
        self.sent.append(call)


class FakeApp:
    """What the commands need of an app, on SQLite and in memory."""

    ops = context = property(lambda self: self)

    def __init__(self, folder) -> None:
        self.url = f"sqlite:///{folder / 'ledger.db'}"
        self.main = "shop"
        self.settings = types.SimpleNamespace(
            facts=types.SimpleNamespace(keep=None, export=None),
            analysis=types.SimpleNamespace(
                max_replays=3,
                first_delay=timedelta(0),
                longest_delay=timedelta(hours=1),
                answer_deadline=timedelta(hours=1),
                keep_closed=None,
                keep_archived=None,
                keep_jobs=None,
                automatic=AutomaticSettings(),
                most_replays=10,
                approvals=types.SimpleNamespace(jobs_over=None, edits=False),
                letter_grouping=Grouping,
            ),
            health=HealthSettings(),
            dlq=types.SimpleNamespace(
                payloads=types.SimpleNamespace(largest_opened=1_000_000),
                bounds=LETTER._replace(depth=300),
            ),
        )
        self.queue = MemoryDeadLetterQueue(str(folder))
        self.outcomes = FakeOutcomes()
        self.webhooks = {}
        self.forwarder = None
        self.clock = None
        self.publisher = FakePublisher()
        self.payloads, self.bodies = None, SealedLetters()
        self.compensating = FakeCompensations()
        self.clear = Clearance()
        self.limits = {"first_delay": timedelta(0)}
        self.rules = ()
        self.look = None
        self.protect = Protection()
        self.handlers = {}
        self.configurations = MemoryConfigurationStore()
        self.facts = MemoryFactLog()
        self.acts = ActLog(facts=lambda: self.facts, clock=SystemClock())

    def open_configurations(self):
        return self.configurations

    def clearance(self):
        return self.clear

    broker_url = "memory://"

    def check_analysis(self):
        pass

    def open_ledger(self):
        return SqlLedger(LedgerDatabase(build_engine(self.url)))

    def compensations(self):
        return self.compensating

    def open_brake(self):
        return SqlBrake(LedgerDatabase(build_engine(self.url)))

    def open_act_relay(self):
        outbox = LedgerFactOutbox(LedgerDatabase(build_engine(self.url)))
        relay = FactRelay(
            outbox=outbox,
            sink=SeveralSinks(None, [self.facts]),
            duty=SoleDuty(),
            chance=lambda: 0.5,
        )
        return FactRelayThread(relay, outbox.close)

    def open_fact_store(self, _within=None):
        return SqlFactReader(self.url)

    def open_groups(self):
        return SqlGroups(LedgerDatabase(build_engine(self.url)))

    def open_replay_jobs(self):
        return SqlReplayJobs(LedgerDatabase(build_engine(self.url)))

    def find_handler(self, name):
        return self.handlers.get(name)

    def letter_protection(self):
        return self.protect

    def dlq_classifier(self, chance):
        # Its letters have a fixed date, and commands go by the real time.
        automatic = {"oldest": timedelta(days=36_500)}
        return classifier(self.rules, chance=chance, automatic=automatic, **self.limits)

    def other_apps(self):
        return OtherApps("ledger_app", frozenset())

    def open_gathering(self, replayer):
        peers = SqlPeers(LedgerDatabase(build_engine(self.url)))
        return EvidenceCollector(
            peers=peers,
            obstacle=replayer.obstacle,
            clock=replayer.clock,
            breakers=self.look,
            undone_by=self.compensating.of,
        )

    def open_alerts(self):
        return SqlAlerts(LedgerDatabase(build_engine(self.url)))

    def open_webhooks(self):
        return self.webhooks

    def open_alert_threads(self):
        return []

    def open_dead_letter_queue(self):
        return self.queue

    def open_payload_store(self):
        return self.payloads

    def sealed_letters(self):
        return self.bodies

    def open_depth_thread(self):
        return None

    def open_clock_thread(self):
        return self.clock and PeriodicThread("clock", lambda _stopping: self.clock)

    def open_forwarder_thread(self):
        return self.forwarder

    def open_payload_collector(self):
        raise ConfigurationError("no payload store is configured")

    def open_publisher(self):
        return self.publisher

    def open_replay_outcomes(self):
        return self.outcomes

    def dead_letter_domains(self):
        return ["order"]

    def replay_targets(self):
        return ReplayTargets(tasks={"orders.sync"}, queues={"orders", "spare"}, clear=self.clear)


def one_by_one(ledger, count):
    """File entries that failed one after the other; return them, oldest failure first."""
    moments = [START + timedelta(minutes=number) for number in range(count)]
    return [held(ledger, f"e{at.minute}", last_attempt_at=at) for at in moments]


def held(ledger, event_id="e1", **fields):
    fields.setdefault("message", message_of(event_id))
    entry = ledger.add_failed_event(letter_of(event_id, **fields))
    ledger.decide([Decided(entry_id=entry.id, revision=entry.revision, decision=HOLD)], by="me")
    return ledger.open(entry.id).entry
