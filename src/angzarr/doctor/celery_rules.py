"""What settings of Celery's lose: acknowledgements, serializers, confirms, transports, delays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Severity
from angzarr.doctor.unsafe import Unsafe

_APP, _CRITICAL, _WARNING = Area.APP, Severity.CRITICAL, Severity.WARNING
#: What helps where only a road of our own does.
OURS: Final = (
    "make the app an angzarr.Angzarr (see 'Move a Celery project over'): from angzarr import"
    " Angzarr; app = Angzarr(…)"
)
#: Tasks that one finding names.
_NAMED: Final = 5

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
    looks_at="task_serializer, result_serializer, accept_content",
    why="whoever may write to the broker has a worker run any code, with all messages in its reach",
)
UNCONFIRMED: Final = Check(
    id="unconfirmed-publishes",
    area=_APP,
    severity=_CRITICAL,
    looks_at="broker_transport_options: confirm_publish (RabbitMQ)",
    why="a publish returns before RabbitMQ has the message: one that was on its way is gone and"
    " nobody is told",
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
TRANSIENT: Final = Check(
    id="transient-messages",
    area=_APP,
    severity=_CRITICAL,
    looks_at="task_default_delivery_mode (RabbitMQ)",
    why="RabbitMQ keeps the messages in memory only: a restart loses all that wait",
)
EMBEDDED: Final = Check(
    id="embedded-broker",
    area=_APP,
    severity=_CRITICAL,
    looks_at="broker_url",
    why="the queue lives in one process: what waits dies with it",
)
KOMBU_REDIS: Final = Check(
    id="kombu-redis-transport",
    area=_APP,
    severity=_CRITICAL,
    looks_at="the broker's transport, redis_transport",
    why="kombu pops a message and writes it down in a second step: a worker killed between the two"
    " loses it, late acknowledgement or not",
)
PREFETCH: Final = Check(
    id="prefetch",
    area=_APP,
    severity=_WARNING,
    looks_at="worker_prefetch_multiplier",
    why="messages wait behind a long task in one worker while others are idle, and all of them come"
    " again, and count as delivered, when it dies",
)
BROKER_GIVEN_UP: Final = Check(
    id="broker-given-up",
    area=_APP,
    severity=_WARNING,
    looks_at="broker_connection_max_retries",
    why="after an outage of that many tries the worker ends, and its queue stands until somebody"
    " starts it again",
)
PROTOCOL: Final = Check(
    id="old-protocol",
    area=_APP,
    severity=_WARNING,
    looks_at="task_protocol",
    why="messages of protocol 1 carry no headers: no attempt, root or time survives a retry",
)
RESULT_WAIT: Final = Check(
    id="result-backend-wait",
    area=_APP,
    severity=_WARNING,
    looks_at="result_backend, redis_socket_timeout",
    why="a result backend that does not answer holds each worker process that long after every"
    " task, and messages wait",
)
RESULT_RPC: Final = Check(
    id="result-backend-rpc",
    area=_APP,
    severity=_WARNING,
    looks_at="result_backend",
    why="results are messages to the process that asked: they are gone when it is, and chords do"
    " not work",
)
CLASSIC_DEFAULT: Final = Check(
    id="classic-by-default",
    area=_APP,
    severity=_WARNING,
    looks_at="task_default_queue_type, task_queues (RabbitMQ)",
    why="a classic queue lives on one node: its messages are away, or gone, with that node",
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
    "broker_transport_options": UNCONFIRMED,
    "broker_native_delayed_delivery_queue_type": DELAY_UNCONFIRMED,
    "worker_consumer": UNREADABLE_DROPPED,
    "broker_url": KAFKA_BROKER,
    "task_always_eager": EAGER,
}
#: Seconds that a worker may wait for a result backend; ours waits 3 for an answer.
_LONGEST_RESULT_WAIT: Final = 10.0
_PERSISTENT: Final = 2
CHECKS: Final = (
    *dict.fromkeys(_OF_SETTING.values()),
    TRANSIENT,
    EMBEDDED,
    KOMBU_REDIS,
    PREFETCH,
    BROKER_GIVEN_UP,
    PROTOCOL,
    RESULT_WAIT,
    RESULT_RPC,
    CLASSIC_DEFAULT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CelerySeen:
    """The settings of a Celery app, as they are in force."""

    #: How findings name the app.
    at: str
    #: Whether it is an Angzarr app.
    ours: bool = True
    #: kombu's driver type: ``amqp``, ``redis``, ``sqs``, ``memory``, in small letters.
    transport: str
    unsafe: Sequence[Unsafe] = ()
    #: Whether a hard time limit is set, of all tasks or of one; a worker's option may set one too.
    time_limited: bool = True
    #: Whether its Redis transport is kombu's own.
    kombus_redis: bool = False
    prefetch: int = 1
    #: None: it never gives its broker up.
    connection_tries: int | None = None
    protocol: int = 2
    delivery_mode: int = _PERSISTENT
    #: The scheme of the result backend; empty: results are not kept.
    result_backend: str = ""
    #: Seconds; None: as long as the kernel does.
    result_wait: float | None = 3.0
    #: Names of the queues that would be declared as classic ones; of RabbitMQ only.
    classic: Sequence[str] = ()


def findings(seen: CelerySeen) -> Iterator[Finding]:
    """Return what the settings of an app lose."""
    yield from _refused(seen)
    yield from _transport(seen)
    yield from _worker(seen)
    yield from _results(seen)


def _refused(seen: CelerySeen) -> Iterator[Finding]:
    """Return what a worker of ours would refuse to start with, one finding for each setting."""
    of_all = {_OF_SETTING[one.setting] for one in seen.unsafe if not one.task}
    of_tasks: dict[str, list[Unsafe]] = {}
    for one in seen.unsafe:
        if not one.task:
            yield _OF_SETTING[one.setting].found(
                seen.at, one.problem, _change(seen, one), severity=_severity(seen, one)
            )
        elif _OF_SETTING[one.setting] not in of_all:
            of_tasks.setdefault(one.setting, []).append(one)
    for setting, those in of_tasks.items():
        more = f" and {len(those) - _NAMED} more" if len(those) > _NAMED else ""
        named = ", ".join(one.task for one in those[:_NAMED])
        yield _OF_SETTING[setting].found(
            f"{seen.at}, tasks {named}{more}",
            f"{setting}=False",
            f"remove {setting}=False from the tasks' decorators",
        )


def _severity(seen: CelerySeen, one: Unsafe) -> Severity | None:
    """Return a milder severity where the setting matters to nothing that is seen; else None."""
    idle = one.setting == "task_acks_on_timeout" and not seen.time_limited
    return _WARNING if idle else None


def _change(seen: CelerySeen, one: Unsafe) -> str:
    """Return the line to write, as the settings have it."""
    if one.setting == "worker_consumer" and not seen.ours:
        return OURS
    for said in ("set it to ", "set "):
        if one.cure.startswith(said):
            return f"set {one.setting} = {one.cure.removeprefix(said)}"
    return one.cure if one.setting == "broker_url" else f"mend {one.setting}: {one.cure}"


def _transport(seen: CelerySeen) -> Iterator[Finding]:
    if seen.transport in ("memory", "filesystem"):
        yield EMBEDDED.found(
            seen.at,
            f"the broker is {seen.transport}://",
            "set broker to redis://…, amqp://… or sqs://…, for all but tests and a first look",
        )
    if seen.kombus_redis:
        change = "set redis_transport: angzarr"
        if not seen.ours:
            change = f"{OURS}; its transport hands a message over in one step"
        yield KOMBU_REDIS.found(seen.at, "kombu's own Redis transport", change)
    if seen.transport == "amqp" and seen.delivery_mode != _PERSISTENT:
        yield TRANSIENT.found(
            seen.at,
            f"task_default_delivery_mode = {seen.delivery_mode}",
            'set task_default_delivery_mode = "persistent"',
        )
    if seen.classic:
        yield CLASSIC_DEFAULT.found(
            f"{seen.at}, queues {', '.join(seen.classic[:_NAMED])}",
            "declared as classic queues",
            'set task_default_queue_type = "quorum" and task_default_exchange_type = "topic", and'
            ' queue_arguments={"x-queue-type": "quorum"} for each of task_queues; a queue that'
            " exists must be emptied and deleted first",
        )


def _worker(seen: CelerySeen) -> Iterator[Finding]:
    if seen.prefetch != 1:
        yield PREFETCH.found(
            seen.at,
            f"worker_prefetch_multiplier = {seen.prefetch}",
            "set worker_prefetch_multiplier = 1",
        )
    if seen.connection_tries is not None:
        yield BROKER_GIVEN_UP.found(
            seen.at,
            f"broker_connection_max_retries = {seen.connection_tries}",
            "set broker_connection_max_retries = None",
        )
    if seen.protocol != 2:  # noqa: PLR2004 - Celery's number
        yield PROTOCOL.found(
            seen.at, f"task_protocol = {seen.protocol}", "set task_protocol = 2, its default"
        )


def _results(seen: CelerySeen) -> Iterator[Finding]:
    wait = seen.result_wait
    if seen.result_backend.startswith("redis") and (wait is None or wait > _LONGEST_RESULT_WAIT):
        yield RESULT_WAIT.found(
            seen.at,
            f"redis_socket_timeout = {wait}",
            "set redis_socket_timeout = 3 and redis_socket_connect_timeout = 2",
        )
    if seen.result_backend == "rpc":
        yield RESULT_RPC.found(
            seen.at,
            "result_backend is rpc://",
            'set result_backend = "redis://…" or another that is shared, or leave it out',
        )
