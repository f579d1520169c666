"""The analysis worker as a process: wired from the app, stopped by a signal."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from angzarr.adapters.celery.publish.publisher import refuses
from angzarr.analysis.alerts.alert_raiser import ForgottenWatches
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.ledger.emergency_stop import (
    asleep,
    why_not_at_all,
    why_not_by_itself,
    why_not_now,
)
from angzarr.analysis.ledger.payload_upkeep import LettersBodies, UnneededBodies
from angzarr.analysis.ledger.upkeep import ClosedEntries, EntryRetention, ended_jobs
from angzarr.analysis.replay.compensation import Compensator
from angzarr.analysis.replay.editor import Editor
from angzarr.analysis.replay.job_runner import JobRunner, TargetPhases
from angzarr.analysis.replay.job_store import ReplayJobs
from angzarr.analysis.replay.replay import Replayer
from angzarr.analysis.replay.skip import Skips
from angzarr.analysis.worker.auto_replay import AutoReplay
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.due_entries import DueEntries
from angzarr.analysis.worker.intake import Handover, Intake, ReplayResults
from angzarr.analysis.worker.worker import AnalysisHealth, AnalysisWorker
from angzarr.clock import SystemClock
from angzarr.errors import ConfigurationError, Unavailable
from angzarr.facts.act import ActOrigin, acting_from
from angzarr.fleet import running_releases
from angzarr.maintenance.retention import Pruning, Removal
from angzarr.payloads.store import PayloadReadLimit
from angzarr.runtime.chance import chance
from angzarr.settings.base import HealthSettings
from angzarr.wiring.fact_store import open_fact_pruning
from angzarr.wiring.operations import Operations
from angzarr.wiring.payloads import payload_meters
from angzarr.wiring.telemetry import open_health

if TYPE_CHECKING:
    from angzarr.adapters.sql.replay_jobs.store import SqlReplayJobs


@contextmanager
def open_worker(ops: Operations, domains: Sequence[str]) -> Iterator[AnalysisWorker]:
    """Build the app's analysis worker; what it holds goes back when the block is left."""
    settings = ops.settings.analysis
    with ExitStack() as doors:
        doors.enter_context(acting_from(ActOrigin.AUTOMATIC))
        follow_clock(ops, doors)
        queue = ops.open_dead_letter_queue()
        doors.callback(queue.close)
        outcomes = ops.open_replay_outcomes()
        doors.callback(outcomes.close)
        replayer = open_replayer(ops, doors, shows=False)
        if (forwarder := ops.open_forwarder_thread()) is not None:
            forwarder.start()
            doors.callback(forwarder.end)
        jobs = ops.open_replay_jobs()
        doors.callback(jobs.close)
        act_relay = ops.open_act_relay()
        threads = (
            act_relay,
            *ops.open_alert_threads(),
            ops.open_depth_thread(),
            open_fact_pruning(ops.settings, ops.broker_url),
        )
        for thread in threads:
            if thread is not None:
                thread.start()
                doors.callback(thread.end)
        name = f"analysis@{socket.gethostname()}:{os.getpid()}"
        classifier = ops.dlq_classifier(chance)
        deciding = DecisionMaker(
            ledger=replayer.ledger,
            gathering=open_gathering(ops, replayer, doors),
            classify=classifier,
            name=name,
            owners=jobs.owners,
        )
        intake = Intake(
            queue=queue,
            deciding=deciding,
            clock=replayer.clock,
            domains=domains,
            group=ops.settings.analysis.letter_grouping(),
            bounds=ops.settings.dlq.bounds,
            handover=_handover(ops, deciding, doors),
        )
        brake, quiet = ops.open_brake(), settings.automatic.quiet()
        doors.callback(brake.close)

        def barred() -> str:
            return why_not_by_itself(brake.state(), quiet, replayer.clock.now())

        runner = JobRunner(
            work=jobs,
            replayer=replayer,
            target=TargetPhases(look=deciding.gathering.breakers),
            barred=lambda: why_not_at_all(brake.state(), replayer.clock.now()),
            barred_by_itself=barred,
            unattended=classifier.unattended,
            most_replays=settings.most_replays,
            most_by_itself=min(settings.max_replays, settings.most_replays),
            engine=uuid.uuid4().hex,
            worker=name,
        )

        yield AnalysisWorker(
            duties=(
                intake,
                ReplayResults(outcomes=outcomes, ledger=replayer.ledger),
                DueEntries(
                    ledger=replayer.ledger,
                    deciding=deciding,
                    replayer=replayer,
                    compensator=open_compensator(ops, replayer),
                    skips=Skips(replayer=replayer),
                    asleep=lambda: asleep(brake.state(), quiet, replayer.clock.now()),
                    refuses=refuses,
                ),
                *_recovery(ops, deciding, jobs, barred, doors),
                runner,
                *_pruning(ops, replayer, jobs, doors),
            ),
            name=name,
            chance=chance,
            facts_say=act_relay.relay.trouble,
        )


def follow_clock(ops: Operations, doors: ExitStack) -> None:
    """Go by the fleet's clock until *doors* close: what workers dated is judged by it."""
    if (thread := ops.open_clock_thread()) is not None:
        thread.turn()  # before anything is judged
        thread.start()
        doors.callback(thread.end)


def serve_health(
    settings: HealthSettings, worker: AnalysisWorker, stop: threading.Event, doors: ExitStack
) -> None:
    """Answer probes until *doors* close, where *settings* name a port."""
    patience = settings.stalled_after.total_seconds()
    health = AnalysisHealth(worker, stalled_after=patience, stopping=stop.is_set)
    if (server := open_health(settings, health)) is not None:
        server.start()
        doors.callback(server.end)


def _recovery(
    ops: Operations,
    deciding: DecisionMaker,
    jobs: ReplayJobs,
    barred: Callable[[], str],
    doors: ExitStack,
) -> list[AutoReplay]:
    """The duty that replays held groups automatically; none where the settings turn it off."""
    settings = ops.settings.analysis
    if not settings.automatic.recovery:
        return []
    groups = ops.open_groups()
    doors.callback(groups.close)
    return [
        AutoReplay(
            ledger=deciding.ledger,
            groups=groups,
            jobs=jobs,
            deciding=deciding,
            clock=SystemClock(),
            barred=barred,
            running=partial(_running, ops),
            most_replays=min(settings.max_replays, settings.most_replays),
            approval_over=settings.approvals.jobs_over,
        )
    ]


def _handover(ops: Operations, deciding: DecisionMaker, doors: ExitStack) -> Handover:
    """The duty that gives other apps their letters, over connections of its own."""
    queue = ops.open_dead_letter_queue()
    doors.callback(queue.close)
    return Handover(queue=queue, deciding=deciding, others=ops.other_apps())


def _pruning(
    ops: Operations, replayer: Replayer, jobs: SqlReplayJobs, doors: ExitStack
) -> list[Pruning]:
    """The duties that remove rows past their retention."""
    settings = ops.settings.analysis
    groups, alerts = ops.open_groups(), ops.open_alerts()
    for one in (groups, alerts):
        doors.callback(one.close)
    removals: tuple[Removal, ...] = (
        ClosedEntries(
            ledger=replayer.ledger,
            retention=EntryRetention(closed=settings.keep_closed, archived=settings.keep_archived),
        ),
        ended_jobs(jobs, settings.keep_jobs),
        ForgottenWatches(alerts=alerts, groups=groups, jobs=jobs),
        *_payload_removals(ops, doors),
    )
    return [Pruning(removal=one, clock=replayer.clock) for one in removals]


def _payload_removals(ops: Operations, doors: ExitStack) -> list[Removal]:
    """What deletes unneeded bodies; nothing where there is no payload store, or no claims."""
    try:
        collector = ops.open_payload_collector()
    except ConfigurationError:
        return []
    doors.callback(collector.close)
    released = ops.open_released_payloads()
    doors.callback(released.close)
    holders = ops.payload_holders()
    return [LettersBodies(released, holders), UnneededBodies(collector, payload_meters())]


def _running(ops: Operations, handler: str) -> str:
    """Name the releases that run *handler* now; empty where that is unknown."""
    try:
        return ", ".join(sorted(running_releases(ops.fleet().members(), handler)))
    except (Unavailable, ConfigurationError):
        return ""


def open_replayer(ops: Operations, doors: ExitStack, *, shows: bool = True) -> Replayer:
    """The replayer of the app's entries; *shows*: payloads, so not of any size."""
    ledger = ops.open_ledger()
    doors.callback(ledger.close)
    if payloads := ops.open_payload_store():
        doors.callback(payloads.close)
        if shows:
            payloads = PayloadReadLimit(payloads, ops.settings.dlq.payloads.largest_opened)
    return Replayer(
        ledger=ledger,
        publisher=ops.open_publisher(),
        targets=ops.replay_targets(),
        clock=SystemClock(),
        answer_deadline=ops.settings.analysis.answer_deadline,
        payloads=payloads,
        bodies=ops.sealed_letters(),
    )


def open_compensator(
    ops: Operations, replayer: Replayer, barred: Callable[[], str] = lambda: ""
) -> Compensator:
    """The compensator of the app's entries; for people with what `open_barred` returned."""
    return Compensator(
        ledger=replayer.ledger,
        replayer=replayer,
        compensations=ops.compensations(),
        barred=barred,
    )


def open_skips(ops: Operations, doors: ExitStack) -> Skips:
    """The service that lets the events behind entries go on that people close."""
    replayer = open_replayer(ops, doors, shows=False)
    return Skips(replayer=replayer, barred=open_barred(ops, doors))


def open_editor(ops: Operations, replayer: Replayer) -> Editor:
    """The editor of the app's entries."""

    def decoder(task: str) -> Callable[[Any], Any] | None:
        handler = ops.find_handler(task)
        return handler.decode if handler else None

    return Editor(replayer=replayer, decoder=decoder, protect=ops.letter_protection())


def open_barred(ops: Operations, doors: ExitStack) -> Callable[[], str]:
    """A function that says why people may have nothing sent now; it asks the brake each time."""
    brake = ops.open_brake()
    doors.callback(brake.close)
    return lambda: why_not_now(brake.state(), SystemClock().now())


def open_gathering(ops: Operations, replayer: Replayer, doors: ExitStack) -> EvidenceCollector:
    """The collector of all evidence about the app's failures."""
    gathering = ops.open_gathering(replayer)
    doors.callback(gathering.peers.close)
    return gathering


@contextmanager
def stopped_by_signal(*others: signal.Signals) -> Iterator[threading.Event]:
    """Give an event that SIGTERM, SIGINT and *others* set; a second acts as it did before."""
    stop = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT, *others)
    before = {number: signal.getsignal(number) for number in numbers}

    def handle(_number: int, _frame: object) -> None:
        stop.set()
        _restore()

    def _restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        _restore()


def person() -> str:
    """The user at the keyboard, for the audit: the owner of the process, whatever LOGNAME says."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"
