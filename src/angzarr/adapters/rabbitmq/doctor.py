"""Examination: what a RabbitMQ tells of queues and exchanges, for the doctor.

Nothing is made or changed: what exists is declared as it is, which RabbitMQ compares only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import amqp

from angzarr.adapters.rabbitmq.address import Cluster
from angzarr.adapters.rabbitmq.link import Link, connect
from angzarr.adapters.rabbitmq.management import Management, policy_arguments
from angzarr.adapters.rabbitmq.queue_arguments import (
    Value,
    drops,
    has_default_limit,
    in_force,
    weaknesses,
)
from angzarr.adapters.rabbitmq.queue_check import QueueCheck, learn
from angzarr.dead_letters.names import EXCHANGE, LIMITS_BY_DEFAULT, queue_name, release_of
from angzarr.dead_letters.queue import NAME_PREFIX
from angzarr.doctor.delay_rules import DelaysSeen
from angzarr.doctor.letter_rules import LetterQueueSeen
from angzarr.doctor.rabbitmq_rules import QueueSeen, RabbitSeen

#: The exchange at the end of RabbitMQ's own delays, and the queues before it; kombu's names.
_DELIVERY: Final = "celery_delayed_delivery"
_LEVELS: Final = 28


class Wanted(NamedTuple):
    """A task queue as an app declares it."""

    name: str
    arguments: Mapping[str, Value]
    exchange: str = ""
    exchange_type: str = "direct"
    exchange_durable: bool = True
    exchange_auto_delete: bool = False
    #: Whether it must have these arguments; else it is taken as it is, and nothing is refused.
    strict: bool = True


class Found(NamedTuple):
    """What a passive declaration of a queue told; None of all if the queue is locked."""

    messages: int
    consumers: int


@contextlib.contextmanager
def linked(cluster: Cluster, timeout: float) -> Iterator[Link]:
    """Lend a connection; raises what py-amqp raises."""
    link = connect(cluster, timeout=timeout, check=QueueCheck(), create_missing=False)
    try:
        yield link
    finally:
        link.close()


def examine(
    link: Link,
    at: str,
    wanted: Sequence[Wanted],
    *,
    delays: bool,
    management: Management | None = None,
) -> RabbitSeen:
    """Return what is there of the queues *wanted*; *delays*: RabbitMQ's own are used."""
    alarms = management.alarms() if management else None
    told = management.queues() if management and alarms is not None else {}
    channel = link.open_channel()
    limited = release_of(link.connection.server_properties) >= LIMITS_BY_DEFAULT
    return RabbitSeen(
        at=at,
        queues=[_queue(channel, one, told.get(one.name), limited=limited) for one in wanted],
        delays=_delays(channel, used=delays, management=management if told else None),
        alarms=alarms,
        nodes=len(alarms) if alarms is not None else None,
    )


def letter_queues(
    link: Link,
    domains: Collection[str],
    ours: Mapping[str, Value],
    *,
    create_missing: bool,
    management: Management | None = None,
) -> list[LetterQueueSeen]:
    """Return the dead-letter queues of *domains*, and others that hold letters if that is told."""
    channel = link.open_channel()
    unfit = _exchange(channel, EXCHANGE, "topic") or ""
    told = management.queues() if management else {}
    seen = [
        _letters(channel, domain, ours, told, made=create_missing, unfit=unfit)
        for domain in domains
    ]
    known = {one.name for one in seen}
    others = (
        LetterQueueSeen(
            domain=name.removeprefix(NAME_PREFIX),
            name=name,
            waiting=int(one.get("messages") or 0),
            readers=int(one.get("consumers") or 0),
            read=False,
        )
        for name, one in told.items()
        if name.startswith(NAME_PREFIX) and name not in known
    )
    return [*seen, *others]


def make_letter_queue(cluster: Cluster, domain: str, timeout: float) -> str:
    """Make the queue of *domain*; return why it could not be made, or an empty string."""
    link = connect(cluster, timeout=timeout, check=QueueCheck(), create_missing=True)
    try:
        return link.topology.problem(domain) or ""
    finally:
        link.close()


def _letters(
    channel: Any,
    domain: str,
    ours: Mapping[str, Value],
    told: Mapping[str, Mapping[str, Any]],
    *,
    made: bool,
    unfit: str,
) -> LetterQueueSeen:
    name = queue_name(domain)
    found = _passive(channel, name)
    if found is None:
        return LetterQueueSeen(
            domain=domain, name=name, exists=False, made_when_missing=made, unfit=unfit
        )
    weak: list[str] = []
    with contextlib.suppress(amqp.exceptions.AccessRefused):
        learned = learn(channel, name, ours)
        if learned.arguments is not None:
            policy = policy_arguments(told.get(name, {}))
            weak = weaknesses(in_force(policy, learned.arguments), ours)
        elif learned.loses:
            unfit = unfit or learned.refusals[-1]
    return LetterQueueSeen(
        domain=domain,
        name=name,
        weak=weak,
        unfit=unfit,
        waiting=found.messages,
        readers=found.consumers,
    )


def _queue(
    channel: Any, one: Wanted, told: Mapping[str, Any] | None, *, limited: bool
) -> QueueSeen:
    exchange = _exchange_of(channel, one) if one.exchange else None
    seen = QueueSeen(name=one.name, of_all=not one.strict, exchange=exchange or "")
    found = _passive(channel, one.name)
    if found is None:
        return replace(seen, exists=False)
    members, online = (told or {}).get("members"), (told or {}).get("online")
    seen = replace(
        seen,
        messages=found.messages,
        consumers=found.consumers,
        members=len(members) if isinstance(members, list) else 0,
        online=len(online) if isinstance(online, list) else 0,
    )
    return _compared(channel, one, seen, told, limited=limited)


def _compared(
    channel: Any, one: Wanted, seen: QueueSeen, told: Mapping[str, Any] | None, *, limited: bool
) -> QueueSeen:
    """Return *seen* with what its arguments are, as far as they may be asked for."""
    try:
        learned = learn(channel, seen.name, one.arguments)
    except (amqp.exceptions.AccessRefused, amqp.exceptions.ResourceLocked):
        return seen
    given, policy = learned.arguments, policy_arguments(told or {})
    both = in_force(policy, given or {})
    unsure = limited and told is None and has_default_limit(both)
    return replace(
        seen,
        differs=learned.refusals[0] if learned.refusals and (one.strict or learned.loses) else "",
        fleeting=learned.loses,
        kind=None if given is None else str(given.get("x-queue-type", "classic")),
        mirrored=not limited and "x-ha-mode" in policy,
        drops=drops(both, limited=limited and not unsure),
        limit_untold=unsure,
    )


def _delays(channel: Any, *, used: bool, management: Management | None) -> DelaysSeen:
    missing, messages, weak = [], 0, ""
    for level in range(_LEVELS):
        name = f"celery_delayed_{level}"
        found = _passive(channel, name)
        if found is None:
            missing.append(name)
            continue
        messages += found.messages
        with contextlib.suppress(amqp.exceptions.AccessRefused):
            learned = learn(channel, name, _level_arguments(level))
            weak = weak or (f"{name}: {learned.refusals[0]}" if learned.refusals else "")
    return DelaysSeen(
        used=used,
        missing=missing,
        weak=weak,
        messages=messages,
        bound=management.bound_to(_DELIVERY) if management and messages else None,
    )


def _level_arguments(level: int) -> dict[str, Value]:
    """Return how kombu declares a level of the delays on quorum queues, which loses nothing."""
    return {
        "x-queue-type": "quorum",
        "x-overflow": "reject-publish",
        "x-message-ttl": 2**level * 1000,
        "x-dead-letter-exchange": f"celery_delayed_{level - 1}" if level else _DELIVERY,
        "x-dead-letter-strategy": "at-least-once",
    }


def _passive(channel: Any, name: str) -> Found | None:
    """Return what waits in a queue; None where it does not exist."""
    try:
        told = channel.queue_declare(name, passive=True)
    except amqp.exceptions.NotFound:
        return None
    except amqp.exceptions.ResourceLocked:
        return Found(0, 1)  # exclusive: whoever reads it is there
    return Found(int(told.message_count), int(told.consumer_count))


def _exchange_of(channel: Any, one: Wanted) -> str | None:
    kept = {"durable": one.exchange_durable, "auto_delete": one.exchange_auto_delete}
    return _exchange(channel, one.exchange, one.exchange_type, **kept)


def _exchange(
    channel: Any, name: str, kind: str, *, durable: bool = True, auto_delete: bool = False
) -> str | None:
    """Return how the exchange *name*, if it exists, is not one of *kind*, in RabbitMQ's words."""
    try:
        channel.exchange_declare(name, kind, passive=True)
        channel.exchange_declare(name, kind, durable=durable, auto_delete=auto_delete)
    except amqp.exceptions.PreconditionFailed as error:
        return str(error.reply_text)
    except (amqp.exceptions.NotFound, amqp.exceptions.AccessRefused):
        return None
    return None
