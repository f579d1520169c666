"""From settings to dead-letter queues, their spool and the store of large payloads.

Imports only the technologies that the settings name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from angzarr.clock import SystemClock
from angzarr.dead_letters.fallback_queue import SPOOL, FallbackQueue
from angzarr.dead_letters.letter import Reason
from angzarr.dead_letters.names import domain_of_app, queue_name
from angzarr.dead_letters.queue import UNKNOWN_DOMAIN, DeadLetterQueue, Letterbox, LettersByReason
from angzarr.dead_letters.spool_forwarder import Forwarder
from angzarr.errors import ConfigurationError
from angzarr.payloads.holders import BodyRegistration
from angzarr.runtime.chance import chance
from angzarr.runtime.processes import PeriodicThread
from angzarr.settings.dead_letters import (
    DeadLetterSettings,
    SpoolSettings,
)
from angzarr.settings.dlq_urls import read_url
from angzarr.settings.payloads import PayloadSettings
from angzarr.settings.settings import DEFAULT_PREFIX, Settings
from angzarr.wiring import payloads as payload_wiring
from angzarr.wiring import protection as protection_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.context import AppContext

#: Opens the queue of one backend; the second argument is the broker's URL.
Open: TypeAlias = Callable[[DeadLetterSettings, str], DeadLetterQueue]


def open_dead_letters(settings: Settings, broker: str) -> DeadLetterQueue:
    """The dead-letter queue: as configured, or the broker itself where it can be one."""
    return _hidden(
        protection_wiring.protected(open_unprotected(settings, broker), settings.dlq), settings
    )


def open_letterbox(settings: Settings, broker: str) -> Letterbox:
    """The letterbox of the letters that workers write, each reason's where it belongs."""
    rest = open_dead_letters(settings, broker)
    if settings.saga_compensation.dead_letter_queue_url is None:
        return rest
    own = open_compensation_letters(settings, broker)
    return LettersByReason(rest, {Reason.COMPENSATION: own})


def open_compensation_letters(settings: Settings, broker: str) -> DeadLetterQueue:
    """The queue for letters of failed compensations: one of their own, or `dlq` (spec C6).

    They are protected and offloaded as `dlq` says.
    """
    url = settings.saga_compensation.dead_letter_queue_url
    if url is None:
        return open_dead_letters(settings, broker)
    place = read_url(url.get_secret_value())
    given = place.settings(payloads=settings.dlq.payloads)
    known = payload_wiring.registration(settings, broker)
    queue = holding(open_backend(place.backend, given, "", known), settings, broker)
    return _hidden(protection_wiring.protected(queue, settings.dlq), settings)


def _hidden(protected: DeadLetterQueue, settings: Settings) -> DeadLetterQueue:
    """*protected*, which gets no letter whose body was stored by a publisher, as it was sent."""
    if settings.payloads.url is None or not protection_wiring.hides(settings.dlq):
        return protected
    store = payload_wiring.open_for_letters(settings)
    module = importlib.import_module("angzarr.dead_letters.whole_letters")
    whole: DeadLetterQueue = module.WholeLetterQueue(protected, store)
    return whole


def open_unprotected(settings: Settings, broker: str) -> DeadLetterQueue:
    """The same queue for letters that others wrote: they are neither redacted nor signed."""
    given = settings.dlq
    if given.targets is None:
        known = payload_wiring.registration(settings, broker)
        queue = open_backend(places(settings, broker)[0], given, broker, known)
        return holding(queue, settings, broker)
    spool = open_spool(given) if has_spool(settings) else None
    told = wiring.letter_meters().confirmed
    return holding(open_chain(settings, broker, spool=spool, confirmed=told), settings, broker)


def holding(queue: DeadLetterQueue, settings: Settings, broker: str) -> DeadLetterQueue:
    """*queue*, whose letters hold the bodies that their messages left in the payload store."""
    opened = payload_wiring.open_holders(settings, broker)
    if settings.payloads.url is None or opened is None:
        return queue
    module = importlib.import_module("angzarr.dead_letters.holding_queue")
    held: DeadLetterQueue = module.HoldingQueue(queue, opened)
    return held


def open_chain(
    settings: Settings,
    broker: str,
    *,
    spool: Letterbox | None = None,
    confirmed: Callable[[str, int], object],
) -> FallbackQueue:
    """The chain of the queues that letters go to, with *spool* behind them."""
    names = [name for name in places(settings, broker) if name != SPOOL]
    known = payload_wiring.registration(settings, broker)
    queues = {name: open_backend(name, settings.dlq, broker, known) for name in names}
    return FallbackQueue(queues, spool=spool, chance=chance, confirmed=confirmed)


def open_spool(given: DeadLetterSettings) -> Any:
    """The spool at the path that the settings name."""
    files = importlib.import_module("angzarr.adapters.files.spool")
    return files.Spool(Path(str(given.spool.path)), max_bytes=given.spool.max_bytes)


def open_backend(
    name: str,
    given: DeadLetterSettings,
    broker: str,
    registration: BodyRegistration | None = None,
) -> DeadLetterQueue:
    """The queue of the backend *name*; connects when it is first used.

    Without *registration* the bodies that its letters leave are kept for ever.
    """
    if name not in _BACKENDS:
        known = ", ".join(sorted(_BACKENDS))
        msg = f"dead letters cannot be kept on {name!r}: use one of {known}"
        raise ConfigurationError(msg)
    return offloading(_BACKENDS[name](given, broker), given.payloads, registration)


def _channel(_given: DeadLetterSettings, broker: str) -> DeadLetterQueue:
    memory = importlib.import_module("angzarr.adapters.memory.dead_letters")
    queue: DeadLetterQueue = memory.MemoryDeadLetterQueue(channel_of(broker))
    return queue


def channel_of(broker: str) -> str:
    """The name of the channel that has the letters of *broker*: its own, where it has one.

    A broker in this process is named by the host of its URL.
    """
    return (wiring.is_embedded(broker) and urlsplit(broker).hostname) or "default"


def _amqp(given: DeadLetterSettings, broker: str) -> DeadLetterQueue:
    url = given.amqp_url or (broker if wiring.is_amqp(broker) else None)
    if url is None:
        msg = "'amqp' needs dlq.amqp_url, e.g. amqp://localhost:5672"
        raise ConfigurationError(msg)
    rabbitmq = importlib.import_module("angzarr.adapters.rabbitmq.dead_letters")
    queue: DeadLetterQueue = rabbitmq.RabbitMQDeadLetterQueue(
        url,
        tls=given.amqp_tls.model_dump(exclude_none=True) or None,
        create_missing=given.create_missing,
    )
    return queue


def _kafka(given: DeadLetterSettings, _broker: str) -> DeadLetterQueue:
    kafka = wiring.adapter("angzarr.adapters.kafka.dead_letters", "confluent_kafka")
    queue: DeadLetterQueue = kafka.KafkaDeadLetterQueue(
        given.kafka_brokers,
        group=given.kafka_group,
        partitions=given.kafka_partitions,
        replication=given.kafka_replication,
        options=given.plain_kafka_options(),
        create_missing=given.create_missing,
    )
    return queue


def _sqs(given: DeadLetterSettings, _broker: str) -> DeadLetterQueue:
    sqs = wiring.adapter("angzarr.adapters.sqs.dead_letters", "boto3")
    queue: DeadLetterQueue = sqs.SqsDeadLetterQueue(**_aws(given))
    return queue


def _sns_sqs(given: DeadLetterSettings, _broker: str) -> DeadLetterQueue:
    sqs = wiring.adapter("angzarr.adapters.sqs.dead_letters", "boto3")
    queue: DeadLetterQueue = sqs.SnsSqsDeadLetterQueue(**_aws(given))
    return queue


def _aws(given: DeadLetterSettings) -> dict[str, Any]:
    return {
        "region": given.aws_region,
        "endpoint_url": given.aws_endpoint_url,
        "profile": given.aws_profile,
        "options": given.aws_options,
        "fifo": given.aws_fifo,
        "visibility": given.aws_visibility,
        "create_missing": given.create_missing,
    }


def _pubsub(given: DeadLetterSettings, _broker: str) -> DeadLetterQueue:
    pubsub = wiring.adapter("angzarr.adapters.pubsub.dead_letters", "google.cloud.pubsub")
    queue: DeadLetterQueue = pubsub.PubSubDeadLetterQueue(
        given.pubsub_project,
        endpoint=given.pubsub_endpoint,
        ordering=given.pubsub_ordering,
        create_missing=given.create_missing,
    )
    return queue


def _none(_given: DeadLetterSettings, _broker: str) -> DeadLetterQueue:
    memory = importlib.import_module("angzarr.adapters.memory.dead_letters")
    queue: DeadLetterQueue = memory.DiscardedDeadLetterQueue()
    return queue


_BACKENDS: Final[Mapping[str, Open]] = {
    "channel": _channel,
    "amqp": _amqp,
    "kafka": _kafka,
    "sqs": _sqs,
    "sns_sqs": _sns_sqs,
    "pubsub": _pubsub,
    "none": _none,
}


def default_backend(broker: str) -> str:
    """The default backend for *broker*'s dead letters; raises ConfigurationError if it has none."""
    scheme = broker.split(":", 1)[0]
    if wiring.is_amqp(broker):
        return "amqp"
    if scheme in ("sqs", "memory"):
        return {"sqs": "sqs", "memory": "channel"}[scheme]
    msg = (
        f"a {scheme} broker keeps no dead letters: set dlq.backend to amqp, kafka, sqs, sns_sqs or"
        " pubsub, e.g. dlq: {backend: kafka, kafka_brokers: localhost:9092}"
    )
    raise ConfigurationError(msg)


def places(settings: Settings, broker: str) -> tuple[str, ...]:
    """The names of the places for letters, in the order in which they are tried."""
    return settings.dlq.targets or (settings.dlq.backend or default_backend(broker),)


def has_spool(settings: Settings) -> bool:
    """True if letters go to a folder of this machine while no queue takes them."""
    return SPOOL in (settings.dlq.targets or ())


def default_domain(context: AppContext) -> str:
    """The domain of the app's letters for which nothing else names one (0076).

    As set; else by the prefix, if it is the app's own; else by its name.
    """
    settings = context.settings
    if settings.dlq.default_domain is not None:
        return str(settings.dlq.default_domain)
    own_prefix = settings.prefix if settings.prefix != DEFAULT_PREFIX else None
    domain = domain_of_app(own_prefix or context.main)
    # A domain of its own may have the same queue, '.' being written as '-'.
    alike = (one for one in _named(context) if queue_name(one) == queue_name(domain))
    return next(alike, domain)


def domains_to_read(context: AppContext) -> list[str]:
    """Every domain whose letters the app's analysis worker reads.

    That of its name is among them where another is its default: earlier releases put letters
    there, and an app is known by its name (`analysis.other_apps`).
    """
    own = {default_domain(context), domain_of_app(context.main), UNKNOWN_DOMAIN}
    named = _named(context)
    taken = {queue_name(one) for one in named}
    return sorted({*named, *(one for one in own if queue_name(one) not in taken)})


def _named(context: AppContext) -> list[str]:
    given = context.settings.dlq
    others = [*given.domains, *given.queue_domains.values(), *given.foreign_routes]
    return [*context.handlers.domains(), *others]


def offloading(
    queue: DeadLetterQueue, given: PayloadSettings, registration: BodyRegistration | None = None
) -> DeadLetterQueue:
    """*queue*, which is that of one backend, with the payload store beside it if any."""
    store = payload_wiring.open_store(given)
    if store is None:
        return queue
    module = importlib.import_module("angzarr.dead_letters.offloading_queue")
    beside: DeadLetterQueue = module.OffloadingQueue(
        queue, store, over=given.over, registration=registration
    )
    return beside


#: How long a stop waits for a batch: a queue that is away costs its time-out, and what is forwarded
#: twice does no harm.
_PATIENCE: Final = timedelta(milliseconds=500)


def open_forwarder(settings: Settings, broker: str, path: Path | None = None) -> Forwarder:
    """The forwarder from the spool, or the one at *path*, to the targets before it.

    Connects when it is first used. Raises ConfigurationError where no spool is configured.
    """
    told = wiring.letter_meters().forwarded
    return Forwarder(
        spool=open_folder(path or spool_path(settings)),
        queue=open_chain(settings, broker, confirmed=told),
        chance=chance,
    )


def open_forwarder_thread(settings: Settings, broker: str) -> PeriodicThread | None:
    """A thread that forwards, and whose process reports how full the spool is, if there is one."""
    if not has_spool(settings):
        return None

    def make(_stopping: Callable[[], bool]) -> Forwarder:
        return open_forwarder(settings, broker)

    folder = open_folder(spool_path(settings))
    wiring.letter_meters().observe(folder.tally, SystemClock().now)
    return PeriodicThread("angzarr-forwarder", make, patience=_PATIENCE)


def open_folder(path: Path) -> Any:
    """The way out of the spool at *path*."""
    return importlib.import_module("angzarr.adapters.files.spool").FolderOfLetters(path)


def open_queue(given: SpoolSettings, *, create_missing: bool) -> DeadLetterQueue:
    """The spool at the path that *given* names as a queue that letters are moved from."""
    module = importlib.import_module("angzarr.adapters.files.spool_queue")
    queue: DeadLetterQueue = module.SpoolQueue(
        Path(str(given.path)), max_bytes=given.max_bytes, create_missing=create_missing
    )
    return queue


def spool_path(settings: Settings) -> Path:
    """The path of the spool; raises ConfigurationError where none is configured."""
    if has_spool(settings):
        return Path(str(settings.dlq.spool.path))
    msg = (
        "this app has no spool: its letters are held while their queue is away; to have one set"
        " dlq: {targets: [kafka, spool], spool: {path: /var/lib/angzarr/spool, durable: true}}"
    )
    raise ConfigurationError(msg)
