"""Reads RabbitMQ's queues, exchanges and policies for the doctor.

It creates and changes nothing: it declares each queue as it is, and RabbitMQ only compares. The
HTTP interface adds what AMQP does not report, such as policies and alarms.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import amqp

from angzarr.adapters.rabbitmq.link import BrokerCluster, LetterConnection, connect
from angzarr.adapters.rabbitmq.queue_check import (
    QueueCheck,
    Value,
    drops,
    has_default_limit,
    in_force,
    learn,
    weaknesses,
)
from angzarr.dead_letters.names import EXCHANGE, LIMITS_BY_DEFAULT, queue_name, release_of
from angzarr.dead_letters.queue import NAME_PREFIX
from angzarr.doctor.letter_rules import LetterQueueSeen
from angzarr.doctor.rabbitmq_rules import DelaysSeen, QueueSeen, RabbitSeen
from angzarr.errors import ConfigurationError

#: The exchange at the end of RabbitMQ's own delays, and the queues before it; kombu's names.
_DELIVERY: Final = "celery_delayed_delivery"
_LEVELS: Final = 28


class WantedQueue(NamedTuple):
    """A task queue as an app declares it."""

    name: str
    arguments: Mapping[str, Value]
    exchange: str = ""
    exchange_type: str = "direct"
    exchange_durable: bool = True
    exchange_auto_delete: bool = False
    #: Whether it must have these arguments; else it is taken as it is, and nothing is refused.
    strict: bool = True


class FoundQueue(NamedTuple):
    """The answer to a passive declaration of a queue; None of all if the queue is locked."""

    messages: int
    consumers: int


@contextlib.contextmanager
def linked(cluster: BrokerCluster, timeout: float) -> Iterator[LetterConnection]:
    """Lend a connection; raises what py-amqp raises."""
    link = connect(cluster, timeout=timeout, check=QueueCheck(), create_missing=False)
    try:
        yield link
    finally:
        link.close()


def examine(
    link: LetterConnection,
    at: str,
    wanted: Sequence[WantedQueue],
    *,
    delays: bool,
    management: Management | None = None,
) -> RabbitSeen:
    """The state of the queues *wanted*; *delays*: RabbitMQ's own are used."""
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
    link: LetterConnection,
    domains: Collection[str],
    ours: Mapping[str, Value],
    *,
    create_missing: bool,
    management: Management | None = None,
) -> list[LetterQueueSeen]:
    """The dead-letter queues of *domains*, and others with letters if the broker names them."""
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


def make_letter_queue(cluster: BrokerCluster, domain: str, timeout: float) -> str:
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
    channel: Any, one: WantedQueue, told: Mapping[str, Any] | None, *, limited: bool
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
    channel: Any,
    one: WantedQueue,
    seen: QueueSeen,
    told: Mapping[str, Any] | None,
    *,
    limited: bool,
) -> QueueSeen:
    """*seen* with what its arguments are, as far as they may be asked for."""
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
    """The arguments of kombu for a level of the delays on quorum queues, which loses nothing."""
    return {
        "x-queue-type": "quorum",
        "x-overflow": "reject-publish",
        "x-message-ttl": 2**level * 1000,
        "x-dead-letter-exchange": f"celery_delayed_{level - 1}" if level else _DELIVERY,
        "x-dead-letter-strategy": "at-least-once",
    }


def _passive(channel: Any, name: str) -> FoundQueue | None:
    """The messages and consumers of a queue; None where it does not exist."""
    try:
        told = channel.queue_declare(name, passive=True)
    except amqp.exceptions.NotFound:
        return None
    except amqp.exceptions.ResourceLocked:
        return FoundQueue(0, 1)  # exclusive: its consumer is there
    return FoundQueue(int(told.message_count), int(told.consumer_count))


def _exchange_of(channel: Any, one: WantedQueue) -> str | None:
    kept = {"durable": one.exchange_durable, "auto_delete": one.exchange_auto_delete}
    return _exchange(channel, one.exchange, one.exchange_type, **kept)


def _exchange(
    channel: Any, name: str, kind: str, *, durable: bool = True, auto_delete: bool = False
) -> str | None:
    """RabbitMQ's words for how an existing exchange *name* is not one of *kind*."""
    try:
        channel.exchange_declare(name, kind, passive=True)
        channel.exchange_declare(name, kind, durable=durable, auto_delete=auto_delete)
    except amqp.exceptions.PreconditionFailed as error:
        return str(error.reply_text)
    except (amqp.exceptions.NotFound, amqp.exceptions.AccessRefused):
        return None
    return None


#: The default port.
PORT: Final = 15672
#: Of an answer that is longer nothing is believed: some thousand queues.
_LONGEST: Final = 32 * 1024**2
_ALARMS: Final = {"mem_alarm": "memory", "disk_free_alarm": "disk"}


class Management:
    """Asks the interface at *url*, with the user in it; answers are None where it is away."""

    def __init__(self, url: str, virtual_host: str, *, timeout: float) -> None:
        try:
            self._parts = urlsplit(url)
            self._port = self._parts.port
        except ValueError as error:
            msg = "the management address must read http://user:password@host:15672"
            raise ConfigurationError(msg) from error
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            msg = "the management address must read http://user:password@host:15672"
            raise ConfigurationError(msg)
        self._vhost = quote(virtual_host, safe="")
        self._timeout = timeout

    def alarms(self) -> Mapping[str, Sequence[str]] | None:
        """The alarms of each node, which may be none."""
        nodes = self._get("nodes")
        if not isinstance(nodes, list):
            return None
        return {
            str(node.get("name")): [said for key, said in _ALARMS.items() if node.get(key)]
            for node in nodes
            if isinstance(node, dict)
        }

    def queues(self) -> Mapping[str, Mapping[str, Any]]:
        """All queues of the virtual host by name; none if the broker does not list them."""
        found = self._get(f"queues/{self._vhost}")
        listed = found if isinstance(found, list) else []
        return {str(one.get("name")): one for one in listed if isinstance(one, dict)}

    def bound_to(self, exchange: str) -> int | None:
        """The number of bindings that lead away from *exchange*; 0 where it does not exist."""
        found = self._get(f"exchanges/{self._vhost}/{quote(exchange, safe='')}/bindings/source")
        return len(found) if isinstance(found, list) else None

    def _get(self, path: str) -> Any:
        """The answer; None where there is none, or none that is JSON."""
        kind = (
            http.client.HTTPSConnection
            if self._parts.scheme == "https"
            else http.client.HTTPConnection
        )
        connection = kind(str(self._parts.hostname), self._port or PORT, timeout=self._timeout)
        try:
            connection.request("GET", f"/api/{path}", headers=self._headers())
            reply = connection.getresponse()
            text = reply.read(_LONGEST)
            if reply.status == http.client.NOT_FOUND:
                return []
            return json.loads(text) if reply.status == http.client.OK else None
        except (OSError, http.client.HTTPException, ValueError, RecursionError):
            return None
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        user = unquote(self._parts.username or "guest")
        password = unquote(self._parts.password or "guest")
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {login}"}


def policy_arguments(queue: Mapping[str, Any]) -> dict[str, Value]:
    """The arguments that policies add to *queue*, spelt as arguments are."""
    policy = queue.get("effective_policy_definition")
    given = policy.items() if isinstance(policy, dict) else ()
    return {f"x-{name}": value for name, value in given if isinstance(value, str | int)}
