"""Makes messages that name their queue, and the queues that an app declares on RabbitMQ.

From release 4 on RabbitMQ drops a message that came back to a quorum queue 20 times, even if
workers only prefetched it. Our queues have a limit that no healthy message reaches. What RabbitMQ
gives up all the same goes to a queue that workers read (see `dropped`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from amqp.exceptions import NotFound, PreconditionFailed
from celery import Celery
from celery.app.amqp import AMQP, Queues
from kombu import Exchange, Producer, Queue
from kombu.common import Broadcast
from kombu.transport.native_delayed_delivery import (
    declare_native_delayed_delivery_exchanges_and_queues as declare_delays,
)

from angzarr.adapters.celery.celery_defaults import with_transport_defaults
from angzarr.adapters.celery.claim_batch import release_claims
from angzarr.adapters.celery.connection import AngzarrConnection, KombusRedisConnection, client_of
from angzarr.adapters.celery.publish.argument_text import text_of
from angzarr.adapters.celery.publish.body_offloader import not_sealable
from angzarr.adapters.celery.publish.message_template import MessageCapture, hide_arguments
from angzarr.adapters.celery.publish.native_delay import ENTRY, way_by
from angzarr.adapters.celery.publish.offloading_producer import OffloadingProducer, SealedTaskSent
from angzarr.adapters.celery.publish.producer_pool import BoundedProducerPool
from angzarr.adapters.celery.publish.publisher import AWAY, native_delay, transport_of
from angzarr.adapters.celery.publish.sealed_sends import origin_of_task, sealing_as
from angzarr.adapters.celery.worker.message_limits import read_body
from angzarr.adapters.celery.worker.message_receiver import NamingConsumer
from angzarr.adapters.celery.worker.runtime import runtime_of
from angzarr.dead_letters.names import dropped_queue
from angzarr.delivery.unreadable import damaged
from angzarr.errors import ConfigurationError
from angzarr.events import headers as names

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


class AngzarrQueues(Queues):
    """Celery's queues, of which those made on demand are guarded like the default one."""

    #: Adds to a queue's arguments what keeps its messages.
    guard: Callable[[Queue], None] = staticmethod(lambda _queue: None)
    #: The queue of what RabbitMQ gives up; who reads it declares it, whatever its arguments are.
    dropped: str | None = None
    #: The queues that handlers and routes name.
    named: Callable[[], Collection[str]] = staticmethod(tuple)

    def described(self, name: str) -> Queue | None:
        """The queue *name* as this app declares it, None if others do; adds none.

        A publisher that declared such a queue would make one without a consumer.
        """
        if name in self or name in self.aliases:
            return self[name]
        if name == self.dropped or (self.create_missing and name in self.named()):
            return self.own(name)
        return None

    def own(self, name: str) -> Queue:
        """A queue of our own: it depends on no setting about missing ones, and adds none."""
        made = self.new_missing(name)
        made.exchange = made.exchange or self.default_exchange
        return made

    def new_missing(self, name: str) -> Queue:
        """A queue for a name that is not configured."""
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


def check_queues(app: Celery) -> None:
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
    """The properties of a quorum *queue* that RabbitMQ refuses, each with its cure."""
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


class AngzarrAMQP(AMQP):
    """Celery's message factory plus one header and one flag, and the transport that this app wants.

    The flag is AMQP's *mandatory*; brokers other than RabbitMQ have no use for it.
    """

    queues_cls = AngzarrQueues

    def Consumer(self, *args: Any, **options: Any) -> NamingConsumer:  # noqa: N802 - Celery's name
        """A consumer of tasks."""
        return NamingConsumer(*args, reread=runtime_of(self.app).reread, **options)

    def Connection(self, *args: Any, **options: Any) -> Any:  # noqa: N802 - Celery's name
        """A broker connection; an app can have kombu's own transport for Redis.

        Raises MissingExtra where the transport's client is not installed.
        """
        broker = args[0] if args else options.get("hostname")
        given = options.get("transport_options")
        options["transport_options"] = with_transport_defaults(broker, given)
        with client_of(str(broker)):
            return self._connection(*args, **options)

    def _connection(self, *args: Any, **options: Any) -> Any:
        if runtime_of(self.app).redis_transport == "kombu":
            return KombusRedisConnection(*args, **options)
        ours = {
            "owner_lease": runtime_of(self.app).owner_lease,
            "on_damaged": self._take_damaged,
            "on_fetched": runtime_of(self.app).claim_fetched,
            "on_returned": self._read_body,
            "on_put_back": partial(release_claims, self.app),
            "on_turn": self._end_claims,
        }
        given = options.pop("transport_options", None) or {}
        return AngzarrConnection(*args, transport_options={**ours, **given}, **options)

    def Producer(self, *args: Any, **options: Any) -> Producer:  # noqa: N802 - Celery's name
        """A producer that stores bodies which are too large for the broker, if there is a store."""
        return _producer_class(self.app)(*args, **options)

    @property
    def producer_pool(self) -> BoundedProducerPool:
        """The pool of such producers; kombu's pools, which apps share, make plain ones."""
        if self.__dict__.get("_producer_pool") is None:  # asked for each publish
            self._producer_pool = BoundedProducerPool(self.app, Producer=_producer_class(self.app))
        pool: BoundedProducerPool = self._producer_pool
        return pool

    publisher_pool = producer_pool

    def _take_damaged(self, raw: bytes, queue: str, error: Exception) -> None:
        """Make a dead letter of an envelope that cannot be read; called by our Redis transport."""
        runtime_of(self.app).bury(
            damaged(raw, queue), error, getattr(error, "code", "DAMAGED_ENVELOPE")
        )

    def _end_claims(self, *, idle: bool) -> bool:
        """Complete what has gathered, in a turn of a worker's loop; True if anything was."""
        return runtime_of(self.app).claim_batch.ender.turn(idle=idle)

    def _read_body(self, message: Any) -> None:
        """Read the body of *message* at once, as its consumer would; raises anything."""
        read_body(message, runtime_of(self.app).bounds)

    def Queues(self, queues: Any, *args: Any, **options: Any) -> Any:  # noqa: N802 - Celery's name
        """The queues; those that are not configured are guarded on RabbitMQ."""
        runtime = runtime_of(self.app)
        runtime.lay_defaults()  # the broker may be another one since they were laid
        made = super().Queues(queues, *args, **options)
        made.dropped = dropped_queue(runtime.prefix)
        made.named = runtime.routing.named_queues
        if runtime.amqp_queues == "guarded":
            made.guard = partial(guard, dropped=made.dropped)
            for queue in () if queues else made.values():
                made.guard(queue)
        return made

    def as_task_v2(
        self, task_id: str, name: str, args: Any = None, kwargs: Any = None,
        *given: Any, **options: Any,
    ) -> Any:  # fmt: skip
        """A task's message; the text of its arguments is Celery's, written faster."""
        if args and options.get("argsrepr") is None:
            deepest = self.app.conf.task_repr_maxlevels
            options["argsrepr"] = text_of(args, self.argsrepr_maxsize, deepest)
        if not kwargs and options.get("kwargsrepr") is None:
            options["kwargsrepr"] = "{}"
        return super().as_task_v2(task_id, name, args, kwargs, *given, **options)

    def _create_task_sender(self) -> Callable[..., Any]:
        send = super()._create_task_sender()
        default = self.app.conf.task_default_queue

        def send_task_message(
            producer: Any, name: str, message: Any, *args: Any, **options: Any
        ) -> Any:
            # RabbitMQ would drop it silently when its time is over. The header `expires`
            # stays: the worker that receives it then makes a letter of it.
            options.pop("expiration", None)
            headers = options.get("headers")
            if headers and not isinstance(headers, names.OwnHeaders):
                # Forwarded from the message of another task, they would say where that one is.
                options["headers"] = names.without_ours(headers)
            queue = options.get("queue")
            if queue is None and options.get("exchange") is None:
                queue = default
            if queue is not None and not isinstance(queue, Broadcast):
                named = queue.name if isinstance(queue, Queue) else str(queue)
                message.headers.setdefault(names.QUEUE, named)
            delayed = str(getattr(options.get("exchange"), "name", "")) == ENTRY
            if delayed:
                way = way_by(str(options["routing_key"]), list(self.queues.values()))
                options["declare"] = [*(options.get("declare") or ()), way]
            if isinstance(producer, MessageCapture):
                return producer.keep(message, options)
            # A message that no queue takes must come back; a broadcast may have no listener.
            options.setdefault("mandatory", not isinstance(queue, Broadcast))
            sending: Callable[..., Any] = partial(send, producer, name, message, *args)
            if isinstance(producer, OffloadingProducer):
                sending = self._sealed_sender(sending, producer, message)
            checked = message.headers.get(names.PAYLOAD)
            try:
                return sending(**options)
            except NotFound:
                if not delayed:
                    raise
                _put_back(message.headers, checked)
                # The delay was deleted since this connection declared it.
                producer.connection.declared_entities.clear()
                return sending(**options)

        return send_task_message

    def _sealed_sender(
        self, send: Callable[..., Any], producer: OffloadingProducer, message: Any
    ) -> Callable[..., Any]:
        """*send* of *message*, with nothing shown of it where its body is encrypted."""
        origin = origin_of_task()

        def sending(*, event_dispatcher: Any = None, **options: Any) -> Any:
            if message.sent_event:
                told_by = event_dispatcher or self._event_dispatcher
                event_dispatcher = SealedTaskSent(told_by, message.headers)
            with sealing_as(origin):
                if producer.seals_all:
                    if "task" not in message.headers:
                        raise not_sealable("of protocol 1")
                    hide_arguments(message)
                return send(event_dispatcher=event_dispatcher, **options)

        return sending


def _put_back(headers: dict[str, Any], checked: str | None) -> None:
    """Give *headers* the claim check that they had: a first try adds one, and the body is whole."""
    headers.pop(names.PAYLOAD, None)
    if checked is not None:
        headers[names.PAYLOAD] = checked


def _producer_class(app: Celery) -> Callable[..., Producer]:
    offloader = runtime_of(app).offloader()
    return Producer if offloader is None else partial(OffloadingProducer, offloader=offloader)
