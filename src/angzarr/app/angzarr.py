"""Angzarr: a Celery app whose tasks take the road. The only place where ports meet adapters."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from celery import signals

from angzarr.adapters.celery import celery_defaults as own_defaults
from angzarr.adapters.celery.options import check_app_options
from angzarr.adapters.celery.shutdown.shutdown import ShutdownStep
from angzarr.adapters.celery.worker.consumer_state import ConsumerState
from angzarr.adapters.celery.worker.owner_lease import LeaseKeeper
from angzarr.adapters.celery.worker.queue_pauser import HeldDomains
from angzarr.adapters.celery.worker.rejected_by_broker import RejectedMessageStep
from angzarr.adapters.celery.worker.settlement import Settlement
from angzarr.adapters.celery.worker.worker import StartStep, Stopping
from angzarr.adapters.http.health_server import HealthServer
from angzarr.app.projections import Projecting
from angzarr.app.worker import Working
from angzarr.clock import SystemClock
from angzarr.delivery.admission import HeldHandlers
from angzarr.delivery.executor import DeliveryExecutor
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.delivery.invoke import Hook, run_eagerly
from angzarr.delivery.step_retry import InPlace
from angzarr.errors import ConfigurationError
from angzarr.facts import FactLog
from angzarr.resilience.breaker_guard import BreakerGuard, Errors, guards, keyed
from angzarr.resilience.claim_memory import Tenure
from angzarr.resilience.taxonomy import Rule, VerdictRule
from angzarr.runtime import processes as forks
from angzarr.runtime.processes import OncePerProcess, PeriodicThread
from angzarr.settings.settings import SETTINGS, Settings, load
from angzarr.wiring import stores as wiring
from angzarr.wiring.delivery import (
    build_chains,
    build_judge,
    build_reacting,
    build_road,
    build_salvage,
    build_settlement,
    open_schedule,
)
from angzarr.wiring.flow_control import guard_of, open_flow
from angzarr.wiring.ordering import open_ordering

#: Arguments that are no settings.
_ARGUMENTS = ("config", "rules", "verdicts", "hooks")


class Angzarr(Working, Projecting):
    """A Celery app with one road for every task: claimed, retried, dead-lettered, replayed.

    *broker*, *backend* and every other Celery argument mean what they mean to Celery. *store*
    is where claims live, *dlq* where dead letters go, *ledger* the analysis worker's database,
    *books* that of event books;
    *config* names a YAML file (or the variable ANGZARR_CONFIG does). Every other setting is an
    argument too (``dashboard``, ``prefix``, …), and so is every setting of Celery's. File and
    environment win over arguments. Raises ConfigurationError for what cannot work.
    """

    amqp_cls = "angzarr.adapters.celery.publish.amqp:AngzarrAMQP"
    events_cls = "angzarr.adapters.celery.worker.broadcasts:NonBlockingEvents"
    #: What spreads waits and draws shares, in [0, 1).
    chance: Callable[[], float] = staticmethod(random.random)
    control_cls = "angzarr.adapters.celery.worker.broadcasts:Control"

    def __init__(
        self,
        main: str | None = None,
        *,
        store: str | None = None,
        dlq: Mapping[str, Any] | None = None,
        ledger: str | None = None,
        books: str | None = None,
        facts: Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
        routes: Mapping[str, Any] | None = None,
        flow: Mapping[str, Any] | None = None,
        ordering: Mapping[str, Any] | None = None,
        health: Mapping[str, Any] | None = None,
        soft_shutdown_timeout: float | None = None,
        config: str | os.PathLike[str] | None = None,
        rules: Sequence[Rule] = (),
        verdicts: Sequence[VerdictRule] = (),
        hooks: Sequence[Hook] = (),
        **others: Any,
    ) -> None:
        forks.guard()
        given = {
            "store": store,
            "dlq": dlq,
            "ledger": ledger,
            "books": books,
            "facts": facts,
            "retry": retry,
            "routes": routes,
            "flow": flow,
            "ordering": ordering,
            "health": health,
            "soft_shutdown_timeout": soft_shutdown_timeout,
            **{name: others.pop(name) for name in SETTINGS & others.keys()},
        }
        check_app_options(others, (*SETTINGS, *_ARGUMENTS), others.get("namespace"))
        self.settings: Settings = load(given, config)
        self.policy_rules = self.settings.retry.policy_rules()
        self.handlers = Handlers()
        self.stopping = Stopping()
        self.held_domains = HeldDomains()
        self.movement = ConsumerState()
        self.rules = tuple(rules)
        self.verdicts = tuple(verdicts)
        self.hooks = tuple(hooks)
        self._dlq_rules = []
        self._dlq_classifier = None
        self._lease: LeaseKeeper | None = None
        self._health: HealthServer | None = None
        self._threads: list[PeriodicThread] = []
        self._schedule = OncePerProcess(lambda: open_schedule(self))
        self._claims = OncePerProcess(lambda: wiring.open_claims(self.settings, self.broker_url))
        self._tenure = OncePerProcess(lambda: Tenure(self.claims.leases))
        self._road = OncePerProcess(lambda: build_road(self))
        self._salvage = OncePerProcess(lambda: build_salvage(self))
        self._settlement = OncePerProcess(lambda: build_settlement(self))
        self._flow = OncePerProcess(lambda: open_flow(self))
        self._facts = OncePerProcess(lambda: wiring.open_facts(self.settings, self.broker_url))
        self.aggregates, self.sagas, self.projections = {}, {}, {}
        self._chains = OncePerProcess(lambda: build_chains(self))
        self._reacting = OncePerProcess(lambda: build_reacting(self))
        self._ordering = OncePerProcess(lambda: open_ordering(self.settings, self.broker_url))
        super().__init__(main, **others)
        self.take_escalations()
        self.on_after_configure.connect(self.lay_defaults, weak=False)
        if self.configured:  # by a fixup, or by a subclass in `on_init`
            self.lay_defaults()
        self.steps["worker"].update((StartStep, ShutdownStep, RejectedMessageStep))
        signals.worker_process_shutdown.connect(self._close_road, weak=False)
        if self.settings.logs == "structured":
            wiring.dress_celery_logs()

    def lay_defaults(self, **_signal: Any) -> None:
        """Put our defaults for Celery under what the user says; after each reading of it."""
        own_defaults.lay(self.conf, amqp=wiring.is_amqp(self.broker_url))

    def now(self) -> datetime:
        """Return the fleet's time in the app's zone: Celery counts ``eta`` and ``expires`` from it.

        The machine's own clock may be wrong, and whoever reads those goes by the store's.
        """
        return SystemClock().now().astimezone(self.timezone)

    # -- the road of this process ------------------------------------------------------------

    @property
    def road(self) -> DeliveryExecutor:
        """The road of this process."""
        return self._road.get()

    @property
    def facts(self) -> FactLog:
        """Where this process appends facts that belong to no delivery."""
        return self._facts.get()

    def breaker(
        self,
        name: str,
        *,
        key: object = None,
        errors: Errors = Exception,
        fallback: Callable[..., Any] | None = None,
    ) -> BreakerGuard:
        """Return the breaker *name* for use around calls, in a handler or anywhere else.

        A decorator for sync and async functions, a context manager for ``with`` and ``async
        with``, or ``.call(function, …)``. Only *errors* that say the dependency is ill count.
        Refused calls raise CircuitOpenError, or *fallback* is called with the same arguments.
        Each *key*, any text, has a breaker of its own with the settings of *name*.
        Raises ConfigurationError for a name that no breaker can have.
        """
        (guard,) = guards({name: errors})
        return guard_of(self, None, guard._replace(name=keyed(name, key)), fallback)

    def holding(self) -> Callable[[Handler], str | None]:
        """Return what tells why a handler is held back at this moment; for a worker's parent."""
        return HeldHandlers(
            switches=self.flow.switches,
            breakers=self.flow.breakers,
            pausing=self.settings.flow.pausing,
            domains=self.held_domains.now(),
        ).why

    @property
    def settlement(self) -> Settlement:
        """What settles in a worker's parent process what no child will."""
        return self._settlement.get()

    def run_eagerly(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run *task* for ``apply()`` and ``task_always_eager``: not claimed, not retried."""
        handler = self.handlers.get(task.name)
        if handler is None:
            msg = f"{task.name} is not registered with this app"
            raise ConfigurationError(msg)
        headers = {**(task.request.headers or {}), "id": task.request.id}
        in_place = InPlace(failure_policy=build_judge(self, SystemClock()), stopping=self.stopping)
        log, breaker = wiring.bound_logger(), partial(guard_of, self, handler)
        return run_eagerly(handler, in_place, self.undos, headers, args, kwargs, log, breaker)
