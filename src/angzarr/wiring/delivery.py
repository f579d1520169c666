"""Assembly: builds the executor of one process (a child must not share its parent's sockets)."""

from __future__ import annotations

import importlib
import socket
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from billiard.exceptions import TimeLimitExceeded
from celery import Celery
from kombu.utils.json import dumps, loads

from angzarr.adapters.celery.publish.body_offloader import BodyOffloader, safe_size
from angzarr.adapters.celery.publish.followers import CeleryFollowers
from angzarr.adapters.celery.publish.outbox import SingleConnectionEvents
from angzarr.adapters.celery.publish.publisher import (
    CeleryPublisher,
    CelerySchedule,
    SingleConnectionPublisher,
    transport_of,
)
from angzarr.adapters.celery.publish.replay_outcomes import CeleryReplayOutcomes
from angzarr.adapters.celery.shutdown.shutdown import heed_cut
from angzarr.adapters.celery.worker.settlement import Settlement
from angzarr.adapters.celery.worker.stored_bodies import read_stored, tell_request
from angzarr.adapters.celery.worker.task_events import install_error_log
from angzarr.adapters.memory.schedule import MemorySchedule
from angzarr.aggregates.decider import Decider, Relay
from angzarr.clock import Clock, SystemClock
from angzarr.dead_letters.replay_outcome import ReplayOutcomes, outcomes_queue
from angzarr.delivery.admission import Admission, SwitchGate
from angzarr.delivery.bodies import BodyLoader
from angzarr.delivery.claims import Claimer, LastStarts, Results
from angzarr.delivery.compensation_runner import CompensationRunner
from angzarr.delivery.configuration import PinnedConfiguration
from angzarr.delivery.context import ContextTools
from angzarr.delivery.edited_copies import EditedCopies
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
from angzarr.runtime.cooperative import YieldingClock
from angzarr.runtime.processes import PeriodicThread
from angzarr.sagas.command_handlers import Chains, Reacting
from angzarr.sagas.compensating import Compensating
from angzarr.settings.body_encryption import BodyEncryption
from angzarr.settings.settings import Settings
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import event_store as books_wiring
from angzarr.wiring import fleet as fleet_wiring
from angzarr.wiring import payloads as payload_wiring
from angzarr.wiring import protection as protection_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.context import AppContext
from angzarr.wiring.costs import open_recorder
from angzarr.wiring.facts import open_facts
from angzarr.wiring.flow_control import guard_of

if TYPE_CHECKING:
    from angzarr.wiring.process import ProcessParts


def build_executor(parts: ProcessParts) -> DeliveryExecutor:
    """An executor with connections of its own; they open when first needed."""
    heed_cut(parts.context.stopping)
    wiring.guard_handlers()
    if protection_wiring.hiding(parts.context.settings.dlq) is not None:
        install_error_log()
    executor = _new_executor(parts, RetryUntilAvailable, CeleryPublisher(parts.celery))
    return replace(
        executor,
        poison_wave_breaker=_waves(parts, executor),
        closed=parts.context.stopping.closed,
    )


def _new_executor(
    parts: ProcessParts, hold_class: type[RetryUntilAvailable], publisher: CeleryPublisher
) -> DeliveryExecutor:
    context = parts.context
    clock = YieldingClock(SystemClock())
    hold = hold_class(clock=clock, chance=context.chance, stopping=context.stopping)
    hooks = Hooks((*context.hooks, *wiring.open_hooks(transport_of(parts.celery))))
    schedule = CelerySchedule(parts.celery, publisher, lambda: parts.schedule, clock)
    ordering = Ordering(
        lanes=lambda: parts.ordering.lanes,
        handlers=context.handlers,
        retry=hold,
        schedule=schedule,
        clock=clock,
        most_parked=context.settings.ordering.most_parked,
        late=lambda handler, behind: wiring.ordering_meters().handled(handler, behind),
    )
    settler = _settler(parts, schedule, ordering)
    judge = build_judge(context, clock)
    undoing = CompensationRunner(
        undos=context.undos,
        log=parts.claims.steps,
        failure_policy=judge,
        facts=settler.facts,
        retry=hold,
        here=hold_class is RetryUntilAvailable,
        time_over=TimeLimitExceeded,
    )
    in_place = InPlace(
        failure_policy=judge, stopping=context.stopping, time_limit=partial(_time_limit, parts)
    )
    results = Results(dumps=dumps, loads=loads)
    return DeliveryExecutor(
        handlers=context.handlers,
        claimer=Claimer(store=parts.claims.store, tenure=parts.tenure, retry=hold),
        ordering=ordering,
        bodies=_bodies(parts, judge, hold),
        admission=_admission(parts, judge),
        invoker=HandlerInvoker(results=results, failure_policy=judge, hooks=hooks),
        results=results,
        failure_policy=judge,
        clock=clock,
        context_tools=ContextTools(
            make_log=wiring.bound_logger(),
            make_breaker=partial(guard_of, context, lambda: parts.flow),
            costs=open_recorder(context, settler.facts, clock),
        ),
        in_place=in_place,
        configuration=PinnedConfiguration(
            reader=parts.configuration.get, pins=parts.claims.pins, retry=hold
        ),
        compensation_runner=undoing,
        last_starts=LastStarts(store=parts.claims.store, retry=hold),
        unsettled=UnsettledOutcomes(
            handlers=context.handlers,
            failure_policy=judge,
            compensation_runner=undoing,
            in_place=in_place,
        ),
        edited_copies=EditedCopies(bodies=parts.offloader.get(), retry=hold),
        settler=settler,
        retry=hold,
        hooks=hooks,
        most_starts=context.settings.most_starts,
    )


def open_schedule(context: AppContext) -> OpenSchedule:
    """The store of delays: beside the claims, or in this process if the broker is there too.

    A worker is refused where that is not shared by all who share the broker
    (`checks.check_servers`).
    """
    url = wiring.store_url(context.settings, context.broker_url)
    schedule: OpenSchedule
    if wiring.is_embedded(context.broker_url) or url.startswith("memory"):
        schedule = MemorySchedule()
    elif url.startswith("redis"):
        schedule = wiring.redis_schedule(url, context.settings.prefix)
    else:  # a copy is all that is left of its message: it must outlive a power cut
        sql = importlib.import_module("angzarr.adapters.sql.delivery.schedule")
        schedule = sql.SqlSchedule(wiring.sql_engine(url))
    return schedule


def build_salvage(parts: ProcessParts) -> UnreadableMessages:
    """The handling of damaged envelopes in a parent process; it opens when first needed."""
    clock, context = SystemClock(), parts.context
    return UnreadableMessages(
        letter_builder=_autopsy(context, clock),
        handlers=context.handlers,
        dead_letters=letter_wiring.open_dead_letters(context.settings, context.broker_url),
        facts=open_facts(context.settings, context.broker_url, lambda: parts.claims),
        clock=clock,
    )


def open_replay_outcomes(celery: Celery, settings: Settings) -> ReplayOutcomes:
    """The queue on which workers report how replays ended; signed where letters are."""
    queue = CeleryReplayOutcomes(celery, CeleryPublisher(celery), outcomes_queue(settings.prefix))
    return protection_wiring.believed(queue, settings.dlq)


def build_settlement(parts: ProcessParts) -> Settlement:
    """What a parent process does for its children, with an executor that does not wait."""
    publisher = SingleConnectionPublisher(parts.celery)
    executor = _new_executor(parts, TryOnce, publisher)
    return Settlement(parts.celery, executor, build_salvage(parts), publisher)


def build_chains(parts: ProcessParts) -> Chains:
    """The parts for deliveries of commands and notifications; they connect when first used."""
    context = parts.context
    clock, given = SystemClock(), context.settings.saga_compensation
    event_stores = books_wiring.open_event_stores(context.settings, context.broker_url)
    outbox, meters = parts.outbox, wiring.saga_meters()
    return Chains(
        books=event_stores.books,
        rejections=event_stores.rejections,
        decider=Decider(
            books=event_stores.books,
            aggregates=context.aggregates,
            clock=clock,
            chance=context.chance,
        ),
        compensating=Compensating(
            books=event_stores.books,
            log=event_stores.rejections,
            outbox=outbox,
            meters=meters,
            clock=clock,
            chance=context.chance,
            fallback=given.fallback(),
            domain=given.fallback_domain,
            shown=partial(protection_wiring.without_secrets, context.settings.dlq),
        ),
        outbox=outbox,
        meters=meters,
        clock=clock,
        max_depth=given.max_depth,
    )


def build_relay(parts: ProcessParts) -> Relay:
    """The relay that publishes decisions of processes that died."""
    event_stores = books_wiring.open_event_stores(parts.context.settings, parts.context.broker_url)
    event_stores.rejections.close()  # the last to close ends the connections
    return Relay(
        books=event_stores.books,
        publish=SingleConnectionEvents(
            parts.context, parts.routing.queue_for, SingleConnectionPublisher(parts.celery)
        ).publish,
        clock=SystemClock(),
        chance=parts.context.chance,
    )


def open_book_threads(parts: ProcessParts) -> list[PeriodicThread]:
    """Threads that publish decisions of processes that died, and forget old ones."""
    context = parts.context
    if not context.aggregates:
        return []
    pruning = books_wiring.open_pruning(context.settings, context.broker_url)
    return [
        PeriodicThread("angzarr-relay", lambda _stopping: build_relay(parts)),
        PeriodicThread("angzarr-pruning", lambda _stopping: pruning),
    ]


def build_reacting(parts: ProcessParts) -> Reacting:
    """The part that deliveries to sagas need."""
    given = parts.context.settings.saga_compensation
    return Reacting(outbox=parts.outbox, clock=SystemClock(), max_depth=given.max_depth)


def _waves(parts: ProcessParts, road: DeliveryExecutor) -> PoisonWaveBreaker | None:
    context = parts.context
    if not context.settings.poison_wave.enabled:
        return None
    return PoisonWaveBreaker(
        breakers=parts.flow.breakers,
        handlers=context.handlers,
        letter_builder=road.failure_policy.letter_builder,
        facts=road.settler.facts,
        clock=road.clock,
        # The parent of one that shares a flow store hears of the wave by that, and of its end.
        on_held=context.held_domains.hold if parts.flow.controls is None else None,
    )


def _admission(parts: ProcessParts, judge: FailurePolicy) -> Admission:
    context = parts.context
    return Admission(
        switch_gate=SwitchGate(
            switches=parts.flow.switches,
            domain=judge.letter_builder.domains.of_delivery,
            chance=context.chance,
        ),
        breakers=parts.flow.breakers,
        budgets=parts.flow.budgets,
        limits=parts.flow.limits,
        sleep=judge.clock.sleep,
        chance=context.chance,
    )


def _bodies(parts: ProcessParts, judge: FailurePolicy, hold: RetryUntilAvailable) -> BodyLoader:
    settings = parts.context.settings
    return BodyLoader(
        store=parts.payloads.get(),
        read=partial(read_stored, bounds=settings.message.bounds),
        loaded=tell_request,
        retry=hold,
        failure_policy=judge,
        most=settings.message.most_unpacked,
        keeps=protection_wiring.hides(settings.dlq),
        sealer=parts.sealer.get(),
    )


def build_offloader(parts: ProcessParts) -> BodyOffloader | None:
    """What stores bodies that are too large for the broker, and seals bodies.

    None: there is neither a store nor a key. With keys, what came encrypted goes on encrypted.
    """
    store, given = parts.payloads.get(), parts.context.settings.payloads
    encryption, sealer = given.body_encryption(), parts.sealer.get()
    if store is None and sealer is None:
        return None
    most = safe_size(parts.context.broker_url) if given.over is None else given.over
    context = parts.context
    return BodyOffloader(
        store,
        most,
        payload_wiring.registration(context.settings, context.broker_url),
        sealer=sealer,
        seals_stored=encryption is not BodyEncryption.NONE,
        seals_all=encryption is BodyEncryption.ALL,
    )


def _time_limit(parts: ProcessParts, name: str) -> timedelta | None:
    """The shorter of the time limits that Celery puts on the task *name*."""
    task = parts.celery.tasks.get(name)
    limits = [limit for limit in (task and task.time_limit, task and task.soft_time_limit) if limit]
    return timedelta(seconds=min(limits)) if limits else None


def build_judge(context: AppContext, clock: Clock) -> FailurePolicy:
    """The failure policy with the app's rules; it needs no server."""
    return FailurePolicy(
        letter_builder=_autopsy(context, clock),
        clock=clock,
        chance=context.chance,
        policies=context.policy_rules,
        rules=context.rules,
        verdicts=context.verdicts,
    )


def _autopsy(context: AppContext, clock: Clock) -> DeadLetterBuilder:
    return DeadLetterBuilder(
        clock=clock,
        component=context.main or "angzarr",
        worker=socket.gethostname(),
        version=fleet_wiring.release(),
        domains=_domains(context),
        hide=protection_wiring.hiding(context.settings.dlq),
    )


def _domains(context: AppContext) -> Domains:
    return Domains(
        read=frozenset(letter_wiring.domains_to_read(context)),
        of_queue=context.settings.dlq.queue_domains.get,
        default=letter_wiring.default_domain(context),
    )


def _settler(parts: ProcessParts, schedule: Schedule, ordering: Ordering) -> Settler:
    context = parts.context
    return Settler(
        schedule=schedule,
        followers=CeleryFollowers(parts.celery),
        dead_letters=letter_wiring.open_letterbox(context.settings, context.broker_url),
        replay_outcomes=open_replay_outcomes(parts.celery, context.settings),
        store=parts.claims.store,
        ordering=ordering,
        facts=open_facts(context.settings, context.broker_url, lambda: parts.claims),
        clock=ordering.clock,
        holders=parts.claims.holders,
        letters_hold=context.settings.payloads.url is not None,
    )
