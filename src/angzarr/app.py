"""Angzarr: a Celery app whose tasks take the road. The only place where ports meet adapters."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from celery import signals

from angzarr import checks, fleet_wiring, forks, wiring
from angzarr.adapters.celery import decompression, safety
from angzarr.adapters.celery.amqp_queues import check_queues
from angzarr.adapters.celery.dropped import DroppedStep
from angzarr.adapters.celery.held_domains import HeldDomains
from angzarr.adapters.celery.moving import MoverThread
from angzarr.adapters.celery.publisher import LonePublisher, transport_of
from angzarr.adapters.celery.riding import Riding
from angzarr.adapters.celery.settlement import Settlement
from angzarr.adapters.celery.shutdown import ShutdownStep
from angzarr.adapters.celery.task import RoadTask
from angzarr.adapters.celery.worker import LeaseKeeper, RoadStep, Stopping
from angzarr.assembly import (
    apply_broker_defaults,
    build_chains,
    build_judge,
    build_reacting,
    build_road,
    build_salvage,
    build_settlement,
    open_schedule,
)
from angzarr.clock import SystemClock
from angzarr.delivery.eager import run_eagerly
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.delivery.holding import Holding
from angzarr.delivery.hooks import Hook
from angzarr.delivery.in_place import InPlace
from angzarr.delivery.road import Road
from angzarr.delivery.salvage import damaged
from angzarr.delivery.schedule import OpenSchedule
from angzarr.errors import ConfigurationError
from angzarr.events.message import Message
from angzarr.facts import FactLog
from angzarr.flow import guard_of, open_flow
from angzarr.ordered import Ordered
from angzarr.ordering_wiring import open_ordering
from angzarr.per_process import OncePerProcess
from angzarr.projecting import Projecting
from angzarr.resilience.breaker_guard import BreakerGuard
from angzarr.resilience.guarded import Errors, guards, keyed
from angzarr.resilience.keys import owner_lease_key
from angzarr.resilience.taxonomy import Rule, VerdictRule
from angzarr.resilience.tenure import Tenure
from angzarr.settings import Settings, load
from angzarr.turn_thread import TurnThread


class Angzarr(Ordered, Projecting):
    """A Celery app with one road for every task: claimed, retried, dead-lettered, replayed.

    *broker*, *backend* and every other Celery argument mean what they mean to Celery. *store*
    is where claims live, *dlq* where dead letters go, *ledger* the analysis worker's database,
    *books* that of event books;
    *config* names a YAML file (or the variable ANGZARR_CONFIG does). File and environment win
    over arguments. Raises ConfigurationError for what cannot work.
    """

    task_cls = RoadTask
    amqp_cls = "angzarr.adapters.celery.amqp:RoadAMQP"
    control_cls = "angzarr.adapters.celery.remote_control:Control"

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
        config: str | os.PathLike[str] | None = None,
        rules: Sequence[Rule] = (),
        verdicts: Sequence[VerdictRule] = (),
        hooks: Sequence[Hook] = (),
        **celery: Any,
    ) -> None:
        forks.guard()
        given = {
            "store": store,
            "dlq": dlq and dict(dlq),
            "ledger": ledger,
            "books": books,
            "facts": facts and dict(facts),
            "retry": retry and dict(retry),
            "routes": routes and dict(routes),
            "flow": flow and dict(flow),
            "ordering": ordering and dict(ordering),
        }
        self.settings: Settings = load(given, config)
        self.policy_rules = self.settings.retry.policy_rules()
        self.handlers = Handlers()
        self.stopping = Stopping()
        self.held_domains = HeldDomains()
        self.rules = tuple(rules)
        self.verdicts = tuple(verdicts)
        self.hooks = tuple(hooks)
        self._dlq_rules = []
        self._dlq_classifier = None
        self._lease: LeaseKeeper | None = None
        self._threads: list[TurnThread] = []
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
        super().__init__(main, **celery)
        self.take_escalations()
        self.add_defaults(dict(safety.DEFAULTS))
        self.on_after_configure.connect(apply_broker_defaults, weak=False)
        self.steps["worker"].update((RoadStep, ShutdownStep, DroppedStep))
        signals.worker_process_shutdown.connect(self._close_road, weak=False)
        if self.settings.logs == "structured":
            wiring.dress_celery_logs()

    # -- the road of this process ------------------------------------------------------------

    @property
    def road(self) -> Road:
        """The road of this process."""
        return self._road.get()

    @property
    def claims(self) -> wiring.Claims:
        """Where this process claims events; its road and its lease share it."""
        return self._claims.get()

    @property
    def tenure(self) -> Tenure:
        """Until when this process may rely on the lease of its worker."""
        return self._tenure.get()

    @property
    def schedule(self) -> OpenSchedule:
        """Where this process lets messages wait, and moves them on from."""
        return self._schedule.get()

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
        return Holding(
            switches=self.flow.switches,
            breakers=self.flow.breakers,
            pausing=self.settings.flow.pausing,
            domains=self.held_domains.now(),
        ).why

    def bury(self, message: Message, error: Exception, code: str) -> None:
        """Make a dead letter of *message*, which cannot run; raises what is away."""
        self._salvage.get().take(message, error, code)

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
        in_place = InPlace(judge=build_judge(self, SystemClock()), stopping=self.stopping)
        log, breaker = wiring.bound_logger(), partial(guard_of, self, handler)
        return run_eagerly(handler, in_place, self.undos, headers, args, kwargs, log, breaker)

    # -- a worker's life ---------------------------------------------------------------------

    @cached_property
    def owner(self) -> str:
        """The name of this process tree in claims; made anew by every worker process."""
        return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"

    def owner_lease(self) -> str:
        """Return the key of this process tree's lease in Redis, which its messages hang on too."""
        return owner_lease_key(self.settings.prefix, self.owner)

    def check_worker(self, pool: str, limits: Sequence[float | None] = ()) -> None:
        """Refuse to start where messages would be lost; raises ConfigurationError.

        Whatever the processes of a worker share is made here: a pool may fork before `begin_work`.
        """
        self.finalize(auto=True)
        decompression.bound()
        safety.check(self, transport_of(self))
        safety.check_pool(self, pool, self._is_async, limits, self.undos.asynchronous())
        checks.check_servers(self)
        check_queues(self)
        self.check_escalations()
        self.check_books()
        self.check_ordering()
        self.held_domains.begin(list(self.handlers.domains()))

    def _is_async(self, task: Any) -> bool:
        handler = self.handlers.get(task.name)
        return handler is not None and handler.is_async

    def begin_work(self, pool: str = "") -> None:
        """Take the owner lease, before the pool starts; raises ConfigurationError for its store.

        The fleet is told that this worker runs, on a *pool* of this name.
        """
        self.stopping.reset()
        membership = fleet_wiring.membership(self, pool)
        self._lease = LeaseKeeper(self.tenure, self.owner, self.claims.sweep, membership)
        self._lease.start(self.stopping)
        checks.check_store(self.settings, self.broker_url)  # it may have been away before
        mover = MoverThread(self.schedule, LonePublisher(self), self._take_unreadable)
        forwarder = self.open_forwarder_thread()
        keeper = self.open_keeper_thread(self._take_unreadable)
        others = (forwarder, self.open_relay_thread(), self.open_pruning_thread(), keeper)
        self._threads = [mover, *(thread for thread in others if thread is not None)]
        for thread in self._threads:
            thread.start()

    def _take_unreadable(self, raw: bytes, error: Exception) -> None:
        self.bury(damaged(raw, "schedule"), error, "DAMAGED_ROW")

    @cached_property
    def riding(self) -> Riding | None:
        """What claims a fetch at once, where broker and claim store are one Redis (4)."""
        claims = self.claims
        if claims.make_ending is None:
            return None
        return Riding(self.handlers, claims.store, self.tenure, self.owner, claims.make_ending)

    def board(self, messages: Sequence[Any]) -> None:
        """Claim *messages*, just fetched; called by the transport. Only a worker runs them."""
        if self._lease is not None and self.riding is not None:
            self.riding.board(messages)

    def stop_settling(self, patience: float = 0.0) -> None:
        """Settle what is due, then nothing more; what is unfinished goes back to the broker."""
        if (made := self._settlement.forget()) is not None:
            made.close(patience)

    def end_work(self) -> None:
        """End the owner lease; for tests and embedded workers, a process does it when it exits."""
        self.stop_settling()
        if self._threads:
            for thread in self._threads:
                thread.end()
            self._threads = []
            self.schedule.close()
        if self._lease is not None:
            self._lease.end()
            self._lease = None
        self._close_road()
        self._claims.forget()
        self._tenure.forget()
        for made in ("owner", "riding"):
            self.__dict__.pop(made, None)

    def close(self) -> None:
        """Close what this process opened, Celery's and ours; what is used again opens again."""
        self._close_road()
        super().close()

    def _close_road(self, **_signal: Any) -> None:
        closed = (
            self._road, self._chains, self._salvage, self._flow, self._facts, self._poster,
            self._ordering,
        )  # fmt: skip
        for made in (kept.forget() for kept in closed):
            if made is not None:
                made.close()
