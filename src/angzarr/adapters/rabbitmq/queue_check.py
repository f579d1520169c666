"""Looks at each queue that exists: refuses one that would lose its letters, warns of what may."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import amqp

from angzarr.adapters.rabbitmq.queue_arguments import (
    Value,
    corrected,
    read_difference,
    weaknesses,
)

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
        """Return why *name*, which exists, would lose letters; warn once of what may.

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
    """How a queue was declared, as far as its refusals told it."""

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
    """Return the sentence for an exchange or a queue that letters are not trusted to."""
    return f"the {what} {name} is not as letters need it: {' '.join(text.split())[:200]}"


def _refusal(channel: Any, name: str, arguments: Mapping[str, Value]) -> str | None:
    """Declare *name* so: None where it is so, else how it differs."""
    try:
        channel.queue_declare(name, durable=True, auto_delete=False, arguments=dict(arguments))
    except amqp.exceptions.PreconditionFailed as error:
        return str(error.reply_text)
    return None
