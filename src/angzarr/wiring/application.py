"""What commands, the dashboard and the analysis worker need of an app."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from angzarr.aggregates.aggregate import AggregateType
from angzarr.analysis.alerts.alert import Alerts
from angzarr.analysis.alerts.alert_delivery import Sink
from angzarr.analysis.classification.classify import Classifier
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.ledger.emergency_stop import Brake
from angzarr.analysis.ledger.group import Groups
from angzarr.analysis.ledger.idempotent_requests import Writes
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.ledger.upkeep import LedgerUpkeep
from angzarr.analysis.replay.compensation import Compensations
from angzarr.analysis.replay.job_store import JobWork, ReplayJobs
from angzarr.analysis.replay.replay import Replayer, ReplayTargets
from angzarr.analysis.worker.intake import OtherApps
from angzarr.dead_letters.depth import DepthWatch
from angzarr.dead_letters.protection import Clearance, Protection
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.dead_letters.replay_outcome import ReplayOutcomes
from angzarr.dead_letters.spool_forwarder import Forwarder
from angzarr.delivery.handlers import Handler
from angzarr.events.publication import Publisher
from angzarr.facts import FactLog
from angzarr.fleet import Fleet
from angzarr.maintenance.schema_versions import TablesUpkeep
from angzarr.payloads.store import PayloadStore
from angzarr.projections.projection import Projection
from angzarr.resilience.breaker import BreakerControls
from angzarr.resilience.policy_rules import PolicyRules
from angzarr.resilience.switches import SwitchControls
from angzarr.resilience.taxonomy import Rule, VerdictRule
from angzarr.runtime.processes import PeriodicThread
from angzarr.sagas.outbox import Outbox
from angzarr.sagas.story import EventStores


class JobStore(ReplayJobs, JobWork, Protocol):
    """Replay jobs, for people and for engines."""


class Application(Protocol):
    """What the commands need of an app."""

    settings: Any
    #: The app's name, which its letters bear.
    main: str | None
    #: The broker's URL.
    broker_url: str
    #: Each has a name; complete once `switch_controls` was called.
    handlers: Iterable[Any]
    policy_rules: PolicyRules
    rules: Sequence[Rule]
    verdicts: Sequence[VerdictRule]
    #: By domain, with process managers; complete once `known_handlers` was called.
    aggregates: Mapping[str, AggregateType]
    #: By name, with the same condition.
    projections: Mapping[str, type[Projection]]

    @property
    def outbox(self) -> Outbox:
        """What sends commands and notifications."""

    @property
    def facts(self) -> FactLog:
        """Where facts go that belong to no delivery."""

    def check_analysis(self) -> None:
        """Refuse where there can be no letters to read."""

    def open_ledger(self) -> Ledger:
        """Return the ledger."""

    def open_alerts(self) -> Alerts:
        """Return the alerts about what is in the ledger."""

    def open_webhooks(self) -> Mapping[str, Sink]:
        """Return where alerts go besides the log, by name."""

    def open_alert_threads(self) -> Sequence[PeriodicThread]:
        """Return the threads that raise and deliver alerts, not started."""

    def open_writes(self) -> Writes:
        """Return what remembers the writes of the HTTP API."""

    def open_brake(self) -> Brake:
        """Return the brake of the ledger's replays."""

    def open_groups(self) -> Groups:
        """Return the groups of the ledger."""

    def open_ledger_upkeep(self) -> LedgerUpkeep:
        """Return what looks after the ledger's tables."""

    def table_upkeeps(self, names: Sequence[str] = ()) -> Mapping[str, Callable[[], TablesUpkeep]]:
        """Return what opens the upkeep of each of the schemas *names*, or of all configured."""

    def open_replay_jobs(self) -> JobStore:
        """Return the replay jobs of the ledger."""

    def other_apps(self) -> OtherApps:
        """Return what tells letters of other apps from those of this one."""

    def dlq_classifier(self, chance: Callable[[], float]) -> Classifier:
        """Return what classifies failures; raises ConfigurationError for rules that are none."""

    def open_gathering(self, replayer: Replayer) -> EvidenceCollector:
        """Return what finds out all that is known of failures; close its `peers`."""

    def open_dead_letter_queue(self) -> DeadLetterQueue:
        """Return the dead-letter queue."""

    def open_shelves(self) -> EventStores:
        """Return event books and what became of rejected commands; raises ConfigurationError."""

    def open_payload_store(self) -> PayloadStore | None:
        """Return where the bodies of large letters are; None: nowhere."""

    def open_forwarder(self, path: Path | None = None) -> Forwarder:
        """Return what empties the spool, or the one at *path*; ConfigurationError without one."""

    def open_depth_watch(self) -> DepthWatch:
        """Return what asks the dead-letter queues how full they are; raises ConfigurationError."""

    def open_clock_thread(self) -> PeriodicThread | None:
        """Return a thread by which this process goes by the fleet's clock; None: it does anyway."""

    def open_depth_thread(self) -> PeriodicThread | None:
        """Return a thread that asks the dead-letter queues how full they are."""

    def open_forwarder_thread(self) -> PeriodicThread | None:
        """Return a thread that empties the spool from time to time, if there is one."""

    def open_publisher(self) -> Publisher:
        """Return what sends messages to the broker."""

    def open_replay_outcomes(self) -> ReplayOutcomes:
        """Return the queue of outcomes."""

    def dead_letter_domains(self) -> list[str]:
        """Return the domains whose letters are read."""

    def breaker_controls(self) -> BreakerControls:
        """Return what people do to breakers; raises ConfigurationError where none are shared."""

    def switch_controls(self) -> SwitchControls:
        """Return what people pause and drop with; raises ConfigurationError as for breakers."""

    def fleet(self) -> Fleet:
        """Return who runs what; raises ConfigurationError where there can be no claim store."""

    def known_handlers(self) -> Iterable[Handler]:
        """Return all handlers, as a worker would know them."""

    def queue_for(self, task: str) -> str:
        """Return the queue to which *task* would be sent."""

    def find_handler(self, name: str) -> Handler | None:
        """Return the handler registered as *name*."""

    def clearance(self) -> Clearance:
        """Return what a letter must pass before it is replayed."""

    def compensations(self) -> Compensations:
        """Return which handler undoes which."""

    def letter_protection(self) -> Protection:
        """Return what is done to a letter before it is kept."""

    def replay_targets(self) -> ReplayTargets:
        """Return where a replay may go."""
