"""The app that a command works on: found by name, checked, with errors that say the cure."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import click
from celery import Celery
from celery.app.utils import find_app

from angzarr.aggregates.aggregate import AggregateType
from angzarr.analysis.alert import Alerts
from angzarr.analysis.alert_delivery import Sink
from angzarr.analysis.brake import Brake
from angzarr.analysis.classify import Classifier
from angzarr.analysis.compensation import Compensations
from angzarr.analysis.gathering import Gathering
from angzarr.analysis.group import Groups
from angzarr.analysis.job import ReplayJobs
from angzarr.analysis.job_work import JobWork
from angzarr.analysis.ledger import Ledger
from angzarr.analysis.other_apps import OtherApps
from angzarr.analysis.replay import ReplayTargets
from angzarr.analysis.replayer import Replayer
from angzarr.analysis.upkeep import LedgerUpkeep
from angzarr.analysis.write import Writes
from angzarr.dead_letters.clearance import Clearance
from angzarr.dead_letters.depth import DepthWatch
from angzarr.dead_letters.forwarding import Forwarder
from angzarr.dead_letters.protection import Protection
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.dead_letters.replay_outcome import ReplayOutcomes
from angzarr.delivery.handlers import Handler
from angzarr.events.publisher import Publisher
from angzarr.facts import FactLog
from angzarr.fleet import Fleet
from angzarr.payloads import PayloadStore
from angzarr.projections.projection import Projection
from angzarr.resilience.breaker import BreakerControls
from angzarr.resilience.policy_rules import PolicyRules
from angzarr.resilience.switches import SwitchControls
from angzarr.resilience.taxonomy import Rule, VerdictRule
from angzarr.revisions import TablesUpkeep
from angzarr.sagas.outbox import Outbox
from angzarr.sagas.story import Shelves
from angzarr.turn_thread import TurnThread

_UNNAMED: Final = "no app was named: give it with -A module:app, or in the variable ANGZARR_APP"


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

    def open_alert_threads(self) -> Sequence[TurnThread]:
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

    def open_gathering(self, replayer: Replayer) -> Gathering:
        """Return what finds out all that is known of failures; close its `peers`."""

    def open_dead_letter_queue(self) -> DeadLetterQueue:
        """Return the dead-letter queue."""

    def open_shelves(self) -> Shelves:
        """Return event books and what became of rejected commands; raises ConfigurationError."""

    def open_payload_store(self) -> PayloadStore | None:
        """Return where the bodies of large letters are; None: nowhere."""

    def open_forwarder(self, path: Path | None = None) -> Forwarder:
        """Return what empties the spool, or the one at *path*; ConfigurationError without one."""

    def open_depth_watch(self) -> DepthWatch:
        """Return what asks the dead-letter queues how full they are; raises ConfigurationError."""

    def open_clock_thread(self) -> TurnThread | None:
        """Return a thread by which this process goes by the fleet's clock; None: it does anyway."""

    def open_depth_thread(self) -> TurnThread | None:
        """Return a thread that asks the dead-letter queues how full they are."""

    def open_forwarder_thread(self) -> TurnThread | None:
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


def load_application(name: str | None) -> Application:
    """Return the Angzarr app that *name* names, as `load_celery` finds it; else UsageError."""
    found = _found(name)
    if hasattr(found, "open_ledger"):
        return found  # type: ignore[no-any-return]
    kind = "a plain Celery app" if isinstance(found, Celery) else _kind(found)
    msg = f"{name!r} is {kind} and not an Angzarr app: create it with angzarr.Angzarr(…)"
    raise click.UsageError(msg)


def load_celery(name: str | None) -> Celery:
    """Return the app that *name* names, ours or any Celery app, as `celery -A` finds it.

    ``module``, ``module:attribute``, ``module.attribute``, or a package whose module ``celery``
    has it (Django's layout). Raises UsageError; what the module raises at its import is passed on.
    """
    found = _found(name)
    if isinstance(found, Celery):
        return found
    msg = f"{name!r} is {_kind(found)} and not a Celery app: name one with -A module:app"
    raise click.UsageError(msg)


def _found(name: str | None) -> Any:
    """Return what Celery's own resolver finds under *name*."""
    if not name:
        raise click.UsageError(_UNNAMED)
    if not all(name.replace(":", ".").split(".")):
        msg = f"{name!r} names no app: write module, module:attribute or module.attribute"
        raise click.UsageError(msg)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return find_app(name, imp=_import)
    except ImportFailed as failed:
        raise failed.reason from None
    except ModuleNotFoundError as error:
        module, _, attribute = name.partition(":")
        if attribute and error.name == name:  # the module is there
            msg = f"module {module!r} has no attribute {attribute!r}: check -A"
        else:
            msg = f"there is no module {module!r} here or on the Python path"
        raise click.UsageError(msg) from error
    except (AttributeError, ValueError) as error:
        msg = f"module {name!r} has no Celery app: name it with -A {name}:app"
        raise click.UsageError(msg) from error


class ImportFailed(Exception):
    """A module raised *reason* at its import; Celery's resolver would take some for absence."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


def _import(name: str, package: str | None = None) -> Any:
    try:
        return importlib.import_module(name, package)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise  # this module is not there
        raise ImportFailed(error) from error
    except Exception as error:
        raise ImportFailed(error) from error


def _kind(found: Any) -> str:
    return f"a {type(found).__name__}"
