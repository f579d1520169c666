"""Queues: the task queues that an app declares on RabbitMQ, which drops nothing out of them (5).

From release 4 on RabbitMQ drops what came back 20 times from a quorum queue, be it poison or only
prefetched by workers that died. Ours have a limit that no innocent message meets, and what RabbitMQ
gives up all the same it puts where a worker finds it (see `dropped`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from amqp.exceptions import PreconditionFailed
from celery.app.amqp import Queues
from kombu import Exchange, Queue
from kombu.transport.native_delayed_delivery import (
    declare_native_delayed_delivery_exchanges_and_queues as declare_delays,
)

from angzarr.adapters.celery.publish.publisher import AWAY, native_delay, transport_of
from angzarr.errors import ConfigurationError

#: How often RabbitMQ lets a message come back. A message comes back whenever a worker dies that has
#: it, started or not, and we make a letter of what was started 3 times: this is for what kills
#: workers before that is counted. A worker that dies every minute does not drop what it only
#: prefetched before a day is over.
DELIVERY_LIMIT: Final = 1500

#: What a user may do about a queue that exists with other arguments.
CURE: Final = (
    "let its messages be handled and delete it, so that it is declared anew, or set amqp_queues to"
    " 'plain' and guard it by a policy (see 'Move a Celery project over')"
)


_NO_PRIORITY: Final = (
    "remove it and give urgent tasks a queue of their own, or keep classic queues by"
    " task_default_queue_type and task_create_missing_queue_type = 'classic' (see 'Move a Celery"
    " project over')"
)
#: Arguments that RabbitMQ takes of classic queues only.
_CLASSIC_ONLY: Final = frozenset({"x-queue-mode", "x-queue-master-locator", "x-queue-version"})


class RoadQueues(Queues):
    """Celery's queues, of which those made on demand are guarded like the default one."""

    #: Adds to a queue's arguments what keeps its messages.
    guard: Callable[[Queue], None] = staticmethod(lambda _queue: None)
    #: The queue of what RabbitMQ gives up; who reads it declares it, whatever its arguments are.
    dropped: str | None = None
    #: The queues that handlers and routes name.
    named: Callable[[], Collection[str]] = staticmethod(tuple)

    def described(self, name: str) -> Queue | None:
        """Return the queue *name* as this app declares it, None if others do; adds none.

        Whoever declared a queue that it only heard of would make one that nobody reads.
        """
        if name in self or name in self.aliases:
            return self[name]
        if name == self.dropped or (self.create_missing and name in self.named()):
            return self.own(name)
        return None

    def own(self, name: str) -> Queue:
        """Return a queue of our own: it depends on no setting about missing ones, and adds none."""
        made = self.new_missing(name)
        made.exchange = made.exchange or self.default_exchange
        return made

    def new_missing(self, name: str) -> Queue:
        """Return a queue for a name that nobody configured."""
        if name == self.dropped:
            return Queue(name, Exchange(name, "direct"), name, no_declare=True)
        queue = super().new_missing(name)
        self.guard(queue)
        return queue


def guard(queue: Queue, dropped: str) -> None:
    """Let RabbitMQ move what it gives up of a quorum *queue* to the queue *dropped*.

    At least once: RabbitMQ keeps it until *dropped* has confirmed it, which needs the overflow
    behaviour that is named here, and no length limit.
    """
    arguments = queue.queue_arguments or {}
    if arguments.get("x-queue-type") == "quorum" and queue.name != dropped:
        queue.queue_arguments = {
            **arguments,
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dropped,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }


def check_queues(app: Any) -> None:
    """Declare the queues of a worker on RabbitMQ; raises ConfigurationError where one differs.

    A broker that is away is for Celery to wait for.
    """
    if transport_of(app) != "amqp":
        return
    _check_quorum(app.amqp.queues.consume_from.values())
    differ = []
    with suppress(*AWAY), app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        for queue in app.amqp.queues.consume_from.values():
            channel = connection.channel()
            try:
                queue(channel).declare()
                channel.close()
            except PreconditionFailed as error:  # RabbitMQ has closed the channel
                differ.append(f"{queue.name!r} ({error.reply_text})")
        if any(native_delay(app, queue) for queue in app.amqp.queues.values()):
            _check_delays(connection)
    if differ:
        msg = (
            "angzarr refuses to start, RabbitMQ has queues with other arguments than this app"
            f" declares: {', '.join(differ)}; for each, {CURE}"
        )
        raise ConfigurationError(msg)


def _check_quorum(queues: Iterable[Queue]) -> None:
    """Refuse quorum queues with what only classic ones can have: no other name would help."""
    wrong = [f"{queue.name!r} has {why}" for queue in queues for why in unfit_for_quorum(queue)]
    if wrong:
        msg = f"angzarr refuses to start, quorum queues cannot be like that: {'; '.join(wrong)}"
        raise ConfigurationError(msg)


def unfit_for_quorum(queue: Queue) -> Iterator[str]:
    """Return what a quorum *queue* has that RabbitMQ refuses of one, each with its cure."""
    arguments = queue.queue_arguments or {}
    if arguments.get("x-queue-type") != "quorum":
        return
    if queue.max_priority is not None or "x-max-priority" in arguments:
        yield f"a highest priority (task_queue_max_priority, x-max-priority): {_NO_PRIORITY}"
    for name in _CLASSIC_ONLY & arguments.keys():
        yield f"{name}: remove it from its queue_arguments"
    for name in ("exclusive", "auto_delete"):
        if getattr(queue, name):
            yield f"{name}=True: remove it"
    if not queue.durable:
        yield "durable=False: remove it"


def _check_delays(connection: Any) -> None:
    """Declare RabbitMQ's delay; Celery would go on with queues that may lose what waits there."""
    try:
        declare_delays(connection, "quorum")
    except PreconditionFailed as error:
        msg = (
            "angzarr refuses to start, the queues between which RabbitMQ hands a delayed message on"
            f" have other arguments than it takes to lose none ({error.reply_text}): let them run"
            " empty and delete the queues celery_delayed_0 to celery_delayed_27, so that they are"
            " declared anew"
        )
        raise ConfigurationError(msg) from error
