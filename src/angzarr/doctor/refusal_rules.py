"""What a worker refuses to start with, and what a Celery app without angzarr loses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from angzarr.doctor.celery_rules import NAMED, OURS, CelerySeen
from angzarr.doctor.finding import Area, Check, Finding, Severity, Unsafe

_APP, _CRITICAL, _WARNING = Area.APP, Severity.CRITICAL, Severity.WARNING

ACKS_EARLY: Final = Check(
    id="acks-early",
    area=_APP,
    severity=_CRITICAL,
    looks_at="task_acks_late, and acks_late of each task",
    why="a worker that dies amid a task has acknowledged its message: it is gone",
)
CHILD_LOST: Final = Check(
    id="lost-child-acked",
    area=_APP,
    severity=_CRITICAL,
    looks_at="task_reject_on_worker_lost, and that of each task",
    why="the message of a child that was killed, say for its memory, is acknowledged: it is gone",
)
TIMEOUT_ACKED: Final = Check(
    id="timeout-acked",
    area=_APP,
    severity=_CRITICAL,
    looks_at="task_acks_on_timeout, task_acks_on_failure_or_timeout",
    why="a task that its hard time limit kills is acknowledged half done: it is gone",
)
FAILURE_REJECTED: Final = Check(
    id="failure-rejected",
    area=_APP,
    severity=_CRITICAL,
    looks_at="task_acks_on_failure",
    why="a failed task is rejected: gone on Redis and SQS, and on RabbitMQ without a dead-letter"
    " exchange",
)
SERIALIZER: Final = Check(
    id="unsafe-serializer",
    area=_APP,
    severity=_CRITICAL,
    looks_at="task_serializer, result_serializer, accept_content, result_accept_content",
    why="anyone who may write to the broker can run any code in a worker, near all messages",
)
TRANSIENT: Final = Check(
    id="transient-messages",
    area=_APP,
    severity=_CRITICAL,
    looks_at="task_default_delivery_mode, and delivery_mode of each task (RabbitMQ)",
    why="RabbitMQ keeps the messages in memory only: a restart loses all that wait",
)
UNCONFIRMED: Final = Check(
    id="unconfirmed-publishes",
    area=_APP,
    severity=_CRITICAL,
    looks_at="broker_transport_options: confirm_publish (RabbitMQ)",
    why="a publish returns before RabbitMQ has the message: one that was on its way is silently"
    " gone",
)
DELAY_UNCONFIRMED: Final = Check(
    id="delay-unconfirmed",
    area=_APP,
    severity=_CRITICAL,
    looks_at="broker_native_delayed_delivery_queue_type (RabbitMQ)",
    why="a delayed message is handed from queue to queue without a confirm, and can vanish on its"
    " way",
)
UNREADABLE_DROPPED: Final = Check(
    id="unreadable-dropped",
    area=_APP,
    severity=_CRITICAL,
    looks_at="worker_consumer",
    why="what Celery's consumer cannot read, or has no task for, is acknowledged or rejected: gone,"
    " with a log line",
)
KAFKA_BROKER: Final = Check(
    id="kafka-broker",
    area=_APP,
    severity=_CRITICAL,
    looks_at="broker_url",
    why="an acknowledgement commits everything that was polled before it, also what still runs",
)
EAGER: Final = Check(
    id="eager-tasks",
    area=_APP,
    severity=_CRITICAL,
    looks_at="task_always_eager",
    why="tasks run in the process that publishes and are in no queue: what fails there is gone",
)
OFF_ROAD: Final = Check(
    id="task-off-road",
    area=_APP,
    severity=_CRITICAL,
    looks_at="the class, Request and Strategy of each task",
    why="what a task's own class settles is never claimed, tried again or made a dead letter: where"
    " it fails it is gone",
)

#: Which check a setting that a worker refuses belongs to.
_OF_SETTING: Final[Mapping[str, Check]] = {
    "task_acks_late": ACKS_EARLY,
    "acks_late": ACKS_EARLY,
    "task_reject_on_worker_lost": CHILD_LOST,
    "reject_on_worker_lost": CHILD_LOST,
    "task_acks_on_timeout": TIMEOUT_ACKED,
    "task_acks_on_failure": FAILURE_REJECTED,
    "task_serializer": SERIALIZER,
    "result_serializer": SERIALIZER,
    "accept_content": SERIALIZER,
    "result_accept_content": SERIALIZER,
    "task_default_delivery_mode": TRANSIENT,
    "delivery_mode": TRANSIENT,
    "broker_transport_options": UNCONFIRMED,
    "broker_native_delayed_delivery_queue_type": DELAY_UNCONFIRMED,
    "worker_consumer": UNREADABLE_DROPPED,
    "broker_url": KAFKA_BROKER,
    "task_always_eager": EAGER,
    "road": OFF_ROAD,
}
CHECKS: Final = tuple(dict.fromkeys(_OF_SETTING.values()))


def findings(seen: CelerySeen) -> Iterator[Finding]:
    """The settings with which a worker of ours would refuse to start, each a finding."""
    of_all = {_OF_SETTING[one.setting] for one in seen.unsafe if not one.task}
    of_tasks: dict[str, list[Unsafe]] = {}
    for one in seen.unsafe:
        if not one.task:
            yield _OF_SETTING[one.setting].found(
                seen.at, one.problem, _change(seen, one), severity=_severity(seen, one)
            )
        elif one.setting == "road":
            yield OFF_ROAD.found(f"{seen.at}, task {one.task}", one.problem, one.cure)
        elif _OF_SETTING[one.setting] not in of_all:
            of_tasks.setdefault(one.setting, []).append(one)
    for setting, those in of_tasks.items():
        more = f" and {len(those) - NAMED} more" if len(those) > NAMED else ""
        named = ", ".join(one.task for one in those[:NAMED])
        said = those[0].problem.partition(" has ")[2] or f"{setting}=False"
        yield _OF_SETTING[setting].found(
            f"{seen.at}, tasks {named}{more}", said, f"remove {said} from the tasks' decorators"
        )


def _severity(seen: CelerySeen, one: Unsafe) -> Severity | None:
    """A milder severity where the setting matters to nothing that is seen; else None."""
    idle = one.setting == "task_acks_on_timeout" and not seen.time_limited
    return _WARNING if idle else None


def _change(seen: CelerySeen, one: Unsafe) -> str:
    """The line to write, as the settings have it."""
    if one.setting == "worker_consumer" and not seen.ours:
        return OURS
    for said in ("set it to ", "set "):
        if one.cure.startswith(said):
            return f"set {one.setting} = {one.cure.removeprefix(said)}"
    if one.setting == "task_always_eager":
        return f"set task_always_eager = False: {one.cure}"
    return one.cure if one.setting == "broker_url" else f"fix {one.setting}: {one.cure}"


_APP, _CRITICAL, _WARNING = Area.APP, Severity.CRITICAL, Severity.WARNING

NO_LETTERS: Final = Check(
    id="no-dead-letters",
    area=_APP,
    severity=_CRITICAL,
    looks_at="whether a failed task's message is kept anywhere",
    why="a task that fails for the last time is acknowledged and kept nowhere: its message is gone",
)
RETRY_DROPS: Final = Check(
    id="retry-drops",
    area=_APP,
    severity=_CRITICAL,
    looks_at="tasks with autoretry_for, and whether a task's code calls retry",
    why="Task.retry publishes a copy, and if the broker does not take that it rejects the message:"
    " gone",
)
POISON: Final = Check(
    id="poison-loops",
    area=_APP,
    severity=_WARNING,
    looks_at="task_reject_on_worker_lost without a count of starts",
    why="a message that kills its process comes back for ever and holds up all behind it",
)
TWICE: Final = Check(
    id="runs-twice",
    area=_APP,
    severity=_WARNING,
    looks_at="task_acks_late without claims",
    why="a message that comes again, as late acknowledgement makes it, has its effects twice",
)
HELD_IN_MEMORY: Final = Check(
    id="delays-in-memory",
    area=_APP,
    severity=_WARNING,
    looks_at="how the broker holds countdown, eta and retries; worker_eta_task_limit",
    why="delayed messages lie in the memory of a worker, beyond its prefetch limit, until it runs"
    " out of memory",
)
NO_GRACE: Final = Check(
    id="no-soft-shutdown",
    area=_APP,
    severity=_WARNING,
    looks_at="worker_soft_shutdown_timeout",
    why="SIGTERM waits for every running task however long, until Kubernetes kills the worker amid"
    " them",
)
UNROUTABLE: Final = Check(
    id="unroutable-dropped",
    area=_APP,
    severity=_WARNING,
    looks_at="whether publishes are mandatory (RabbitMQ)",
    why="a message that no queue is bound for is confirmed and dropped",
)
STOCK_CHECKS: Final = (NO_LETTERS, RETRY_DROPS, POISON, TWICE, HELD_IN_MEMORY, NO_GRACE, UNROUTABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StockSeen:
    """A Celery app that is not ours."""

    at: str
    #: As in `CelerySeen`.
    transport: str
    #: Tasks with automatic retries, or whose code names ``retry``.
    retrying: Sequence[str] = ()
    acks_late: bool = False
    reject_on_worker_lost: bool = False
    #: Whether failures are rejected, and every queue of the app has a dead-letter exchange.
    dead_letter_exchange: bool = False
    #: Whether RabbitMQ itself holds delays: quorum queues behind exchanges that are not direct.
    native_delays: bool = False
    #: None: a worker takes as many as there are.
    eta_limit: int | None = None
    #: Seconds; 0: there is none.
    soft_shutdown: float = 0.0


def stock_findings(seen: StockSeen) -> Iterator[Finding]:
    """The findings about an app that runs on Celery alone."""
    if not seen.dead_letter_exchange:
        yield NO_LETTERS.found(seen.at, "no queue takes what failed", OURS)
    if seen.retrying:
        named = ", ".join(sorted(seen.retrying)[:5])
        yield RETRY_DROPS.found(f"{seen.at}, tasks {named}", "they retry by Task.retry", OURS)
    if seen.reject_on_worker_lost:
        yield POISON.found(
            seen.at,
            "starts are not counted",
            f"{OURS}; or on RabbitMQ use quorum queues with x-delivery-limit and a dead-letter"
            " exchange",
        )
    if seen.acks_late:
        yield TWICE.found(seen.at, "nothing remembers what was handled", OURS)
    if not seen.native_delays and seen.eta_limit is None:
        yield HELD_IN_MEMORY.found(
            seen.at,
            "delays are held by workers, without a limit",
            f"{OURS}; or set worker_eta_task_limit = 1000",
        )
    if not seen.soft_shutdown:
        yield NO_GRACE.found(
            seen.at,
            "worker_soft_shutdown_timeout = 0",
            "set worker_soft_shutdown_timeout = 7.5 and, in the worker's environment,"
            " REMAP_SIGTERM=SIGQUIT",
        )
    if seen.transport == "amqp":
        yield UNROUTABLE.found(
            seen.at, "publishes are not mandatory", f"{OURS}; or pass mandatory=True to each"
        )
