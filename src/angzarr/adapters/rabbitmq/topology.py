"""The exchange and the queues of dead letters (spec L2): made where missing, or only checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import amqp

from angzarr.dead_letters.names import EXCHANGE, queue_name, routing_key

#: What RabbitMQ says of a queue that would lose its letters: with a restart, or its last reader.
_LOSES: Final = ("arg 'durable'", "arg 'auto_delete'")


class Topology:
    """What one connection knows of exchange and queues, each looked at once.

    *open_channel* gives a new channel: a question that is refused closes its own.
    """

    def __init__(
        self, open_channel: Callable[[], Any], *, create: bool, arguments: Mapping[str, Any]
    ) -> None:
        self._open_channel = open_channel
        self._create = create
        self._arguments = dict(arguments)
        self._ready: set[str] = set()

    def problem(self, domain: str) -> str | None:
        """Return None once *domain*'s queue is there, else what is missing or wrong.

        A queue that exists is taken as it is, whatever its arguments. Raises what py-amqp raises.
        """
        key = routing_key(domain)
        if key in self._ready:
            return None
        if self._create:
            self._make(domain)
        elif why := self._wrong(domain):
            return why
        self._ready.add(key)
        return None

    def forget(self) -> None:
        """Look again when a queue is next needed."""
        self._ready.clear()

    def count(self, domain: str) -> int:
        """Return how many letters of *domain* are with nobody."""
        try:
            return int(self._ask("queue_declare", queue_name(domain), passive=True).message_count)
        except amqp.exceptions.NotFound:
            return 0

    def _make(self, domain: str) -> None:
        name = queue_name(domain)
        setup = self._open_channel()
        setup.exchange_declare(EXCHANGE, "topic", durable=True, auto_delete=False)
        try:
            setup.queue_declare(name, passive=True)
        except amqp.exceptions.NotFound:
            setup.queue_declare(name, durable=True, auto_delete=False, arguments=self._arguments)
        setup.queue_bind(name, EXCHANGE, routing_key(domain))
        setup.close()

    def _wrong(self, domain: str) -> str | None:
        """Say what is missing or would lose letters; a queue without its binding returns them."""
        name = queue_name(domain)
        return (
            self._missing("exchange", EXCHANGE, "exchange_declare", "topic")
            or self._unlike("exchange", EXCHANGE, "exchange_declare", "topic")
            or self._missing("queue", name, "queue_declare")
            or self._unlike("queue", name, "queue_declare")
        )

    def _missing(self, what: str, name: str, declare: str, *kind: str) -> str | None:
        try:
            self._ask(declare, name, *kind, passive=True)
        except amqp.exceptions.NotFound:
            return (
                f"the {what} {name} does not exist and is not to be created"
                " (dlq.create_missing is false): create it"
            )
        return None

    def _unlike(self, what: str, name: str, declare: str, *kind: str) -> str | None:
        """Declare what exists as it should be: RabbitMQ says how it differs, and changes nothing.

        Who may not declare cannot know.
        """
        try:
            self._ask(declare, name, *kind, durable=True, auto_delete=False)
        except amqp.exceptions.AccessRefused:
            return None
        except amqp.exceptions.PreconditionFailed as error:
            told = str(error.reply_text)
            if what == "queue" and not any(one in told for one in _LOSES):
                return None
            return f"the {what} {name} is not as letters need it: {' '.join(told.split())[:200]}"
        return None

    def _ask(self, method: str, *words: str, **options: Any) -> Any:
        channel = self._open_channel()
        answer = getattr(channel, method)(*words, **options)
        channel.close()
        return answer
