"""Assembly: puts the road of one process together (a child must not share its parent's sockets)."""

from __future__ import annotations

import importlib
import socket
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from billiard.exceptions import TimeLimitExceeded
from kombu.utils.json import dumps, loads

from angzarr.adapters.celery.publish.followers import CeleryFollowers
from angzarr.adapters.celery.publish.outbox import CeleryOutbox, SingleConnectionEvents
from angzarr.adapters.celery.publish.publisher import (
    CeleryPublisher,
    CelerySchedule,
    SingleConnectionPublisher,
    transport_of,
)
from angzarr.adapters.celery.shutdown.shutdown import heed_cut
from angzarr.adapters.celery.worker.settlement import Settlement
from angzarr.adapters.celery.worker.task_events import install_error_log
from angzarr.adapters.memory.schedule import MemorySchedule
from angzarr.aggregates.decider import Decider, Relay
from angzarr.clock import Clock, SystemClock
from angzarr.delivery.admission import Admission, SwitchGate
from angzarr.delivery.claims import Claimer, LastStarts, Results
from angzarr.delivery.compensation_runner import CompensationRunner
from angzarr.delivery.executor import DeliveryExecutor
from angzarr.delivery.failure_policy import FailurePolicy
from angzarr.delivery.handlers import Domains
from angzarr.delivery.invoke import HandlerInvoker, Hooks
from angzarr.delivery.letter_builder import DeadLetterBuilder
from angzarr.delivery.ordering import Ordering
from angzarr.delivery.poison_wave import PoisonWaveBreaker
from angzarr.delivery.retry_until_available import RetryUntilAvailable, TryOnce
from angzarr.delivery.schedule import OpenSchedule, Schedule
from angzarr.delivery.settle import Settler
from angzarr.delivery.step_retry import InPlace
from angzarr.delivery.unreadable import UnreadableMessages
from angzarr.delivery.unsettled import UnsettledOutcomes
from angzarr.sagas.command_handlers import Chains, Reacting
from angzarr.sagas.compensating import Compensating
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import fleet as fleet_wiring
from angzarr.wiring import protection as protection_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.flow_control import guard_of


def build_road(app: Any) -> DeliveryExecutor:
    """Return a road with connections of its own; they open when first needed."""
    heed_cut(app.stopping)
    wiring.guard_handlers()
    if protection_wiring.hiding(app.settings.dlq) is not None:
        install_error_log()
    road = _road(app, RetryUntilAvailable, CeleryPublisher(app))
    return replace(road, poison_wave_breaker=_waves(app, road), closed=app.stopping.closed)


def _road(
    app: Any, hold_class: type[RetryUntilAvailable], publisher: CeleryPublisher
) -> DeliveryExecutor:
    clock = SystemClock()
    hold = hold_class(clock=clock, chance=app.chance, stopping=app.stopping)
    hooks = Hooks((*app.hooks, *wiring.open_hooks(transport_of(app))))
    schedule = CelerySchedule(app, publisher, lambda: app.schedule, clock)
    ordering = Ordering(
        lanes=lambda: app.ordering.lanes,
        handlers=app.handlers,
        retry=hold,
        schedule=schedule,
        clock=clock,
        most_parked=app.settings.ordering.most_parked,
        late=lambda handler, behind: wiring.ordering_meters().handled(handler, behind),
    )
    settler = _settler(app, schedule, ordering)
    judge = build_judge(app, clock)
    undoing = CompensationRunner(
        undos=app.undos,
        log=app.claims.steps,
        failure_policy=judge,
        facts=settler.facts,
        retry=hold,
        here=hold_class is RetryUntilAvailable,
        time_over=TimeLimitExceeded,
    )
    in_place = InPlace(
        failure_policy=judge, stopping=app.stopping, time_limit=partial(_time_limit, app)
    )
    results = Results(dumps=dumps, loads=loads)
    return DeliveryExecutor(
        handlers=app.handlers,
        claimer=Claimer(store=app.claims.store, tenure=app.tenure, retry=hold),
        ordering=ordering,
        admission=_admission(app, judge),
        invoker=HandlerInvoker(results=results, failure_policy=judge, hooks=hooks),
        results=results,
        failure_policy=judge,
        clock=clock,
        make_log=wiring.bound_logger(),
        make_breaker=partial(guard_of, app),
        in_place=in_place,
        compensation_runner=undoing,
        last_starts=LastStarts(store=app.claims.store, retry=hold),
        unsettled=UnsettledOutcomes(
            handlers=app.handlers,
            failure_policy=judge,
            compensation_runner=undoing,
            in_place=in_place,
        ),
        settler=settler,
        retry=hold,
        hooks=hooks,
        most_starts=app.settings.most_starts,
    )


def open_schedule(app: Any) -> OpenSchedule:
    """Return where delays wait: beside the claims, or in this process if the broker is there too.

    A worker is refused where that is not shared by all who share the broker
    (`checks.check_servers`).
    """
    url = wiring.store_url(app.settings, app.broker_url)
    schedule: OpenSchedule
    if wiring.is_embedded(app.broker_url) or url.startswith("memory"):
        schedule = MemorySchedule()
    elif url.startswith("redis"):
        schedule = wiring.redis_schedule(url, app.settings.prefix)
    else:  # a copy is all that is left of its message: it must outlive a power cut
        sql = importlib.import_module("angzarr.adapters.sql.delivery.schedule")
        schedule = sql.SqlSchedule(wiring.sql_engine(url))
    return schedule


def build_salvage(app: Any) -> UnreadableMessages:
    """Return what a parent process does with damaged envelopes; it opens when first needed."""
    clock = SystemClock()
    return UnreadableMessages(
        letter_builder=_autopsy(app, clock),
        handlers=app.handlers,
        dead_letters=app.open_dead_letter_queue(),
        facts=wiring.open_facts(app.settings, app.broker_url),
        clock=clock,
    )


def build_settlement(app: Any) -> Settlement:
    """Return what a parent process does for its children, with a road that waits for nobody."""
    publisher = SingleConnectionPublisher(app)
    road = _road(app, TryOnce, publisher)
    return Settlement(app, road, build_salvage(app), publisher)


def build_chains(app: Any) -> Chains:
    """Return what deliveries of commands and notifications need; it connects when first used."""
    clock, given = SystemClock(), app.settings.saga_compensation
    shelves = books_wiring.open_shelves(app.settings, app.broker_url)
    outbox, meters = CeleryOutbox(app), wiring.saga_meters()
    return Chains(
        books=shelves.books,
        rejections=shelves.rejections,
        decider=Decider(
            books=shelves.books,
            aggregates=app.aggregates,
            clock=clock,
            chance=app.chance,
        ),
        compensating=Compensating(
            books=shelves.books,
            log=shelves.rejections,
            outbox=outbox,
            meters=meters,
            clock=clock,
            chance=app.chance,
            fallback=given.fallback(),
            domain=given.fallback_domain,
            shown=app.without_secrets,
        ),
        outbox=outbox,
        meters=meters,
        clock=clock,
        max_depth=given.max_depth,
    )


def build_relay(app: Any) -> Relay:
    """Return what publishes decisions of processes that died."""
    shelves = books_wiring.open_shelves(app.settings, app.broker_url)
    shelves.rejections.close()  # nobody else would, and the last who closes ends the connections
    return Relay(
        books=shelves.books,
        publish=SingleConnectionEvents(app, SingleConnectionPublisher(app)).publish,
        clock=SystemClock(),
        chance=app.chance,
    )


def build_reacting(app: Any) -> Reacting:
    """Return what deliveries to sagas need."""
    given = app.settings.saga_compensation
    return Reacting(outbox=CeleryOutbox(app), clock=SystemClock(), max_depth=given.max_depth)


def _waves(app: Any, road: DeliveryExecutor) -> PoisonWaveBreaker | None:
    if not app.settings.poison_wave.enabled:
        return None
    return PoisonWaveBreaker(
        breakers=app.flow.breakers,
        handlers=app.handlers,
        letter_builder=road.failure_policy.letter_builder,
        facts=road.settler.facts,
        clock=road.clock,
        # The parent of one that shares a flow store hears of the wave by that, and of its end.
        on_held=app.held_domains.hold if app.flow.controls is None else None,
    )


def _admission(app: Any, judge: FailurePolicy) -> Admission:
    return Admission(
        switch_gate=SwitchGate(
            switches=app.flow.switches,
            domain=judge.letter_builder.domains.of_delivery,
            chance=app.chance,
        ),
        breakers=app.flow.breakers,
        budgets=app.flow.budgets,
        limits=app.flow.limits,
        sleep=judge.clock.sleep,
        chance=app.chance,
    )


def _time_limit(app: Any, name: str) -> timedelta | None:
    """Return the shorter of the time limits that Celery puts on the task *name*."""
    task = app.tasks.get(name)
    limits = [limit for limit in (task and task.time_limit, task and task.soft_time_limit) if limit]
    return timedelta(seconds=min(limits)) if limits else None


def build_judge(app: Any, clock: Clock) -> FailurePolicy:
    """Return what knows the app's rules; it needs no server."""
    return FailurePolicy(
        letter_builder=_autopsy(app, clock),
        clock=clock,
        chance=app.chance,
        policies=app.policy_rules,
        rules=app.rules,
        verdicts=app.verdicts,
    )


def _autopsy(app: Any, clock: Clock) -> DeadLetterBuilder:
    return DeadLetterBuilder(
        clock=clock,
        component=app.main or "angzarr",
        worker=socket.gethostname(),
        version=fleet_wiring.release(),
        domains=_domains(app),
        hide=protection_wiring.hiding(app.settings.dlq),
    )


def _domains(app: Any) -> Domains:
    return Domains(
        read=frozenset(letter_wiring.domains_to_read(app)),
        of_queue=app.settings.dlq.queue_domains.get,
        default=letter_wiring.default_domain(app),
    )


def _settler(app: Any, schedule: Schedule, ordering: Ordering) -> Settler:
    return Settler(
        schedule=schedule,
        followers=CeleryFollowers(app),
        dead_letters=app.open_letterbox(),
        replay_outcomes=app.open_replay_outcomes(),
        store=app.claims.store,
        ordering=ordering,
        facts=wiring.open_facts(app.settings, app.broker_url),
        clock=ordering.clock,
    )
