"""RabbitMQ's native delay, and the bindings from its end to queues, declared before they are used.

Workers declare both when they start, for the queues that they consume. A message that enters the
delay before that would be refused, or would wait at the end of the delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Final

from amqp.exceptions import NotFound
from kombu import Queue
from kombu.abstract import MaybeChannelBound
from kombu.common import Broadcast
from kombu.transport.native_delayed_delivery import (
    CELERY_DELAYED_DELIVERY_EXCHANGE,
    bind_queue_to_native_delayed_delivery_exchange,
    calculate_routing_key,
    declare_native_delayed_delivery_exchanges_and_queues,
    level_name,
)

#: The exchange by which messages enter the delay.
ENTRY: Final = level_name(27)
#: AMQP's limit for a routing key, in bytes.
_LONGEST_KEY: Final = 255
#: The words by which a topic exchange matches any word.
_WILD: Final = {"*", "#"}

#: Binds a queue to the end of the delay, on a channel.
Lead = Callable[[Any, Queue], None]


class DelayWay(MaybeChannelBound):
    """An entity of kombu's, as a queue is: declared once a connection, and anew on another one.

    One that exists is taken as it is: `check_queues` judges it when a worker starts.
    """

    name = CELERY_DELAYED_DELIVERY_EXCHANGE
    can_cache_declaration = True
    #: What kombu copies when it binds one to a channel.
    attrs = (("queues", None), ("lead", None))
    queues: tuple[Queue, ...] = ()
    lead: Lead

    def __hash__(self) -> int:
        return hash((type(self), self.lead, *(queue.name for queue in self.queues)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DelayWay) and hash(self) == hash(other)

    def declare(self, channel: Any = None, **_: Any) -> None:
        """Declare the delay if there is none, its queues, and the way from one to the others."""
        connection = channel.connection
        if not _is_there(connection):
            with connection.channel() as own:
                declare_native_delayed_delivery_exchanges_and_queues(_only(own), "quorum")
        for queue in self.queues:
            with connection.channel() as own:
                queue(own).declare()
                self.lead(own, queue)


def way_to(queue: Queue) -> DelayWay:
    """The way to *queue* and no other, for messages sent with `key_to` it."""
    return DelayWay(queues=(queue,), lead=_bind_alone)


def way_by(routing_key: str, queues: Iterable[Queue]) -> DelayWay:
    """The way of messages that Celery delays and sends with the key of their queue.

    It leads to those of *queues* that have the key, by their own exchanges. What has none of these
    waits at the end of the delay until a worker has bound its queue.
    """
    key = ".".join(routing_key.split(".")[28:])
    reached = tuple(one for one in queues if one.routing_key == key and _is_led_to(one))
    return DelayWay(queues=reached, lead=_bind_by_exchange)


def key_to(queue: Queue, seconds: int) -> str:
    """The key that leads to *queue* after *seconds*."""
    return str(calculate_routing_key(seconds, _word_of(queue)))


def leads_to_it_alone(queue: Queue, queues: Iterable[Queue]) -> bool:
    """True if a copy for *queue* would come out of the delay in none other of *queues*.

    Celery binds each queue to the end of the delay by its own key, and one that takes all would
    take the copy too.
    """
    if len(key_to(queue, 1).encode()) > _LONGEST_KEY:
        return False
    return not any(_takes_all(other) for other in queues if other.name != queue.name)


def _takes_all(queue: Queue) -> bool:
    return _is_led_to(queue) and set(str(queue.routing_key or "").split(".")) <= _WILD


def _is_led_to(queue: Queue) -> bool:
    """True if Celery binds *queue* to the end of the delay, and may be asked to declare it."""
    exchange = queue.exchange
    is_led_to = exchange is not None and exchange.type != "direct"
    return is_led_to and not isinstance(queue, Broadcast)


def _word_of(queue: Queue) -> str:
    """A key of one word; no pattern for other keys matches it."""
    return "angzarr:" + str(queue.name).replace("%", "%25").replace(".", "%2E")


def _bind_alone(channel: Any, queue: Queue) -> None:
    channel.queue_bind(queue.name, CELERY_DELAYED_DELIVERY_EXCHANGE, f"#.{_word_of(queue)}")


def _bind_by_exchange(channel: Any, queue: Queue) -> None:
    bind_queue_to_native_delayed_delivery_exchange(_only(channel), queue)


def _is_there(connection: Any) -> bool:
    """True if the last thing is there that is declared of the delay."""
    try:
        with connection.channel() as own:
            own.exchange_declare(CELERY_DELAYED_DELIVERY_EXCHANGE, "topic", passive=True)
    except NotFound:
        return False
    return True


def _only(channel: Any) -> SimpleNamespace:
    """A stand-in for a connection; kombu would leave a channel open each time."""
    return SimpleNamespace(channel=lambda: channel)
