"""What Celery's settings and time limits lose: transports, results, visibility, grace periods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Severity, Unsafe

_APP, _CRITICAL, _WARNING = Area.APP, Severity.CRITICAL, Severity.WARNING
#: What helps where only a road of our own does.
OURS: Final = (
    "make the app an angzarr.Angzarr (see 'Move a Celery project over'): from angzarr import"
    " Angzarr; app = Angzarr(…)"
)
#: Tasks that one finding names.
NAMED: Final = 5

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
REFUSED_QUEUES: Final = Check(
    id="transient-control-queues",
    area=_APP,
    severity=_WARNING,
    looks_at="control_queue_exclusive, event_queue_exclusive (RabbitMQ)",
    why="RabbitMQ 4.3 refuses queues that are neither durable nor exclusive: no worker starts"
    " there, and messages wait",
)

#: Seconds that a worker may wait for a result backend; ours waits 3 for an answer.
_LONGEST_RESULT_WAIT: Final = 10.0
CHECKS: Final = (
    EMBEDDED,
    KOMBU_REDIS,
    PREFETCH,
    BROKER_GIVEN_UP,
    PROTOCOL,
    RESULT_WAIT,
    RESULT_RPC,
    CLASSIC_DEFAULT,
    REFUSED_QUEUES,
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
    #: The scheme of the result backend; empty: results are not kept.
    result_backend: str = ""
    #: Seconds; None: as long as the kernel does.
    result_wait: float | None = 3.0
    #: ``control`` and ``event``, as their queues are neither durable nor exclusive.
    transient: Sequence[str] = ()
    #: Names of the queues that would be declared as classic ones; of RabbitMQ only.
    classic: Sequence[str] = ()


def findings(seen: CelerySeen) -> Iterator[Finding]:
    """The findings about settings of an app, besides those of `refusal_rules`."""
    yield from _transport(seen)
    yield from _worker(seen)
    yield from _results(seen)


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
    if seen.classic:
        yield CLASSIC_DEFAULT.found(
            f"{seen.at}, queues {', '.join(seen.classic[:NAMED])}",
            "declared as classic queues",
            'set task_default_queue_type = "quorum" and task_default_exchange_type = "topic", and'
            ' queue_arguments={"x-queue-type": "quorum"} for each of task_queues; a queue that'
            " exists must be emptied and deleted first",
        )

    for kind in seen.transient if seen.transport == "amqp" else ():
        yield REFUSED_QUEUES.found(
            seen.at,
            f"{kind}_queue_exclusive and {kind}_queue_durable are False",
            f"set {kind}_queue_exclusive = True, its default",
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


#: What RabbitMQ does unless it is told otherwise (consumer_timeout).
CONSUMER_TIMEOUT: Final = timedelta(minutes=30)
#: A worker of ours ends at most so long after its soft time-out.
AFTER_GRACE: Final = timedelta(seconds=2.5)

VISIBILITY: Final = Check(
    id="visibility-timeout",
    area=Area.APP,
    severity=Severity.ERROR,
    looks_at="visibility_timeout against time limits, and against delays that workers hold",
    why="a message that is held longer is delivered again while it is still held, and again after"
    " that",
)
CONSUMER: Final = Check(
    id="consumer-timeout",
    area=Area.RABBITMQ,
    severity=Severity.ERROR,
    looks_at="consumer_timeout (30 min) against time limits, and against delays that workers hold",
    why="RabbitMQ closes the channel of who holds a message longer, and all that it held comes"
    " again",
)
GRACE: Final = Check(
    id="grace-period",
    area=Area.APP,
    severity=Severity.ERROR,
    looks_at="--grace (terminationGracePeriodSeconds) against worker_soft_shutdown_timeout",
    why="Kubernetes kills the worker before it has given back what it holds: that comes again only"
    " when its lease or its visibility time-out ends",
)
GRACE_VISIBLE: Final = Check(
    id="grace-beyond-visibility",
    area=Area.APP,
    severity=Severity.ERROR,
    looks_at="--grace against visibility_timeout",
    why="a message becomes visible to others while the worker that stops may still run it",
)
TIME_CHECKS: Final = (VISIBILITY, CONSUMER, GRACE, GRACE_VISIBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesSeen:
    """Spans of a set-up; None is unknown, or none."""

    at: str
    #: After this time a broker redelivers an unacknowledged message; None: never.
    visibility: timedelta | None = None
    #: The longest that this can be set to; None: any time.
    most_visibility: timedelta | None = None
    #: Whether RabbitMQ is the broker.
    consumer_timeout: timedelta | None = None
    #: The longest hard time limit; None: some task has none.
    longest_run: timedelta | None = None
    #: The longest delay that a worker holds in hand, as far as it is known.
    longest_delay: timedelta | None = None
    soft_shutdown: timedelta = timedelta(0)
    #: How long a pod may take to end.
    grace: timedelta | None = None


def time_findings(seen: TimesSeen) -> Iterator[Finding]:
    """The findings about work that takes longer than its waiter waits."""
    if seen.visibility is not None:
        yield from _visibility(seen, seen.visibility)
    if seen.consumer_timeout is not None:
        yield from _consumer(seen, seen.consumer_timeout)
    if seen.grace is not None:
        yield from _grace(seen, seen.grace)


def _visibility(seen: TimesSeen, visible: timedelta) -> Iterator[Finding]:
    for what, span in (("delay", seen.longest_delay), ("time limit", seen.longest_run)):
        if span is not None and span >= visible:
            yield VISIBILITY.found(
                seen.at,
                f"visibility_timeout {_said(visible)}, the longest {what} {_said(span)}",
                _longer(what, span, seen.most_visibility),
            )
    if seen.longest_run is None:
        yield VISIBILITY.found(
            seen.at,
            f"visibility_timeout {_said(visible)}, and tasks without a time limit",
            "set task_time_limit below it, or a visibility_timeout beyond the longest task",
            severity=Severity.WARNING,
        )


def _longer(what: str, span: timedelta, most: timedelta | None) -> str:
    if most is not None and span >= most:
        return f"make the {what} shorter: {_said(most)} is the most that the broker waits"
    seconds = round(min(span * 2, most or timedelta.max).total_seconds())
    return (
        f"set broker_transport_options = {{'visibility_timeout': {seconds}}}, on all workers alike"
    )


def _consumer(seen: TimesSeen, patience: timedelta) -> Iterator[Finding]:
    for what, span in (("delay", seen.longest_delay), ("time limit", seen.longest_run)):
        if span is not None and span >= patience:
            yield CONSUMER.found(
                seen.at,
                f"consumer_timeout {_said(patience)}, the longest {what} {_said(span)}",
                f"set consumer_timeout = {round(span.total_seconds() * 2000)} in rabbitmq.conf, or"
                " x-consumer-timeout on the queue",
            )
    if seen.longest_run is None:
        yield CONSUMER.unknown(
            seen.at,
            "tasks without a time limit; RabbitMQ does not tell its consumer_timeout",
            "see that no task runs longer than `rabbitmqctl environment | grep consumer_timeout`"
            " (30 min by default), e.g. by task_time_limit",
        )


def _grace(seen: TimesSeen, grace: timedelta) -> Iterator[Finding]:
    least = seen.soft_shutdown + AFTER_GRACE
    if grace <= least:
        yield GRACE.found(
            seen.at,
            f"grace {_said(grace)}, and a worker needs up to {_said(least)}",
            f"set terminationGracePeriodSeconds above {_said(least)} plus preStop, or"
            " soft_shutdown_timeout lower",
        )
    if seen.visibility is not None and grace >= seen.visibility:
        yield GRACE_VISIBLE.found(
            seen.at,
            f"grace {_said(grace)}, visibility_timeout {_said(seen.visibility)}",
            "set visibility_timeout above terminationGracePeriodSeconds",
        )


def _said(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"
