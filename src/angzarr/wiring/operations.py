"""What the analysis worker, the commands, the dashboard and people need of an app."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from angzarr.adapters.celery.publish.publisher import CeleryPublisher
from angzarr.clock import SystemClock
from angzarr.configuration.version import ConfigurationStore
from angzarr.dead_letters.depth import DepthWatch
from angzarr.dead_letters.protection import Clearance, Protection
from angzarr.dead_letters.queue import DeadLetterQueue, Letterbox
from angzarr.dead_letters.replay_outcome import ReplayOutcomes
from angzarr.dead_letters.sealed_letters import SealedLetters
from angzarr.dead_letters.spool_forwarder import Forwarder
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.errors import ConfigurationError
from angzarr.events.publication import Publisher
from angzarr.facts.act_log import ActLog
from angzarr.facts.fact import FactLog
from angzarr.facts.outbox import FactOutbox
from angzarr.facts.query import FactStore
from angzarr.fleet import Fleet
from angzarr.maintenance.schema_versions import TablesUpkeep
from angzarr.payloads.collector import PayloadCollector
from angzarr.payloads.holders import PayloadHolders
from angzarr.payloads.store import PayloadStore
from angzarr.projections.checkpoint import OrderingStores
from angzarr.resilience.breaker import BreakerControls
from angzarr.resilience.clock_watch import ClockWatch
from angzarr.resilience.switches import SwitchControls
from angzarr.runtime.processes import PeriodicThread
from angzarr.sagas.outbox import Outbox
from angzarr.settings.settings import Settings
from angzarr.wiring import configuration as configuration_wiring
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import ledger as ledger_wiring
from angzarr.wiring import payloads as payload_wiring
from angzarr.wiring import protection as protection_wiring
from angzarr.wiring import startup_checks as checks
from angzarr.wiring import stores as wiring
from angzarr.wiring.delivery import open_replay_outcomes
from angzarr.wiring.dlq_rules import DeadLetterRules
from angzarr.wiring.fact_store import open_fact_pruner, open_fact_store
from angzarr.wiring.process import ProcessParts

if TYPE_CHECKING:
    from angzarr.adapters.sql.facts.pruner import FactPruner
    from angzarr.adapters.sql.ledger.fact_outbox import LedgerFactOutbox
    from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs
    from angzarr.analysis.alerts.alert import Alerts
    from angzarr.analysis.alerts.alert_delivery import Sink
    from angzarr.analysis.classification.classify import Classifier
    from angzarr.analysis.classification.evidence_collector import EvidenceCollector
    from angzarr.analysis.ledger.emergency_stop import Brake
    from angzarr.analysis.ledger.group import Groups
    from angzarr.analysis.ledger.idempotent_requests import Writes
    from angzarr.analysis.ledger.ledger import Ledger
    from angzarr.analysis.ledger.payload_upkeep import ReleasedPayloads
    from angzarr.analysis.ledger.upkeep import LedgerUpkeep
    from angzarr.analysis.replay.compensation import Compensations
    from angzarr.analysis.replay.replay import Replayer, ReplayTargets
    from angzarr.analysis.worker.intake import OtherApps
    from angzarr.wiring.dlq_depths import DutyOf
    from angzarr.wiring.facts import FactRelayThread

C = TypeVar("C")
P = TypeVar("P")


class Operations:
    """What operators and tools do with an app; nothing that a handler needs."""

    def __init__(self, parts: ProcessParts, rules: DeadLetterRules) -> None:
        self.context = parts.context
        self._parts = parts
        self._rules = rules

    @property
    def settings(self) -> Settings:
        """The settings of the app."""
        return self.context.settings

    @property
    def broker_url(self) -> str:
        """The broker's URL, or several behind another."""
        return self.context.broker_url

    @property
    def outbox(self) -> Outbox:
        """What sends commands and notifications."""
        return self._parts.outbox

    @property
    def facts(self) -> FactLog:
        """Where this process appends facts that belong to no delivery."""
        return self._parts.facts

    @property
    def acts(self) -> ActLog:
        """Where commands and the dashboard say what people did that is not on the ledger."""
        return ActLog(facts=lambda: self.facts, clock=SystemClock())

    def open_fact_store(self, within: timedelta | None = None) -> FactStore:
        """The store of facts; raises ConfigurationError where no database keeps them."""
        return open_fact_store(self.settings, self.broker_url, within=within)

    def open_fact_pruner(self) -> FactPruner:
        """What deletes old facts; raises ConfigurationError where no table keeps them."""
        return open_fact_pruner(self.settings, self.broker_url)

    @property
    def ordering(self) -> OrderingStores:
        """Where this process keeps lanes and checkpoints; raises ConfigurationError."""
        return self._parts.ordering

    def dlq_classifier(self, chance: Callable[[], float]) -> Classifier:
        """The classifier of the app's dead letters; raises ConfigurationError."""
        return self._rules.classifier(chance)

    def open_gathering(self, replayer: Replayer) -> EvidenceCollector:
        """The collector of all evidence about failures; its `peers` must be closed."""
        return self._rules.open_gathering(replayer)

    def open_configurations(self) -> ConfigurationStore:
        """The store of configurations, to be closed; raises ConfigurationError."""
        return configuration_wiring.open_configuration(self.settings, self.broker_url)

    def forget_current_configurations(self) -> None:
        """Let this process ask anew which versions are current: it has changed that."""
        reader = self._parts.configuration.made()
        if reader is not None:
            reader.forget_current()

    def open_dead_letter_queue(self) -> DeadLetterQueue:
        """A new connection to the dead-letter queue."""
        return letter_wiring.open_dead_letters(self.settings, self.broker_url)

    def open_letterbox(self) -> Letterbox:
        """A new connection to the letterbox of workers: by reason, where that is set."""
        return letter_wiring.open_letterbox(self.settings, self.broker_url)

    def open_compensation_letters(self) -> DeadLetterQueue:
        """A new connection to the queue for letters of failed compensations."""
        return letter_wiring.open_compensation_letters(self.settings, self.broker_url)

    def open_payload_store(self) -> PayloadStore | None:
        """The store from which bodies of large letters are fetched; None: none is configured."""
        return payload_wiring.open_for_letters(self.settings)

    def payload_holders(self) -> PayloadHolders:
        """Who holds bodies in payload stores; raises ConfigurationError."""
        return self._parts.claims.holders

    def open_payload_collector(self) -> PayloadCollector:
        """What deletes bodies that nothing needs, to be closed; raises ConfigurationError."""
        return payload_wiring.open_collector(self.settings, self.broker_url)

    def sealed_letters(self) -> SealedLetters:
        """What opens letters whose body is encrypted; raises MissingExtra."""
        return payload_wiring.open_sealed_letters(self.settings)

    def open_forwarder(self, path: Path | None = None) -> Forwarder:
        """A forwarder that empties the spool, or the one at *path*; else ConfigurationError."""
        return letter_wiring.open_forwarder(self.settings, self.broker_url, path)

    def open_forwarder_thread(self) -> PeriodicThread | None:
        """A thread that empties the spool from time to time, if there is one."""
        return letter_wiring.open_forwarder_thread(self.settings, self.broker_url)

    def open_depth_thread(self, duty_of: DutyOf | None = None) -> PeriodicThread | None:
        """A thread that asks the dead-letter queues how full they are, if that is reported.

        *duty_of* says which worker of the fleet asks; without it each process that calls does.
        """
        from angzarr.wiring import dlq_depths as depth_wiring

        domains = self.dead_letter_domains()
        return depth_wiring.open_depth_thread(self.settings, self.broker_url, domains, duty_of)

    def open_depth_watch(self) -> DepthWatch:
        """A watch that asks the dead-letter queues how full they are, in turns that a caller takes.

        Raises ConfigurationError where letters have no place.
        """
        from angzarr.wiring import dlq_depths as depth_wiring

        domains = self.dead_letter_domains()
        return depth_wiring.open_depth_watch(self.settings, self.broker_url, domains)

    def check_escalations(self) -> None:
        """Refuse a webhook that cannot be posted to; raises MissingExtra, ConfigurationError."""
        checks.check_escalations(self.settings.saga_compensation)

    def check_books(self) -> None:
        """Refuse aggregates without books; raises ConfigurationError, MissingExtra."""
        if self.context.aggregates:
            self.open_event_stores().close()

    def check_ordering(self) -> None:
        """Refuse ordered handlers without a database, or of events without a place.

        Raises ConfigurationError, MissingExtra.
        """
        checks.check_ordered_handlers(self._parts)

    def check_analysis(self) -> None:
        """Refuse to read dead letters where there can be none; raises ConfigurationError."""
        checks.check_analysis(self.settings, self.broker_url)

    def open_ledger(self) -> Ledger:
        """The ledger."""
        return self._part(ledger_wiring.LEDGER)

    def open_alerts(self) -> Alerts:
        """The alerts about entries in the ledger."""
        return self._part(ledger_wiring.ALERTS)

    def open_webhooks(self) -> Mapping[str, Sink]:
        """The sinks of alerts besides the log, by name; raises MissingExtra."""
        from angzarr.wiring import alerts as alert_wiring

        return alert_wiring.open_webhooks(self.settings.analysis.alerts)

    def open_alert_threads(self) -> Sequence[PeriodicThread]:
        """The threads that raise and deliver alerts; none where alerts are off."""
        from angzarr.wiring import alerts as alert_wiring

        return alert_wiring.open_threads(self.settings, self.broker_url)

    def open_writes(self) -> Writes:
        """The memory of the HTTP API's writes."""
        return self._part(ledger_wiring.WRITES)

    def open_act_outbox(self) -> LedgerFactOutbox:
        """The facts of acts that wait beside the ledger."""
        return self._part(ledger_wiring.FACTS)

    def open_act_relay(self) -> FactRelayThread:
        """A thread that moves the facts of acts on the ledger to where facts go."""
        from angzarr.wiring.facts import open_act_relay

        return open_act_relay(self.settings, self.broker_url)

    def open_brake(self) -> Brake:
        """The brake of the ledger's replays."""
        return self._part(ledger_wiring.BRAKE)

    def open_released_payloads(self) -> ReleasedPayloads:
        """The holds on bodies that letters of the ledger had and that are to end."""
        return self._part(ledger_wiring.RELEASED_PAYLOADS)

    def open_replay_jobs(self) -> SqlReplayJobs:
        """The replay jobs of the ledger."""
        return self._part(ledger_wiring.REPLAY_JOBS)

    def open_groups(self) -> Groups:
        """The groups of the ledger."""
        return self._part(ledger_wiring.GROUPS)

    def open_ledger_upkeep(self) -> LedgerUpkeep:
        """The upkeep of the ledger's tables."""
        return ledger_wiring.open_upkeep(self.settings, self.broker_url)

    def table_upkeeps(self, names: Sequence[str] = ()) -> Mapping[str, Callable[[], TablesUpkeep]]:
        """An opener for the upkeep of each of the schemas *names*, or of all configured."""
        return ledger_wiring.openers(self.settings, self.broker_url, names)

    def _part(self, part: ledger_wiring.Part[P]) -> P:
        return ledger_wiring.open_part(part, self.settings, self.broker_url)

    def open_event_stores(self) -> books_wiring.EventDatabase:
        """The event books and the log of rejected commands."""
        return books_wiring.open_event_stores(self.settings, self.broker_url)

    def open_publisher(self) -> Publisher:
        """A publisher of raw messages to this app's broker."""
        return CeleryPublisher(self._parts.celery)

    def open_replay_outcomes(self) -> ReplayOutcomes:
        """The queue on which workers report how replays ended; signed where letters are."""
        return open_replay_outcomes(self._parts.celery, self.settings)

    def dead_letter_domains(self) -> list[str]:
        """Every domain whose letters the analysis worker reads."""
        self._parts.routing.load_tasks()
        return letter_wiring.domains_to_read(self.context)

    def breaker_controls(self) -> BreakerControls:
        """The controls of breakers for people; raises ConfigurationError where none are shared."""
        self._parts.routing.load_tasks()
        return _shared(self._parts.flow.controls, "breakers")

    def switch_controls(self) -> SwitchControls:
        """The controls to pause and drop with; raises ConfigurationError as for breakers."""
        self._parts.routing.load_tasks()
        return _shared(self._parts.flow.switch_controls, "switches")

    def fleet(self) -> Fleet:
        """The register of workers; raises ConfigurationError where there can be no claim store.

        Each call of its verbs asks the store: to classify many letters, ask once for all.
        """
        return self._parts.claims.fleet

    def fact_outbox(self) -> FactOutbox:
        """The facts that wait beside the claims; raises ConfigurationError as for the fleet."""
        return self._parts.claims.outbox

    def watch_clock(self) -> ClockWatch | None:
        """A watch that compares this machine's clock with the claim store's.

        None where they are one, or no store is configured here.
        """
        try:
            time = self._parts.claims.time
        except ConfigurationError:
            return None
        if time is None:
            return None
        watch = ClockWatch(time)
        wiring.clock_meters().observe(lambda: watch.ahead)
        return watch

    def open_clock_thread(self) -> PeriodicThread | None:
        """A thread by which a process other than a worker goes by the fleet's clock."""
        watch = self.watch_clock()
        return None if watch is None else PeriodicThread("angzarr-clock", lambda _stopping: watch)

    def find_handler(self, name: str) -> Handler | None:
        """The handler or plain task registered as *name*, as a worker would know it."""
        self._parts.routing.load_tasks()
        return self.context.handlers.get(name)

    def known_handlers(self) -> Handlers:
        """All handlers, as a worker would know them."""
        self._parts.routing.load_tasks()
        return self.context.handlers

    def compensations(self) -> Compensations:
        """The compensation of each handler; raises ConfigurationError for one that is unknown."""
        from angzarr.adapters.celery.publish.compensations import CeleryCompensations

        self._parts.routing.load_tasks()
        checks.check_compensations(self.context.handlers)
        return CeleryCompensations(self._parts.celery, self.context.handlers)

    def replay_targets(self) -> ReplayTargets:
        """The tasks and queues that a replay may be sent to (spec A4).

        Raises ConfigurationError for a route of foreign letters that leads nowhere.
        """
        from angzarr.analysis.replay.replay import ReplayTargets

        self._parts.routing.load_tasks()
        clearance = self.clearance()
        targets = ReplayTargets(
            tasks=frozenset(handler.name for handler in self.context.handlers),
            queues=self._parts.routing.queues(),
            clear=clearance,
            clear_record=clearance.record,
            of_another=self.other_apps().problem,
            homes={one.name: self._parts.routing.home_of(one) for one in self.context.handlers},
        )
        checks.check_foreign_routes(self.settings, targets.tasks, targets.queues)
        return targets

    def other_apps(self) -> OtherApps:
        """The rule that tells letters of other apps from those of this one."""
        from angzarr.wiring.evidence import other_apps

        return other_apps(self.context)

    def queue_for(self, task: str) -> str:
        """The queue to which *task*, which may be unknown here, would be sent."""
        return self._parts.routing.queue_for(task)

    def clearance(self) -> Clearance:
        """The checks that a letter must pass before it is replayed."""
        return protection_wiring.open_clearance(self.settings.dlq)

    def letter_protection(self) -> Protection:
        """The protection of a letter before it is kept."""
        return protection_wiring.open_protection(self.settings.dlq)


def _shared(controls: C | None, what: str) -> C:
    """The given *controls*; refuses where no shared store makes them reach other processes."""
    if controls is None:
        msg = (
            f"the {what} of this app live in each worker process: set flow.store to a Redis"
            " that all share, e.g. flow: {store: redis://localhost:6379/1}"
        )
        raise ConfigurationError(msg)
    return controls
