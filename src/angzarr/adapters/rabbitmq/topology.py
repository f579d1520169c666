"""The exchange and the queues of dead letters (spec L2): made where missing, or only checked."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import amqp

from angzarr.adapters.rabbitmq.queue_check import QueueCheck, Value, unlike
from angzarr.dead_letters.names import EXCHANGE, queue_name, routing_key, routing_keys

_LOG: Final = logging.getLogger(__name__)


class Topology:
    """One connection's knowledge of exchange and queues, each checked once.

    *open_channel* gives a new channel: a question that is refused closes its own, which py-amqp
    opens again.
    """

    def __init__(
        self,
        open_channel: Callable[[], Any],
        *,
        create: bool,
        arguments: Mapping[str, Value],
        check: QueueCheck,
    ) -> None:
        self._open_channel = open_channel
        self._create = create
        self._arguments = dict(arguments)
        self._check = check
        #: The exchange and routing keys of queues.
        self._ready: set[str] = set()

    def problem(self, domain: str) -> str | None:
        """None once *domain*'s queue is there, else what is missing or wrong.

        What exists is never changed; a queue of other arguments is used. Raises what py-amqp
        raises.
        """
        key = routing_key(domain)
        if key in self._ready:
            return None
        with self._asking() as channel:
            keys = routing_keys(domain)
            why = self._exchange(channel) or self._queue(channel, queue_name(domain), keys)
        if why is None:
            self._ready.update((EXCHANGE, key))
        return why

    def forget(self) -> None:
        """Look again when a queue is next needed."""
        self._ready.clear()

    def count(self, domain: str) -> int:
        """The number of letters of *domain* that wait in its queue."""
        with self._asking() as channel:
            try:
                return int(channel.queue_declare(queue_name(domain), passive=True).message_count)
            except amqp.exceptions.NotFound:
                return 0

    def _exchange(self, channel: Any) -> str | None:
        """Make the exchange, or say what is wrong with the one that is there."""
        if EXCHANGE in self._ready:
            return None
        declare = functools.partial(channel.exchange_declare, EXCHANGE, "topic", auto_delete=False)
        if _exists(declare):
            with _looking("exchange", EXCHANGE):
                try:
                    declare(durable=True)
                except amqp.exceptions.PreconditionFailed as error:
                    return unlike("exchange", EXCHANGE, str(error.reply_text))
        elif self._create:
            declare(durable=True)
        else:
            return _missing("exchange", EXCHANGE)
        return None

    def _queue(self, channel: Any, name: str, keys: Sequence[str]) -> str | None:
        """Make the queue and its bindings, or say what is wrong; unbound, letters come back."""
        declare = functools.partial(channel.queue_declare, name, auto_delete=False)
        try:
            there = _exists(declare)
        except amqp.exceptions.ResourceLocked as error:
            return unlike("queue", name, str(error.reply_text))
        if there:
            with _looking("queue", name):
                if why := self._check.problem(channel, name, self._arguments):
                    return why
        elif self._create:
            declare(durable=True, arguments=self._arguments)
        else:
            return _missing("queue", name)
        if self._create:
            for one in keys:
                channel.queue_bind(name, EXCHANGE, one)
        return None

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Any]:
        """Open a channel, and close it unless the connection failed."""
        channel = self._open_channel()
        try:
            yield channel
        except amqp.exceptions.ChannelError:
            channel.close()
            raise
        channel.close()


def _exists(declare: Callable[..., Any]) -> bool:
    try:
        declare(passive=True)
    except amqp.exceptions.NotFound:
        return False
    return True


def _missing(what: str, name: str) -> str:
    return (
        f"the {what} {name} does not exist and is not to be created"
        " (dlq.create_missing is false): create it"
    )


@contextlib.contextmanager
def _looking(what: str, name: str) -> Iterator[None]:
    """Who may not declare (`configure`) cannot know more of what exists, and is not refused."""
    try:
        yield
    except amqp.exceptions.AccessRefused as error:
        _LOG.debug("the %s %s could not be looked at: %s", what, name, error.reply_text)
