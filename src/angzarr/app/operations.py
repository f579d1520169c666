"""Operating: what the analysis worker and people need of an app."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from angzarr.adapters.celery.publish.publisher import CeleryPublisher
from angzarr.adapters.celery.publish.replay_outcomes import CeleryReplayOutcomes
from angzarr.app.publisher import Publishing
from angzarr.dead_letters.depth import DepthWatch
from angzarr.dead_letters.protection import Clearance, Protection
from angzarr.dead_letters.queue import DeadLetterQueue, Letterbox
from angzarr.dead_letters.replay_outcome import ReplayOutcomes, outcomes_queue
from angzarr.dead_letters.spool_forwarder import Forwarder
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.errors import ConfigurationError
from angzarr.events.publication import Publisher
from angzarr.fleet import Fleet
from angzarr.maintenance.schema_versions import TablesUpkeep
from angzarr.payloads.store import PayloadStore
from angzarr.resilience.breaker import BreakerControls
from angzarr.resilience.clock_watch import ClockWatch
from angzarr.resilience.switches import SwitchControls
from angzarr.runtime.processes import OncePerProcess, PeriodicThread
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import dead_letters as payload_wiring
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import ledger as ledger_wiring
from angzarr.wiring import protection as protection_wiring
from angzarr.wiring import schemas as tables_wiring
from angzarr.wiring import spool as spool_wiring
from angzarr.wiring import startup_checks as checks
from angzarr.wiring import stores as wiring
from angzarr.wiring.flow_control import Flow

if TYPE_CHECKING:
    from angzarr.analysis.alerts.alert import Alerts
    from angzarr.analysis.alerts.alert_delivery import Sink
    from angzarr.analysis.ledger.emergency_stop import Brake
    from angzarr.analysis.ledger.group import Groups
    from angzarr.analysis.ledger.idempotent_requests import Writes
    from angzarr.analysis.ledger.ledger import Ledger
    from angzarr.analysis.ledger.upkeep import LedgerUpkeep
    from angzarr.analysis.replay.compensation import Compensations
    from angzarr.analysis.replay.replay import ReplayTargets
    from angzarr.analysis.worker.intake import OtherApps
    from angzarr.wiring.dlq_depths import DutyOf

C = TypeVar("C")
P = TypeVar("P")


class Operating(Publishing):
    """The doors of an app, which can also publish."""

    _flow: OncePerProcess[Flow]
    _claims: OncePerProcess[wiring.Claims]

    @property
    def flow(self) -> Flow:
        """The flow control of this process, which the fleet shares where it can."""
        return self._flow.get()

    @property
    def broker_url(self) -> str:
        """The broker's URL, or several behind another, with the default that Celery would use."""
        given = self.conf.broker_url or "amqp://guest@localhost//"
        return given if isinstance(given, str) else ";".join(given)

    def open_dead_letter_queue(self) -> DeadLetterQueue:
        """Return a new connection to the dead-letter queue."""
        return letter_wiring.open_dead_letters(self.settings, self.broker_url)

    def open_letterbox(self) -> Letterbox:
        """Return a new connection to where workers put letters: by reason, where that is set."""
        return letter_wiring.open_letterbox(self.settings, self.broker_url)

    def open_compensation_letters(self) -> DeadLetterQueue:
        """Return a new connection to where letters of failed compensations go."""
        return letter_wiring.open_compensation_letters(self.settings, self.broker_url)

    def open_payload_store(self) -> PayloadStore | None:
        """Return where the bodies of large letters are; None where none is configured."""
        return payload_wiring.open_payloads(self.settings.dlq.payloads)

    def open_forwarder(self, path: Path | None = None) -> Forwarder:
        """Return what empties the spool, or the one at *path*; ConfigurationError without one."""
        return spool_wiring.open_forwarder(self.settings, self.broker_url, path)

    def open_forwarder_thread(self) -> PeriodicThread | None:
        """Return a thread that empties the spool from time to time, if there is one."""
        return spool_wiring.open_forwarder_thread(self.settings, self.broker_url)

    def open_depth_thread(self, duty_of: DutyOf | None = None) -> PeriodicThread | None:
        """Return a thread that asks the dead-letter queues how full they are, if that is told.

        *duty_of* says which worker of the fleet asks; without it each process that calls does.
        """
        from angzarr.wiring import dlq_depths as depth_wiring

        domains = self.dead_letter_domains()
        return depth_wiring.open_depth_thread(self.settings, self.broker_url, domains, duty_of)

    def open_depth_watch(self) -> DepthWatch:
        """Return what asks the dead-letter queues how full they are, in turns that a caller takes.

        Raises ConfigurationError where letters have no place.
        """
        from angzarr.wiring import dlq_depths as depth_wiring

        domains = self.dead_letter_domains()
        return depth_wiring.open_depth_watch(self.settings, self.broker_url, domains)

    def check_analysis(self) -> None:
        """Refuse to read dead letters where there can be none; raises ConfigurationError."""
        checks.check_analysis(self.settings, self.broker_url)

    def open_ledger(self) -> Ledger:
        """Return the ledger."""
        return self._part(ledger_wiring.LEDGER)

    def open_alerts(self) -> Alerts:
        """Return the alerts about what is in the ledger."""
        return self._part(ledger_wiring.ALERTS)

    def open_webhooks(self) -> Mapping[str, Sink]:
        """Return where alerts go besides the log, by name; raises MissingExtra."""
        from angzarr.wiring import alerts as alert_wiring

        return alert_wiring.open_webhooks(self.settings.analysis.alerts)

    def open_alert_threads(self) -> Sequence[PeriodicThread]:
        """Return the threads that raise and deliver alerts; none where alerts are off."""
        from angzarr.wiring import alerts as alert_wiring

        return alert_wiring.open_threads(self.settings, self.broker_url)

    def open_writes(self) -> Writes:
        """Return what remembers the writes of the HTTP API."""
        return self._part(ledger_wiring.WRITES)

    def open_brake(self) -> Brake:
        """Return the brake of the ledger's replays."""
        return self._part(ledger_wiring.BRAKE)

    def open_replay_jobs(self) -> Any:
        """Return the replay jobs of the ledger."""
        return self._part(ledger_wiring.REPLAY_JOBS)

    def open_groups(self) -> Groups:
        """Return the groups of the ledger."""
        return self._part(ledger_wiring.GROUPS)

    def open_ledger_upkeep(self) -> LedgerUpkeep:
        """Return what looks after the ledger's tables."""
        return ledger_wiring.open_upkeep(self.settings, self.broker_url)

    def table_upkeeps(self, names: Sequence[str] = ()) -> Mapping[str, Callable[[], TablesUpkeep]]:
        """Return what opens the upkeep of each of the schemas *names*, or of all configured."""
        return tables_wiring.openers(self.settings, self.broker_url, names)

    def _part(self, part: ledger_wiring.Part[P]) -> P:
        return ledger_wiring.open_part(part, self.settings, self.broker_url)

    def open_shelves(self) -> books_wiring.Shelves:
        """Return event books and what became of rejected commands."""
        return books_wiring.open_shelves(self.settings, self.broker_url)

    def open_publisher(self) -> Publisher:
        """Return what sends raw messages to this app's broker."""
        return CeleryPublisher(self)

    def open_replay_outcomes(self) -> ReplayOutcomes:
        """Return the queue on which workers tell how replays ended; signed where letters are."""
        queue = CeleryReplayOutcomes(
            self, CeleryPublisher(self), outcomes_queue(self.settings.prefix)
        )
        return protection_wiring.believed(queue, self.settings.dlq)

    def dead_letter_domains(self) -> list[str]:
        """Return every domain whose letters the analysis worker reads."""
        self._load_tasks()
        return letter_wiring.domains_to_read(self)

    def breaker_controls(self) -> BreakerControls:
        """Return what people do to breakers; raises ConfigurationError where none are shared."""
        self._load_tasks()
        return _shared(self.flow.controls, "breakers")

    def switch_controls(self) -> SwitchControls:
        """Return what people pause and drop with; raises ConfigurationError as for breakers."""
        self._load_tasks()
        return _shared(self.flow.switch_controls, "switches")

    def fleet(self) -> Fleet:
        """Return who runs what; raises ConfigurationError where there can be no claim store.

        Each call of its verbs asks the store: what classifies many letters asks once for all.
        """
        return self._claims.get().fleet

    def watch_clock(self) -> ClockWatch | None:
        """Return what compares this machine's clock with the claim store's.

        None where they are one, or no store is configured here.
        """
        try:
            time = self._claims.get().time
        except ConfigurationError:
            return None
        if time is None:
            return None
        watch = ClockWatch(time)
        wiring.clock_meters().observe(lambda: watch.ahead)
        return watch

    def open_clock_thread(self) -> PeriodicThread | None:
        """Return a thread by which a process that is no worker goes by the fleet's clock."""
        watch = self.watch_clock()
        return None if watch is None else PeriodicThread("angzarr-clock", lambda _stopping: watch)

    def find_handler(self, name: str) -> Handler | None:
        """Return the handler or plain task registered as *name*, as a worker would know it."""
        self._load_tasks()
        return self.handlers.get(name)

    def known_handlers(self) -> Handlers:
        """Return all handlers, as a worker would know them."""
        self._load_tasks()
        return self.handlers

    def compensations(self) -> Compensations:
        """Return which handler undoes which; raises ConfigurationError for one that is unknown."""
        from angzarr.adapters.celery.publish.outbox import CeleryCompensations

        self._load_tasks()
        checks.check_compensations(self.handlers)
        return CeleryCompensations(self, self.handlers)

    def replay_targets(self) -> ReplayTargets:
        """Return the tasks and queues that a replay may be sent to (spec A4).

        Raises ConfigurationError for a route of foreign letters that leads nowhere.
        """
        from angzarr.analysis.replay.replay import ReplayTargets

        self._load_tasks()
        clearance = self.clearance()
        targets = ReplayTargets(
            tasks=frozenset(handler.name for handler in self.handlers),
            queues=frozenset({*self.amqp.queues, *self.named_queues()}),
            clear=clearance,
            clear_record=clearance.record,
            of_another=self.other_apps().problem,
            homes={one.name: self._home_of(one) for one in self.handlers},
        )
        checks.check_foreign_routes(self.settings, targets.tasks, targets.queues)
        return targets

    def other_apps(self) -> OtherApps:
        """Return what tells letters of other apps from those of this one."""
        from angzarr.analysis.worker.intake import OtherApps

        reads = letter_wiring.domains_to_read(self)
        return OtherApps(self.main or "angzarr", frozenset(reads))

    def _home_of(self, handler: Handler) -> str:
        """Return the queue to which a publisher would send what *handler* takes."""
        return handler.queue or self._routed(handler.name)

    def queue_for(self, task: str) -> str:
        """Return the queue to which *task*, which may be unknown here, would be sent."""
        handler = self.handlers.get(task)
        return self._routed(task) if handler is None else self._home_of(handler)

    def _routed(self, task: str) -> str:
        routed = self.amqp.router.route({}, task)["queue"]
        return str(getattr(routed, "name", routed))

    def clearance(self) -> Clearance:
        """Return what a letter must pass before it is replayed."""
        return protection_wiring.open_clearance(self.settings.dlq)

    def letter_protection(self) -> Protection:
        """Return what is done to a letter before it is kept."""
        return protection_wiring.open_protection(self.settings.dlq)

    def _load_tasks(self) -> None:
        """Import what a worker would import (``include``, ``imports``), so that all is known."""
        self.loader.import_default_modules()
        self.finalize(auto=True)

    def queue_of(self, routing_key: str) -> str:
        """Return the queue that *routing_key* reaches, the key itself where none is known."""
        for name, queue in self.amqp.queues.items():
            if routing_key in (name, queue.routing_key):
                return str(name)
        return routing_key or str(self.conf.task_default_queue)

    def named_queues(self) -> set[str]:
        """Return the queues that handlers and routes name."""
        of_handlers = {handler.queue for handler in self.handlers if handler.queue}
        of_routes = {sub.queue for subs in self.routes.values() for sub in subs if sub.queue}
        return of_handlers | of_routes


def _shared(controls: C | None, what: str) -> C:
    """Return *controls*, or refuse where no store is shared by which others would be reached."""
    if controls is None:
        msg = (
            f"the {what} of this app live in each worker process: set flow.store to a Redis"
            " that all share, e.g. flow: {store: redis://localhost:6379/1}"
        )
        raise ConfigurationError(msg)
    return controls
