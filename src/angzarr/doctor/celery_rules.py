"""What settings of Celery's lose: acknowledgements, serializers, confirms, transports, delays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Return what the settings of an app cost, besides what `refusal_rules` tells."""
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
