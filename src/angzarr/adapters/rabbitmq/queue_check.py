"""Checks existing queues: refuses one that would lose letters, and warns of other risks.

AMQP cannot ask how a queue was declared. A client that declares an existing queue differently gets
the first difference as a text, and nothing changes. Policies, which operators set, do not show.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import amqp

Value: TypeAlias = str | int | bool

#: Stands for a value that was cut off: AMQP's texts end after 255 bytes.
UNTOLD: Final = "?"
#: The fields under which a restart or the last reader takes the letters along.
_LOSING_FIELDS: Final = frozenset({"durable", "auto_delete", "exclusive"})
_DIFFERENCE: Final = re.compile(r"inequivalent arg '([^']+)' for ")
#: Where both have the argument, the type is left out.
_CURRENT: Final = re.compile(
    r" but current is (?:(?P<none>none)"
    r"|the value '(?P<value>.*)' of type '(?P<kind>\w+)'|'(?P<bare>.*)')$",
    re.DOTALL,
)
_NUMBER: Final = re.compile(r"-?\d{1,19}")
_TYPE: Final = "x-queue-type"
_LIMIT: Final = "x-delivery-limit"
#: How often RabbitMQ 4 hands out a letter of a quorum queue that says nothing of it.
_DEFAULT_LIMIT: Final = 20
_REJECTS: Final = ("reject-publish", "reject-publish-dlx")


class ArgumentDifference(NamedTuple):
    """The first field or argument that differs, and what the queue has: None is none."""

    name: str
    value: Value | None

    @property
    def loses(self) -> bool:
        """True if it is not an argument but the lifetime of the queue or of its letters."""
        return self.name in _LOSING_FIELDS


def read_difference(text: str) -> ArgumentDifference | None:
    """The difference that RabbitMQ's PRECONDITION_FAILED names, or None."""
    named = _DIFFERENCE.search(text)
    if named is None:
        return None
    current = _CURRENT.search(text, named.end())
    if current is None:
        return ArgumentDifference(named[1], UNTOLD)
    if current["none"]:
        return ArgumentDifference(named[1], None)
    text = current["value"] if current["kind"] else current["bare"]
    return ArgumentDifference(named[1], _value(text, current["kind"]))


def corrected(arguments: Mapping[str, Value], difference: ArgumentDifference) -> dict[str, Value]:
    """*arguments* as the queue has the one that differs."""
    name, value = difference
    if value is None and name == _TYPE:  # else RabbitMQ takes the virtual host's default
        value = "classic"
    others = {one: arguments[one] for one in arguments if one != name}
    return others if value is None else {**others, name: value}


def weaknesses(given: Mapping[str, Value], ours: Mapping[str, Value]) -> list[str]:
    """By which arguments letters are lost or moved, with what to do.

    *ours* is what we would have declared; it sets a delivery limit where RabbitMQ has one.
    """
    told = [*_times(given), *_lengths(given)]
    if limit := _delivery_limit(given, ours):
        told.append(limit)
    if "x-dead-letter-exchange" in given:
        target = given["x-dead-letter-exchange"]
        told.append(f"what it gives up is moved to x-dead-letter-exchange={target} (leave it out)")
    return told


def in_force(policy: Mapping[str, Value], given: Mapping[str, Value]) -> dict[str, Value]:
    """The arguments in force of a queue that also has a policy (rabbit_quorum_queue, 4.1).

    Of two numbers the lower holds; -1, no delivery limit, yields to any. Else the argument does,
    but for x-overflow of a quorum queue.
    """
    both = {**policy, **given}
    for name in policy.keys() & given.keys():
        one, other = policy[name], given[name]
        if isinstance(one, int) and isinstance(other, int):
            both[name] = max(one, other) if min(one, other) < 0 else min(one, other)
    if "x-overflow" in policy and given.get(_TYPE) == "quorum":
        both["x-overflow"] = policy["x-overflow"]
    return both


def drops(given: Mapping[str, Value], *, limited: bool) -> list[str]:
    """The arguments by which a queue of tasks drops messages without a trace.

    What it gives up into a dead-letter exchange is not dropped. *limited*: this RabbitMQ has a
    delivery limit where a quorum queue says none.
    """
    if "x-dead-letter-exchange" in given:
        return [one for one in _times(given) if one.startswith("x-expires")]
    told = [*_times(given), *_lengths(given)]
    limit = given.get(_LIMIT, _DEFAULT_LIMIT if limited else -1)
    if given.get(_TYPE) == "quorum" and isinstance(limit, int) and limit >= 0:
        cure = "set x-dead-letter-exchange to a queue that is read"
        told.append(f"{_LIMIT}={limit} and nowhere to put what came so often ({cure})")
    return told


def has_default_limit(given: Mapping[str, Value]) -> bool:
    """True if a queue goes by RabbitMQ's own delivery limit, if it has one, and then drops."""
    none = _LIMIT not in given and "x-dead-letter-exchange" not in given
    return given.get(_TYPE) == "quorum" and none


def _times(given: Mapping[str, Value]) -> list[str]:
    names = ("x-message-ttl", "x-expires")
    return [f"{name}={given[name]} (leave it out)" for name in names if name in given]


def _lengths(given: Mapping[str, Value]) -> list[str]:
    if given.get("x-overflow") in _REJECTS:
        return []
    return [
        f"{name}={given[name]} (leave it out, or add x-overflow=reject-publish)"
        for name in ("x-max-length", "x-max-length-bytes")
        if name in given
    ]


def _delivery_limit(given: Mapping[str, Value], ours: Mapping[str, Value]) -> str | None:
    if given.get(_TYPE) != "quorum":
        return None
    cure = f"set it to {ours[_LIMIT]}" if _LIMIT in ours else "leave it out"
    if _LIMIT in given:
        limit = given[_LIMIT]
        lasts = isinstance(limit, int) and limit < 0
        return None if lasts else f"{_LIMIT}={limit} ({cure})"
    if _LIMIT in ours:
        return f"no {_LIMIT}, which means {_DEFAULT_LIMIT} unless a policy has another ({cure})"
    return None


def _value(text: str, kind: str | None) -> Value:
    """*text* as the type that RabbitMQ compares it with; without *kind* guess it."""
    if kind != "longstr" and text in {"true", "false"}:
        return text == "true"
    if kind != "longstr" and _NUMBER.fullmatch(text):
        return int(text)
    return text


_LOG: Final = logging.getLogger(__name__)
#: No queue can be made with it, and one that exists is not compared by it, unless it is a stream:
#: a queue that is deleted between two questions is not made by the second.
_MAKES_NOTHING: Final[Mapping[str, Value]] = {"x-max-age": "none is to be made"}
#: Differences that are followed; each is a refused declare, and a line in RabbitMQ's log.
_TRIES: Final = 10


class QueueCheck:
    """Declares queues as they are, which it learns from refusals; belongs to one process.

    All connections share it: what one has learned the next one declares at once.
    """

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, Value]] = {}
        self._told: dict[str, list[str]] = {}

    def problem(self, channel: Any, name: str, ours: Mapping[str, Value]) -> str | None:
        """The reason why the existing queue *name* would lose letters; warn once of other risks.

        *ours* is how we declare. Raises what py-amqp raises, AccessRefused without `configure`.
        """
        found = learn(channel, name, self._known.get(name, ours))
        if found.arguments is None:
            if found.loses:
                return unlike("queue", name, found.refusals[-1])
            _LOG.debug("the queue %s could not be looked at: %s", name, found.refusals[-1])
            return None
        self._known[name] = found.arguments
        self._warn(name, weaknesses(found.arguments, ours))
        return None

    def _warn(self, name: str, told: list[str]) -> None:
        if told and self._told.get(name) != told:
            self._told[name] = told
            _LOG.warning(
                "dead_letters_at_risk: RabbitMQ could lose or move dead letters. %s: %s. A queue"
                " keeps its arguments: once it is empty, delete it and make it anew",
                name,
                ", ".join(told),
            )


class Learned(NamedTuple):
    """How a queue was declared, as far as its refusals say."""

    #: None: it cannot be known.
    arguments: Mapping[str, Value] | None
    #: What RabbitMQ said that differs, the first difference first.
    refusals: Sequence[str]
    #: Whether what differs is how long the queue itself lives.
    loses: bool = False


def learn(channel: Any, name: str, ours: Mapping[str, Value]) -> Learned:
    """Declare the queue *name*, which exists, until RabbitMQ agrees; makes and changes nothing.

    *ours* is tried first. Raises what py-amqp raises, AccessRefused without `configure`.
    """
    given, refusals = {**ours, **_MAKES_NOTHING}, []
    for _ in range(_TRIES):
        text = _refusal(channel, name, given)
        if text is None:
            break
        refusals.append(text)
        difference = read_difference(text)
        if difference is None or difference.loses:
            return Learned(None, refusals, loses=difference is not None)
        before, given = given, corrected(given, difference)
        if given == before:
            break
    known = {key: value for key, value in given.items() if key not in _MAKES_NOTHING}
    return Learned(known, refusals)


def unlike(what: str, name: str, text: str) -> str:
    """The sentence for an exchange or a queue that letters are not trusted to."""
    return f"the {what} {name} is not as letters need it: {' '.join(text.split())[:200]}"


def _refusal(channel: Any, name: str, arguments: Mapping[str, Value]) -> str | None:
    """Declare *name* so: None where it is so, else how it differs."""
    try:
        channel.queue_declare(name, durable=True, auto_delete=False, arguments=dict(arguments))
    except amqp.exceptions.PreconditionFailed as error:
        return str(error.reply_text)
    return None
