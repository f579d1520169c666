"""A worker's life, from what it refuses to start with to the end of its lease."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any

from angzarr.adapters.celery import celery_defaults as own_defaults
from angzarr.adapters.celery.claim_batch import ClaimBatch
from angzarr.adapters.celery.publish.amqp import check_queues
from angzarr.adapters.celery.publish.publisher import SingleConnectionPublisher, transport_of
from angzarr.adapters.celery.worker import safety
from angzarr.adapters.celery.worker.consumer_state import ConsumerState
from angzarr.adapters.celery.worker.message_limits import bound_decompression
from angzarr.adapters.celery.worker.message_receiver import RedeliveredReader
from angzarr.adapters.celery.worker.owner_lease import LeaseKeeper
from angzarr.adapters.celery.worker.pools import patch_pauses
from angzarr.adapters.celery.worker.settle_thread import Trouble
from angzarr.adapters.celery.worker.settlement import Settlement
from angzarr.adapters.celery.worker.supervised import SupervisedProcess
from angzarr.adapters.celery.worker.worker import MoverThread, Stopping
from angzarr.adapters.celery.worker.worker_health import StoreWatch, WorkerHealth
from angzarr.adapters.http.health_server import HealthServer
from angzarr.app.ordering import LaneWork
from angzarr.clock import SystemClock
from angzarr.delivery import async_runner as colour
from angzarr.delivery.admission import HeldHandlers
from angzarr.delivery.handlers import Handler, Handlers, Subscription
from angzarr.delivery.invoke import run_eagerly
from angzarr.delivery.schedule import OpenSchedule
from angzarr.delivery.step_retry import InPlace
from angzarr.delivery.unreadable import damaged
from angzarr.errors import ConfigurationError
from angzarr.events.event import Message
from angzarr.resilience.claim_memory import FleetDuty
from angzarr.resilience.clock_watch import ClockWatch
from angzarr.resilience.idempotency import owner_lease_key
from angzarr.runtime.json_bounds import Bounds
from angzarr.runtime.processes import PeriodicThread
from angzarr.settings.settings import Settings
from angzarr.wiring import fleet as fleet_wiring
from angzarr.wiring import startup_checks as checks
from angzarr.wiring import stores as wiring
from angzarr.wiring.delivery import build_judge, open_book_threads
from angzarr.wiring.facts import FactRelayThread, open_relay_thread
from angzarr.wiring.flow_control import guard_of
from angzarr.wiring.operations import Operations
from angzarr.wiring.process import ProcessParts
from angzarr.wiring.shared_imports import import_shared
from angzarr.wiring.telemetry import METRICS, open_health


class WorkerLife:
    """What an app does in a worker's processes; the `WorkerRuntime` of Celery's hooks."""

    #: Whether whoever began the work takes the turns of its threads: a test, by its own clock.
    turns_by_hand = False
    #: This process, where it is one of several under a supervisor.
    supervised: SupervisedProcess | None = None

    def __init__(self, parts: ProcessParts, ops: Operations) -> None:
        self._context = parts.context
        self._parts = parts
        self._celery = parts.celery
        self._ops = ops
        self._lanes = LaneWork(parts)
        self.routing = parts.routing
        #: Give the executor and the offloader of this process; the hot path asks for the former.
        self.executor, self.offloader = parts.executor.get, parts.offloader.get
        self.movement = ConsumerState()
        self._lease: LeaseKeeper | None = None
        self._health: HealthServer | None = None
        self._threads: list[PeriodicThread] = []
        self._facts: FactRelayThread | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the app."""
        return self._context.settings

    @property
    def prefix(self) -> str:
        """What the names of all keys and queues of the app begin with."""
        return self.settings.prefix

    @property
    def bounds(self) -> Bounds:
        """What a message may hold at most."""
        return self.settings.message.bounds

    @property
    def redis_transport(self) -> str:
        """Whose transport for Redis the app uses."""
        return self.settings.redis_transport

    @property
    def amqp_queues(self) -> str:
        """Whether queues on RabbitMQ are guarded."""
        return self.settings.amqp_queues

    @property
    def soft_shutdown_timeout(self) -> timedelta | None:
        """The grace that the settings name; None if they name none."""
        return self.settings.soft_shutdown_timeout

    @property
    def handlers(self) -> Handlers:
        """The handlers of the app."""
        return self._context.handlers

    @property
    def routes(self) -> Mapping[str, Sequence[Subscription]]:
        """Handlers that this process need not import, by event type or domain."""
        return self._context.routes

    @property
    def broker_url(self) -> str:
        """The broker's URL, or several behind another."""
        return self._context.broker_url

    @property
    def claims_url(self) -> str:
        """The URL of the claim store."""
        return wiring.store_url(self.settings, self.broker_url)

    @property
    def stopping(self) -> Stopping:
        """Whether this worker stops."""
        return self._context.stopping

    @property
    def schedule(self) -> OpenSchedule:
        """Where this process lets messages wait, and moves them on from."""
        return self._parts.schedule

    @property
    def settlement(self) -> Settlement:
        """What settles in a worker's parent process what no child will."""
        return self._parts.settlement.get()

    def lay_defaults(self, **_signal: Any) -> None:
        """Put our defaults for Celery under what the user says; after each reading of it."""
        own_defaults.lay(self._celery.conf, amqp=wiring.is_amqp(self.broker_url))

    def holding(self) -> Callable[[Handler], str | None]:
        """A function that says why a handler is held back at this moment; for a worker's parent."""
        return HeldHandlers(
            switches=self._parts.flow.switches,
            breakers=self._parts.flow.breakers,
            pausing=self.settings.flow.pausing,
            domains=self._context.held_domains.now(),
        ).why

    def run_eagerly(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run *task* for ``apply()`` and ``task_always_eager``: not claimed, not retried."""
        context = self._context
        handler = context.handlers.get(task.name)
        if handler is None:
            msg = f"{task.name} is not registered with this app"
            raise ConfigurationError(msg)
        headers = {**(task.request.headers or {}), "id": task.request.id}
        policy = build_judge(context, SystemClock())
        tries = InPlace(failure_policy=policy, stopping=context.stopping)
        breaker = partial(guard_of, context, lambda: self._parts.flow, handler)
        log, read = wiring.bound_logger(), self._parts.configuration.get
        return run_eagerly(handler, tries, context.undos, headers, args, kwargs, log, breaker, read)

    @cached_property
    def owner(self) -> str:
        """The name of this process tree in claims; made anew by every worker process."""
        return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"

    def owner_lease(self) -> str:
        """The key of this process tree's lease in Redis, which its messages hang on too."""
        return owner_lease_key(self.settings.prefix, self.owner)

    def check_worker(self, pool: str, limits: Sequence[float | None] | None = ()) -> None:
        """Refuse to start where messages would be lost; raises ConfigurationError.

        *limits* are the time limits of all tasks; None: the pool keeps any.

        Whatever the processes of a worker share is made here: a pool may fork before `begin_work`.
        """
        self._parts.works = True
        self._celery.finalize(auto=True)
        self._take_grace()
        if self.settings.health.port is not None:
            METRICS.begin()  # before anything measures
            wiring.begin_counts()
        bound_decompression(self.settings.message.most_unpacked)
        patch_pauses()
        safety.check(self._celery, transport_of(self._celery))
        if not self.turns_by_hand:  # a test's worker is another one than the app's
            asynchronous = self._context.undos.asynchronous()
            safety.check_pool(self._celery, pool, self._is_async, limits, asynchronous)
        checks.check_servers(self._parts)
        check_queues(self._celery)
        self._ops.check_escalations()
        self._ops.check_books()
        self._ops.check_ordering()
        self._context.held_domains.begin(list(self.handlers.domains()))
        if pool == "prefork":
            import_shared(self.settings, self.broker_url)

    def _take_grace(self) -> None:
        """Let the setting win over what code gave to Celery: the environment may say it."""
        if (grace := self.settings.soft_shutdown_timeout) is not None:
            self._celery.conf.worker_soft_shutdown_timeout = grace.total_seconds()

    def _is_async(self, task: Any) -> bool:
        handler = self.handlers.get(task.name)
        return handler is not None and handler.is_async

    def begin_work(self, pool: str = "") -> None:
        """Take the owner lease and enter the register; raises ConfigurationError for the store."""
        self.stopping.reset()
        membership = fleet_wiring.membership(self._parts, self.owner, pool)
        watch = self._ops.watch_clock()
        self._lease = LeaseKeeper(
            self._parts.tenure, self.owner, self._parts.claims.sweep, membership, clock_watch=watch
        )
        colour.begin_sharing()
        self._serve_health(self._lease, watch)
        self._lease.start(self._waits_no_longer)
        checks.check_store(self.settings, self.broker_url)  # it may have been away before
        self._parts.settlement.get().start()
        self.claim_batch.ender.start()
        mover = MoverThread(
            self.schedule, SingleConnectionPublisher(self._celery),
            self._take_unreadable, self._take_refused,
        )  # fmt: skip
        forwarder = self._ops.open_forwarder_thread()
        keeper = self._lanes.open_keeper_thread(
            self.owner, self._take_unreadable, self._take_refused
        )
        others = (
            forwarder, *open_book_threads(self._parts), keeper, self._open_watch_thread(),
            self._ops.open_depth_thread(self._duty), self._open_relay_thread(),
        )  # fmt: skip
        self._threads = [mover, *(thread for thread in others if thread is not None)]
        if not self.turns_by_hand:
            for thread in self._threads:
                thread.start()

    def _open_relay_thread(self) -> FactRelayThread | None:
        """A thread that moves facts to their database, if it is this worker's duty."""
        self._facts = open_relay_thread(
            self.settings, self.broker_url, self._parts.claims, self._duty
        )
        return self._facts

    def _open_watch_thread(self) -> PeriodicThread | None:
        """A thread that checks each minute whether the worker's Redis still keeps its data."""
        if not checks.uses_redis(self._parts):
            return None
        return PeriodicThread("angzarr-watch", lambda _stopping: self.store_watch)

    @cached_property
    def store_watch(self) -> StoreWatch:
        """What stands against this worker's stores since it started."""
        return StoreWatch(lambda: checks.store_trouble(self._parts))

    def _duty(self, name: str) -> FleetDuty:
        """The duty *name* that one worker of the fleet has, as this worker sees it."""
        return FleetDuty(self._parts.tenure, self._parts.claims.store, self.owner, name)

    def take_turns(self) -> None:
        """Do once what the threads of a worker's parent do in turns, for `turns_by_hand`."""
        for thread in self._threads:
            thread.turn()

    def _serve_health(self, lease: LeaseKeeper, watch: ClockWatch | None) -> None:
        """Answer probes from now on, before any server is waited for."""
        self.movement.beat()
        health = WorkerHealth(
            self.movement,
            stalled_after=self.settings.health.stalled_after.total_seconds(),
            up_within=self._celery.conf.worker_proc_alive_timeout,
            stopping=self.stopping,
            lease_is_sure=lambda: self._parts.tenure.is_sure(self.owner),
            reaches_store=lambda: lease.reaches_store,
            clock=None if watch is None else watch.condition,
            log_says=wiring.guard_logs(),
            store_says=lambda: self.store_watch.says,
            settle_trouble=self._settle_trouble,
            facts_say=lambda: None if self._facts is None else self._facts.relay.trouble(),
        )
        wiring.show_loop(self.movement.coroutines)
        if self.supervised is not None:
            self.supervised.begin(self.owner, health, self._parts.claims.leases)
            return
        self._health = open_health(self.settings.health, health)
        if self._health is not None:
            self._health.start()

    def _settle_trouble(self) -> Trouble | None:
        made = self._parts.settlement.made()
        return None if made is None else made.trouble()

    def _waits_no_longer(self) -> bool:
        self.movement.beat()
        return self.stopping()

    def _take_unreadable(self, raw: bytes, error: Exception) -> None:
        self.bury(damaged(raw, "schedule"), error, "DAMAGED_ROW")

    def _take_refused(self, message: Message, error: Exception) -> str:
        return self.bury(message, error, "REFUSED_BY_BROKER")

    @cached_property
    def claim_batch(self) -> ClaimBatch:
        """What claims a fetch at once, and completes in batches."""
        claims = self._parts.claims
        return ClaimBatch(
            self.handlers, claims.store, self._parts.tenure, self.owner,
            self.settings.message.bounds, claims.make_ending,
        )  # fmt: skip

    def claim_fetched(self, messages: Sequence[Any]) -> None:
        """Claim *messages*, just fetched; called by the transport. Only a worker runs them."""
        if self._lease is not None and self._lease.reaches_store:
            self.claim_batch.claim(messages)

    @cached_property
    def rereads(self) -> RedeliveredReader:
        """What reads messages that were delivered before."""
        return RedeliveredReader(self._parts.claims.store, self.settings.message.bounds)

    def reread(
        self, queue: str, identity: bytes, make: Callable[[], Any], keep_packed: Callable[[], Any]
    ) -> Any:
        """The message that *make* makes of one delivered before; see `RedeliveredReader`."""
        if self._lease is None:  # no worker
            return make()
        return self.rereads.read(queue, identity, make, keep_packed)

    def stop_settling(self, patience: float = 0.0) -> None:
        """Settle the messages that are due, then nothing more; the others go back to the broker."""
        if "claim_batch" in vars(self):
            self.claim_batch.ender.finish(patience)
        if (made := self._parts.settlement.forget()) is not None:
            made.close(patience)

    def keep_settling(self) -> None:
        """See that the threads run that settle what no child will; called once a second."""
        if (made := self._parts.settlement.made()) is not None:
            made.keep()

    @property
    def settles(self) -> bool:
        """Whether this process has something to settle that no child will."""
        made = self._parts.settlement.made()
        return made is not None and not made.idle

    def end_work(self) -> None:
        """End the lease and every thread of a worker; one that is a process of its own just exits.

        Safe to call again.
        """
        if self._health is not None:
            self._health.end()
            self._health = None
            METRICS.end()
        self.stop_settling()
        if self._threads:
            for thread in self._threads:
                thread.end()
            self._threads = []
            self.schedule.close()
        if self._lease is not None:
            self._lease.end()
            self._lease = None
            colour.end_sharing()
        self.close()
        self._parts.leave_claims()
        for made in ("owner", "claim_batch", "rereads", "store_watch"):
            self.__dict__.pop(made, None)

    def bury(self, message: Message, error: Exception, code: str) -> str:
        """Make a dead letter of *message*, which cannot run, and return its id.

        Its lane and who waits for its result hear of it. Raises Unavailable; safe to repeat.
        """
        letter = self._parts.salvage.get().take(message, error, code)
        handler = self.handlers.get(message.task)
        if handler is not None and handler.order is not None:
            self.settlement.tell_lane(message, letter.id)
        if (made := self._parts.settlement.made()) is not None:
            made.tell_lost(message, error)
        return letter.id

    def close(self, **_signal: Any) -> None:
        """Close what this process opened; a later use opens it again."""
        self._parts.close()
        METRICS.flush()
