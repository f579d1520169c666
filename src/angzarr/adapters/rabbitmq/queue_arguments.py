"""How a queue of RabbitMQ's was declared, read from its refusals, and what it may lose. Pure.

AMQP has no question for it. But who declares a queue that exists otherwise than it is, is told
the first difference in words, and nothing changes. Policies, which operators set, are not told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

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


class Difference(NamedTuple):
    """The first field or argument that differs, and what the queue has: None is none."""

    name: str
    value: Value | None

    @property
    def loses(self) -> bool:
        """Tell whether it is no argument, but how long the queue and its letters live."""
        return self.name in _LOSING_FIELDS


def read_difference(text: str) -> Difference | None:
    """Return what RabbitMQ's PRECONDITION_FAILED names, None where it is about something else."""
    named = _DIFFERENCE.search(text)
    if named is None:
        return None
    current = _CURRENT.search(text, named.end())
    if current is None:
        return Difference(named[1], UNTOLD)
    if current["none"]:
        return Difference(named[1], None)
    text = current["value"] if current["kind"] else current["bare"]
    return Difference(named[1], _value(text, current["kind"]))


def corrected(arguments: Mapping[str, Value], difference: Difference) -> dict[str, Value]:
    """Return *arguments* as the queue has the one that differs."""
    name, value = difference
    if value is None and name == _TYPE:  # else RabbitMQ takes the virtual host's default
        value = "classic"
    others = {one: arguments[one] for one in arguments if one != name}
    return others if value is None else {**others, name: value}


def weaknesses(given: Mapping[str, Value], ours: Mapping[str, Value]) -> list[str]:
    """Return by which arguments letters are lost or moved, with what to do.

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
    """Return what holds of a queue that has arguments and a policy (rabbit_quorum_queue, 4.1).

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
    """Return by which arguments a queue of tasks drops messages that nobody gets to see.

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
    """Tell whether a queue goes by RabbitMQ's own delivery limit, if it has one, and then drops."""
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
    """Return *text* as the type that RabbitMQ compares it with; without *kind* guess it."""
    if kind != "longstr" and text in {"true", "false"}:
        return text == "true"
    if kind != "longstr" and _NUMBER.fullmatch(text):
        return int(text)
    return text
