"""What RabbitMQ loses: queues that drop, exchanges that lead elsewhere, delays without confirms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Fix, Severity

#: The fix: declares the queues as a worker does.
DECLARE_DELAYS: Final = "rabbitmq-declare-delays"
#: How RabbitMQ's management interface is named to the doctor.
MANAGEMENT: Final = "--management http://user:password@host:15672"
_RABBITMQ, _CRITICAL, _ERROR = Area.RABBITMQ, Severity.CRITICAL, Severity.ERROR

NO_DELAYS: Final = Check(
    id="delay-queues-missing",
    area=_RABBITMQ,
    severity=_ERROR,
    looks_at="the queues celery_delayed_0 to 27, where the app uses RabbitMQ's own delays",
    why="an app declares them when it first uses them, if none is there; where some are missing, or"
    " a plain Celery app sends, a delayed message is refused or gets stuck",
    fixable=True,
)
WEAK_DELAYS: Final = Check(
    id="delay-queues-weak",
    area=_RABBITMQ,
    severity=_CRITICAL,
    looks_at="types and arguments of celery_delayed_0 to 27",
    why="a delayed message is handed on without a confirm, and can vanish between two queues",
)
ORPHANED: Final = Check(
    id="delay-queues-orphaned",
    area=_RABBITMQ,
    severity=_CRITICAL,
    looks_at="messages in celery_delayed_0 to 27, and who is bound to celery_delayed_delivery",
    why="a delayed message whose time comes is for no queue: RabbitMQ drops it",
)
DELAY_CHECKS: Final = (NO_DELAYS, WEAK_DELAYS, ORPHANED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysSeen:
    """The queues in which RabbitMQ itself holds delayed messages."""

    #: Whether the app sends messages there.
    used: bool = False
    missing: Sequence[str] = ()
    #: How one of them differs from what it takes to lose nothing.
    weak: str = ""
    messages: int = 0
    #: Queues that are bound to the end of the chain; None: that could not be seen.
    bound: int | None = None


def delay_findings(server: str, delays: DelaysSeen) -> Iterator[Finding]:
    """The findings about the delay queues of *server*."""
    at = f"{server}, celery_delayed_*"
    if delays.used and delays.missing:
        yield NO_DELAYS.found(
            at,
            f"{len(delays.missing)} of 28 queues do not exist",
            "start a worker, which declares them",
            fix=Fix(
                kind=DECLARE_DELAYS,
                at=server,
                what=f"declare RabbitMQ's delay queues on {server}, as a worker does",
            ),
        )
    if delays.weak and (delays.used or delays.messages):
        yield WEAK_DELAYS.found(
            at,
            delays.weak,
            "set broker_native_delayed_delivery_queue_type to 'quorum', let them run empty and"
            " delete celery_delayed_0 to celery_delayed_27",
        )
    if not delays.messages:
        return
    if delays.bound == 0:
        yield ORPHANED.found(
            at,
            f"{delays.messages} messages wait, and no queue is bound to celery_delayed_delivery",
            "start the workers whose queues they are for before their time comes: they bind them",
        )
    elif delays.bound is None and not delays.used:
        yield ORPHANED.unknown(
            at,
            f"{delays.messages} messages wait, and this app does not use these queues",
            f"see that another app does (or name {MANAGEMENT}): rabbitmqctl list_bindings | grep"
            " celery_delayed_delivery",
        )


#: The fix: declares a task queue as the app would.
DECLARE_QUEUE: Final = "rabbitmq-declare-queue"
_RABBITMQ, _CRITICAL, _ERROR = Area.RABBITMQ, Severity.CRITICAL, Severity.ERROR
_WARNING = Severity.WARNING
_ANEW: Final = "let its messages be handled and delete it, so that it is declared anew"

MISSING: Final = Check(
    id="queue-missing",
    area=_RABBITMQ,
    severity=_WARNING,
    looks_at="the task queues of the app (also on SQS)",
    why="no worker has ever read the queue: a message for it waits until the first one comes, or"
    " comes back to its publisher",
    fixable=True,
)
DIFFERS: Final = Check(
    id="queue-differs",
    area=_RABBITMQ,
    severity=_ERROR,
    looks_at="arguments of the task queues against what the app declares",
    why="RabbitMQ refuses the declaration: workers do not start and publishes fail",
)
EXCHANGE: Final = Check(
    id="exchange-type",
    area=_RABBITMQ,
    severity=_ERROR,
    looks_at="types of the exchanges that task queues hang on",
    why="RabbitMQ refuses the declaration, or messages are routed past their queue",
)
NOT_DURABLE: Final = Check(
    id="queue-not-durable",
    area=_RABBITMQ,
    severity=_CRITICAL,
    looks_at="durable, auto-delete and exclusive of the task queues",
    why="the queue and all its messages go with the next restart, or with the last consumer",
)
DROPS: Final = Check(
    id="queue-drops",
    area=_RABBITMQ,
    severity=_CRITICAL,
    looks_at="x-message-ttl, x-expires, x-max-length, x-delivery-limit, policies",
    why="RabbitMQ silently drops messages out of the queue by its own rules",
)
CLASSIC: Final = Check(
    id="queue-classic",
    area=_RABBITMQ,
    severity=_WARNING,
    looks_at="types of the task queues that exist",
    why="the queue lives on one node: its messages are away, or gone, with that node",
)
UNREAD: Final = Check(
    id="queue-unread",
    area=_RABBITMQ,
    severity=_WARNING,
    looks_at="task queues with messages and without a consumer (also on Redis, by the fleet)",
    why="messages wait and no worker takes them",
)
ALARM: Final = Check(
    id="rabbitmq-alarm",
    area=_RABBITMQ,
    severity=_ERROR,
    looks_at="memory and disk alarms of all nodes",
    why="RabbitMQ takes no messages from anybody until the alarm ends",
)
NODES: Final = Check(
    id="quorum-degraded",
    area=_RABBITMQ,
    severity=_WARNING,
    looks_at="members of quorum queues that are online",
    why="when one more node goes the queue has no majority: nothing is taken or handed out",
)
CHECKS: Final = (
    MISSING,
    DIFFERS,
    EXCHANGE,
    NOT_DURABLE,
    DROPS,
    CLASSIC,
    UNREAD,
    ALARM,
    NODES,
    *DELAY_CHECKS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeen:
    """A task queue as it is; None is what could not be seen."""

    name: str
    exists: bool = True
    #: Whether every worker of the app reads it, whatever its queues are.
    of_all: bool = False
    #: How it differs from what the app declares, in RabbitMQ's words.
    differs: str = ""
    #: Whether that is how long the queue itself lives.
    fleeting: bool = False
    kind: str | None = None
    #: Whether a policy has a classic queue mirrored, and this RabbitMQ does so.
    mirrored: bool = False
    #: By what it loses messages, each with what to do.
    drops: Sequence[str] = ()
    #: Whether RabbitMQ's own delivery limit holds unless an unseen policy has another.
    limit_untold: bool = False
    messages: int = 0
    consumers: int | None = None
    #: Members and those of them that are online, of a quorum queue.
    members: int = 0
    online: int = 0
    #: How its exchange differs from what the app declares.
    exchange: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitSeen:
    """A RabbitMQ as it is."""

    at: str
    queues: Sequence[QueueSeen] = ()
    delays: DelaysSeen = field(default_factory=DelaysSeen)
    #: Alarms by node; None: the management interface does not answer.
    alarms: Mapping[str, Sequence[str]] | None = None
    #: Nodes of the cluster, as far as they can be counted.
    nodes: int | None = None


def findings(seen: RabbitSeen) -> Iterator[Finding]:
    """The findings about a RabbitMQ."""
    for queue in seen.queues:
        at = f"{seen.at}, queue {queue.name}"
        if queue.exchange:
            yield EXCHANGE.found(
                at,
                queue.exchange,
                "set task_default_exchange_type (or the queue's exchange) to the type that exists,"
                " or delete the exchange once nothing publishes to it",
            )
        yield from _queue(seen, queue, at) if queue.exists else _missing(seen, queue, at)
    yield from delay_findings(seen.at, seen.delays)
    yield from _nodes(seen)


def _start(queue: QueueSeen) -> str:
    if queue.of_all:  # with -Q they would be taken for tasks
        return "start a worker of this app, on whatever queues: each reads it"
    return f"start a worker for it: angzarr -A … worker -Q {queue.name}"


def _missing(seen: RabbitSeen, queue: QueueSeen, at: str) -> Iterator[Finding]:
    yield MISSING.found(
        at,
        "it does not exist",
        _start(queue),
        fix=Fix(
            kind=DECLARE_QUEUE,
            at=seen.at,
            what=f"declare the queue {queue.name} on {seen.at}, as this app does",
            arguments=(queue.name,),
        ),
    )


def _queue(seen: RabbitSeen, queue: QueueSeen, at: str) -> Iterator[Finding]:
    if queue.fleeting:
        yield NOT_DURABLE.found(at, queue.differs, _ANEW)
    elif queue.differs:
        yield DIFFERS.found(
            at,
            queue.differs,
            f"{_ANEW}, or set amqp_queues: plain and guard it by a policy",
        )
    if queue.drops:
        yield DROPS.found(at, ", ".join(queue.drops), f"change its policy; or {_ANEW}")
    elif queue.limit_untold:
        yield DROPS.unknown(
            at,
            "no x-delivery-limit, which RabbitMQ takes for 20 unless a policy has another, and its"
            " policies are not known",
            f"name {MANAGEMENT}; or see that rabbitmqctl list_queues name policy"
            " effective_policy_definition has a dead-letter-exchange or delivery-limit -1",
        )
    if queue.kind == "classic":
        yield _classic(queue, at, seen.nodes or 1)
    if queue.messages and queue.consumers == 0:
        yield UNREAD.found(
            at,
            f"{queue.messages} messages, no consumer",
            _start(queue),
        )
    if queue.online < queue.members:
        yield NODES.found(
            at,
            f"{queue.online} of {queue.members} members are online",
            "start the node that is down: rabbitmq-diagnostics cluster_status",
            severity=_ERROR if queue.online <= queue.members // 2 else _WARNING,
        )


def _classic(queue: QueueSeen, at: str, nodes: int) -> Finding:
    told, severity = "a classic queue", _WARNING
    if queue.mirrored:
        told = "a classic queue that ha-mode mirrors, which RabbitMQ 4 does not do any more"
    elif nodes > 1:
        told, severity = f"a classic queue on one of {nodes} nodes", _CRITICAL
    change = f'set task_default_queue_type = "quorum"; {_ANEW}'
    return CLASSIC.found(at, told, change, severity=severity)


def _nodes(seen: RabbitSeen) -> Iterator[Finding]:
    if seen.alarms is None:
        yield ALARM.unknown(
            seen.at,
            "its management interface does not answer, or not to this user: no alarms, policies and"
            " nodes are known",
            f"name it and a user with the tag monitoring: {MANAGEMENT}; or see"
            " rabbitmq-diagnostics alarms",
        )
        return
    for node, alarms in seen.alarms.items():
        if alarms:
            yield ALARM.found(
                f"{seen.at}, node {node}",
                f"{' and '.join(alarms)} alarm",
                "give the node memory or disk, or raise its watermark: rabbitmq-diagnostics alarms",
            )
