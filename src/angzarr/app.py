"""Angzarr: a Celery app whose tasks take the road. The only place where ports meet adapters."""

from __future__ import annotations

import inspect
import os
import random
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, NoReturn

from celery import Celery
from celery.exceptions import Ignore
from kombu.utils.json import dumps, loads

from angzarr import wiring
from angzarr.adapters.celery import safety
from angzarr.adapters.celery.binding import event_binding, task_binding
from angzarr.adapters.celery.followers import CeleryFollowers
from angzarr.adapters.celery.publisher import (
    CeleryPublisher,
    CelerySchedule,
    longest_safe_delay,
    transport_of,
)
from angzarr.adapters.celery.replay_outcomes import CeleryReplayOutcomes
from angzarr.adapters.celery.task import RoadTask
from angzarr.adapters.celery.worker import LeaseKeeper, RoadStep, Stopping
from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.analysis.replay import ReplayTargets
from angzarr.clock import SystemClock
from angzarr.dead_letters.queue import DeadLetterQueue
from angzarr.dead_letters.replay_outcome import ReplayOutcomes
from angzarr.delivery.autopsy import Autopsy
from angzarr.delivery.eager import run_eagerly
from angzarr.delivery.fanout import Subscription
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.delivery.hold import Hold
from angzarr.delivery.hooks import Hook, Hooks
from angzarr.delivery.pipeline import Pipeline
from angzarr.delivery.results import Results
from angzarr.delivery.road import Road
from angzarr.delivery.settle import Settler
from angzarr.errors import ConfigurationError, DuplicateHandler
from angzarr.events.codec import event_type_of
from angzarr.events.event import check_domain
from angzarr.events.publisher import Publisher
from angzarr.publishing import Publishing
from angzarr.resilience.backoff import Policy, longest_delay
from angzarr.resilience.policies import choose, policies_from
from angzarr.resilience.taxonomy import Rule, VerdictRule
from angzarr.settings import Settings, load


class Angzarr(Publishing, Celery):
    """A Celery app with one road for every task: claimed, retried, dead-lettered, replayed.

    *broker*, *backend* and every other Celery argument mean what they mean to Celery. *store*
    is where claims live, *dlq* where dead letters go, *ledger* the analysis worker's database;
    *config* names a YAML file (or the variable ANGZARR_CONFIG does). File and environment win
    over arguments. Raises ConfigurationError for what cannot work.
    """

    task_cls = RoadTask
    amqp_cls = "angzarr.adapters.celery.amqp:RoadAMQP"

    def __init__(
        self,
        main: str | None = None,
        *,
        store: str | None = None,
        dlq: Mapping[str, Any] | None = None,
        ledger: str | None = None,
        facts: Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
        routes: Mapping[str, Any] | None = None,
        config: str | os.PathLike[str] | None = None,
        rules: Sequence[Rule] = (),
        verdicts: Sequence[VerdictRule] = (),
        hooks: Sequence[Hook] = (),
        **celery: Any,
    ) -> None:
        given = {
            "store": store,
            "dlq": dlq and dict(dlq),
            "ledger": ledger,
            "facts": facts and dict(facts),
            "retry": retry and dict(retry),
            "routes": routes and dict(routes),
        }
        self.settings: Settings = load(given, config)
        self.policies = policies_from(self.settings.retry.policies)
        self.handlers = Handlers()
        self.stopping = Stopping()
        self._rules = tuple(rules)
        self._verdicts = tuple(verdicts)
        self._hooks = tuple(hooks)
        self._lease: LeaseKeeper | None = None
        self._road: tuple[int, Road] | None = None
        super().__init__(main, **celery)
        self.add_defaults(dict(safety.DEFAULTS))
        self.on_after_configure.connect(_apply_broker_defaults, weak=False)
        self.steps["worker"].add(RoadStep)

    # -- handlers ----------------------------------------------------------------------------

    def handler(
        self,
        event: object,
        *,
        domain: str | None = None,
        operation: str | None = None,
        policy: Policy | str | None = None,
        breaker: str | None = None,
        queue: str | None = None,
        idempotent: bool = True,
        rules: Sequence[Rule] = (),
        verdicts: Sequence[VerdictRule] = (),
        max_age: timedelta = timedelta(days=1),
        name: str | None = None,
        **task_options: Any,
    ) -> Callable[[Callable[..., Any]], Any]:
        """Register a function, sync or async, for the events of a type: ``f(event[, ctx])``.

        *event* is a pydantic model, a dataclass, a protobuf message or a type name; *policy*
        names a backoff policy (else *operation* does, else the event's priority);
        *task_options* go to Celery. Raises DuplicateHandler, InvalidDomainName or
        ConfigurationError at once.
        """
        event_type = event_type_of(event)
        if domain is not None:
            check_domain(domain)

        def register(function: Callable[..., Any]) -> Any:
            task_name = name or self.gen_task_name(function.__name__, function.__module__)
            self.handlers.add(
                Handler(
                    name=task_name,
                    bind=event_binding(function, event),
                    event_type=event_type,
                    domain=domain,
                    operation=operation,
                    policy=self._policy(policy, operation),
                    breaker=breaker,
                    queue=queue,
                    idempotent=idempotent,
                    rules=tuple(rules),
                    verdicts=tuple(verdicts),
                    max_age=max_age,
                    finished_by=(Ignore,),
                    is_async=inspect.iscoroutinefunction(function),
                )
            )
            return self.task(function, name=task_name, queue=queue, typing=False, **task_options)

        return register

    def _policy(self, policy: Policy | str | None, operation: str | None) -> Policy | None:
        if policy is None and operation is None:
            return None
        return choose(self.policies, explicit=policy, operation=operation)

    def _task_from_fun(
        self, fun: Callable[..., Any], name: str | None = None, base: Any = None, **options: Any
    ) -> Any:
        """Register a plain task's handler beside its Celery task (Celery's own extension point)."""
        mixed = None if base is None else self._mixed(base)
        task = super()._task_from_fun(fun, name=name, base=mixed, **options)
        self._take_in(task, inspect.iscoroutinefunction(fun))
        return task

    def register_task(self, task: Any, **options: Any) -> Any:
        """Register a class-based task; its class must derive from ``app.Task``."""
        task_class = task if inspect.isclass(task) else type(task)
        if not issubclass(task_class, RoadTask):
            msg = f"{task_class.__name__} must derive from app.Task, or its messages could be lost"
            raise ConfigurationError(msg)
        registered = super().register_task(task, **options)
        self._take_in(registered, inspect.iscoroutinefunction(registered.run))
        return registered

    def _take_in(self, task: Any, is_async: bool) -> None:  # noqa: FBT001 - two kinds of function
        """Register a plain task; domain, policy, … may be given as options of ``@app.task``."""
        if self.handlers.get(task.name) is not None:
            return
        said = {name: getattr(task, name, None) for name in ("domain", "operation", "breaker")}
        if said["domain"] is not None:
            check_domain(said["domain"])
        self.handlers.add(
            Handler(
                name=task.name,
                bind=task_binding(task),
                policy=self._policy(getattr(task, "policy", None), said["operation"]),
                queue=getattr(task, "queue", None),
                idempotent=getattr(task, "idempotent", True),
                finished_by=(Ignore,),
                is_async=is_async,
                **said,
            )
        )

    def _mixed(self, base: Any) -> Any:
        """Return *base* with the road under it; refuse what would leave the road."""
        if issubclass(base, RoadTask):
            return base
        for attribute in ("__call__", "Request"):
            if attribute in base.__dict__:
                msg = (
                    f"the task base {base.__name__} has its own {attribute}, which would leave"
                    " angzarr's road: move that code to before_start, on_success or on_failure"
                )
                raise ConfigurationError(msg)
        return type(base.__name__, (base, self.Task), {"abstract": True})

    def _warn_duplicate_task_name(
        self, name: str, existing: str, new: str, _consequence: str
    ) -> NoReturn:
        """Refuse what Celery only warns of: one of two functions would never be called."""
        msg = (
            f"{name!r} is registered twice, for {existing} and {new}: rename one of the"
            " functions or pass name=…"
        )
        raise DuplicateHandler(msg)

    # -- the road of this process ------------------------------------------------------------

    @property
    def road(self) -> Road:
        """The road, built once in each process (a child must not share its parent's sockets)."""
        if self._road is None or self._road[0] != os.getpid():
            self._road = (os.getpid(), self._build_road())
        return self._road[1]

    def _build_road(self) -> Road:
        clock = SystemClock()
        chance = random.random  # noqa: S311 - spreads waits, keeps no secret
        store = wiring.open_claims(self.settings, self.broker_url).store
        results = Results(dumps=dumps, loads=loads)
        hold = Hold(clock=clock, chance=chance, stopping=self.stopping)
        hooks = Hooks((*self._hooks, *wiring.open_hooks()))
        publisher = CeleryPublisher(self)
        pipeline = Pipeline(
            handlers=self.handlers,
            store=store,
            breakers=InProcessBreakers(),
            results=results,
            autopsy=self._autopsy(clock),
            hold=hold,
            clock=clock,
            chance=chance,
            make_log=wiring.bound_logger(),
            hooks=hooks,
            policies=self.policies,
            rules=self._rules,
            verdicts=self._verdicts,
            most_starts=self.settings.most_starts,
        )
        settler = Settler(
            schedule=CelerySchedule(self, publisher, clock),
            followers=CeleryFollowers(self),
            dead_letters=self.open_dead_letter_queue(),
            replay_outcomes=CeleryReplayOutcomes(self, publisher),
            store=store,
            facts=wiring.open_facts(self.settings, self.broker_url),
            clock=clock,
        )
        return Road(pipeline=pipeline, settler=settler, store=store, hold=hold, hooks=hooks)

    def _autopsy(self, clock: SystemClock) -> Autopsy:
        return Autopsy(
            clock=clock,
            component=self.main or "angzarr",
            worker=socket.gethostname(),
            version=os.environ.get("ANGZARR_RELEASE", ""),
            domain_of_queue=self.settings.dlq.queue_domains.get,
        )

    def run_eagerly(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run *task* for ``apply()`` and ``task_always_eager``: not claimed, not retried."""
        handler = self.handlers.get(task.name)
        if handler is None:
            msg = f"{task.name} is not registered with this app"
            raise ConfigurationError(msg)
        headers = {**(task.request.headers or {}), "id": task.request.id}
        policy = handler.policy or self._by("default")
        return run_eagerly(handler, policy, headers, args, kwargs, wiring.bound_logger())

    # -- a worker's life ---------------------------------------------------------------------

    @cached_property
    def owner(self) -> str:
        """The name of this process tree in claims; made anew by every worker process."""
        return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"

    def check_worker(self, pool: str) -> None:
        """Refuse to start where messages would be lost; raises ConfigurationError."""
        self.finalize(auto=True)
        safety.check(self, transport_of(self))
        safety.check_pool(self, pool, self._is_async)
        self._check_delays()
        wiring.check_servers(self.settings, self.broker_url)

    def _is_async(self, task: Any) -> bool:
        handler = self.handlers.get(task.name)
        return handler is not None and handler.is_async

    def _check_delays(self) -> None:
        longest = longest_safe_delay(self)
        for handler in self.handlers if longest is not None else ():
            policies = [handler.policy] if handler.policy else list(map(self._by, _PRIORITIES))
            for policy in policies:
                if longest_delay(policy) > longest:
                    msg = (
                        f"policy {policy.name!r} of {handler.name} waits up to"
                        f" {longest_delay(policy)}, but this broker holds a message safely for"
                        f" {longest} only: lower its max_delay, or raise"
                        " broker_transport_options.visibility_timeout"
                    )
                    raise ConfigurationError(msg)

    def _by(self, priority: str) -> Policy:
        return choose(self.policies, priority=priority)

    def begin_work(self) -> None:
        """Take the owner lease; called in the parent before its pool starts."""
        self.stopping.reset()
        leases = wiring.open_claims(self.settings, self.broker_url).leases
        self._lease = LeaseKeeper(leases, self.owner)
        self._lease.start()

    def end_work(self) -> None:
        """End the owner lease; for tests and embedded workers, a process does it when it exits."""
        if self._lease is not None:
            self._lease.end()
            self._lease = None
        if self._road is not None:
            self._road[1].close()
            self._road = None
        self.__dict__.pop("owner", None)

    # -- doors for the analysis worker and the CLI ---------------------------------------------

    @property
    def broker_url(self) -> str:
        """The broker's URL, with the default that Celery would use."""
        return str(self.conf.broker_url or "amqp://guest@localhost//")

    def open_dead_letter_queue(self) -> DeadLetterQueue:
        """Return a new connection to the dead-letter queue."""
        return wiring.open_dead_letters(self.settings, self.broker_url)

    def open_ledger(self) -> Any:
        """Return the ledger."""
        return wiring.open_ledger(self.settings, self.broker_url)

    def open_publisher(self) -> Publisher:
        """Return what sends raw messages to this app's broker."""
        return CeleryPublisher(self)

    def open_replay_outcomes(self) -> ReplayOutcomes:
        """Return the queue on which workers tell how replays ended."""
        return CeleryReplayOutcomes(self, CeleryPublisher(self))

    def dead_letter_domains(self) -> list[str]:
        """Return every domain whose letters the analysis worker reads."""
        self.finalize(auto=True)
        return wiring.domains_to_read(self.settings, list(self.handlers.domains()))

    def replay_targets(self) -> ReplayTargets:
        """Return the tasks and queues that a replay may be sent to (spec A4)."""
        self.finalize(auto=True)
        return ReplayTargets(
            tasks=frozenset(handler.name for handler in self.handlers),
            queues=frozenset(self._known_queues()),
        )

    def queue_of(self, routing_key: str) -> str:
        """Return the queue that *routing_key* reaches, the key itself where none is known."""
        for name, queue in self.amqp.queues.items():
            if routing_key in (name, queue.routing_key):
                return str(name)
        return routing_key or str(self.conf.task_default_queue)

    def _known_queues(self) -> set[str]:
        of_handlers = {handler.queue for handler in self.handlers if handler.queue}
        of_routes = {sub.queue for subs in self.routes.values() for sub in subs if sub.queue}
        return {*self.amqp.queues, *of_handlers, *of_routes}

    @cached_property
    def routes(self) -> Mapping[str, Sequence[Subscription]]:
        """Handlers by event type that this process need not import (decisions 13)."""
        return {
            event_type: [Subscription(route.handler, route.queue) for route in routes]
            for event_type, routes in self.settings.routes.items()
        }


_PRIORITIES = ("realtime", "background", "default")


def _apply_broker_defaults(sender: Angzarr, **_signal: Any) -> None:
    """Give the broker's transport what it needs, below what the user set."""
    conf = sender.conf
    broker = sender.broker_url
    given = dict(conf.broker_transport_options or {})
    if broker.startswith(("amqp", "pyamqp")):
        conf.add_defaults(dict(safety.AMQP_DEFAULTS))
        conf.broker_transport_options = {"confirm_publish": True, **given}
    elif broker.startswith("memory"):
        conf.broker_transport_options = {"polling_interval": 0.01, **given}
