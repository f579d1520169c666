"""Where dead letters go: each configured place, and this machine's spool."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from angzarr.dead_letters.fallback_queue import SPOOL
from angzarr.dead_letters.queue import UNKNOWN_DOMAIN, CountsWaiting
from angzarr.doctor import letter_rules
from angzarr.doctor.finding import Finding, Fix, Probe
from angzarr.doctor.letter_rules import LetterQueueSeen, LettersSeen
from angzarr.doctor_probes import DoctorTarget, rabbitmq
from angzarr.errors import DeadLetterQueueUnavailable
from angzarr.settings.dead_letters import DeadLetterSettings
from angzarr.settings.payloads import PayloadSettings
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import stores as wiring
from angzarr.wiring.ledger import ledger_url

#: Backends in which nothing outside this process is looked at.
_INSIDE: Final = ("channel", "none")


class _QueueProbes(NamedTuple):
    """How the queues of a backend are looked at, and made."""

    at: str
    look: Callable[[Sequence[str]], list[LetterQueueSeen]]
    make: Callable[[str], str]
    failures: tuple[type[BaseException], ...]
    reason: Callable[[Any], str]


def probes(target: DoctorTarget) -> Iterator[Probe]:
    """A probe of each place that letters go to; raises ConfigurationError."""
    if not target.ours:
        return
    for backend in letter_wiring.places(target.settings, target.broker_url):
        if backend in _INSIDE:
            yield Probe(at=f"dead letters in {backend}", look=_inside(target, backend))
        elif backend == SPOOL:
            yield _spool(target)
        else:
            place = _PLACES[backend](target)
            look = _look(target, backend, place)
            yield Probe(at=place.at, look=look, failures=place.failures, reason=place.reason)


def create(target: DoctorTarget, fix: Fix) -> str:
    """Make the queue of a domain; raises DeadLetterQueueUnavailable where it cannot be made."""
    backend, domain = fix.arguments
    if why := _PLACES[backend](target).make(domain):
        raise DeadLetterQueueUnavailable(why)
    return ""


def _inside(target: DoctorTarget, backend: str) -> Callable[[], Iterator[Finding]]:
    embedded = wiring.is_embedded(target.broker_url)
    seen = LettersSeen(at=f"dead letters in {backend}", backend=backend, embedded=embedded)
    return lambda: letter_rules.findings(seen)


def _look(
    target: DoctorTarget, backend: str, place: _QueueProbes
) -> Callable[[], Iterator[Finding]]:
    def look() -> Iterator[Finding]:
        queues = place.look(target.ops.dead_letter_domains())
        yield from letter_rules.findings(
            LettersSeen(
                at=place.at,
                backend=backend,
                has_own_domain=letter_wiring.default_domain(target.ops.context) != UNKNOWN_DOMAIN,
                has_ledger=ledger_url(target.settings, target.broker_url) is not None,
                queues=_counted(target, backend, queues),
            )
        )

    return look


def _counted(
    target: DoctorTarget, backend: str, queues: list[LetterQueueSeen]
) -> list[LetterQueueSeen]:
    """*queues* with the letters that wait in those that Kafka alone can count by its group."""
    there = [one.domain for one in queues if one.exists and one.read and not one.unfit]
    if backend != "kafka" or not there:
        return queues
    given, broker = target.settings.dlq, target.broker_url
    given = given.model_copy(update={"payloads": PayloadSettings()})  # only counts
    with closing(letter_wiring.open_backend(backend, given, broker)) as queue:
        counts = queue.waiting(there) if isinstance(queue, CountsWaiting) else {}
    return [replace(one, waiting=counts.get(one.domain, 0)) for one in queues]


def _amqp(target: DoctorTarget) -> _QueueProbes:
    given = target.settings.dlq
    adapter = importlib.import_module("angzarr.adapters.rabbitmq.doctor")
    link = importlib.import_module("angzarr.adapters.rabbitmq.link")
    url = given.amqp_url or target.broker_url
    tls = given.amqp_tls.model_dump(exclude_none=True) or None
    cluster = importlib.import_module("angzarr.adapters.rabbitmq.link").read_cluster(url, tls)
    timeout = target.timeout.total_seconds()

    def look(domains: Sequence[str]) -> list[LetterQueueSeen]:
        with adapter.linked(cluster, timeout) as connected:
            found: list[LetterQueueSeen] = adapter.letter_queues(
                connected,
                domains,
                connected.queue_arguments(),
                create_missing=given.create_missing,
                management=rabbitmq.management(target, cluster, url),
            )
        return found

    return _QueueProbes(
        at=f"RabbitMQ at {cluster}",
        look=look,
        make=lambda domain: adapter.make_letter_queue(cluster, domain, timeout),
        failures=link.FAILURES,
        reason=link.reason_of,
    )


def _kafka(target: DoctorTarget) -> _QueueProbes:
    given = target.settings.dlq
    adapter = wiring.adapter("angzarr.adapters.kafka.doctor", "confluent_kafka")
    client = wiring.adapter("angzarr.adapters.kafka.client", "confluent_kafka")
    cluster = client.KafkaCluster(
        brokers=given.kafka_brokers,
        timeout=target.timeout.total_seconds(),
        options=given.plain_kafka_options(),
    )
    return _QueueProbes(
        at=f"Kafka at {given.kafka_brokers} (dead letters)",
        look=lambda domains: adapter.letter_queues(
            cluster, domains, given.kafka_group, create_missing=given.create_missing
        ),
        make=lambda domain: adapter.make_topic(
            cluster,
            domain,
            partitions=given.kafka_partitions,
            replication=given.kafka_replication,
        ),
        failures=adapter.FAILURES,
        reason=lambda error: client.reason_of(error.args[0]),
    )


def _sqs(target: DoctorTarget, *, topics: bool = False) -> _QueueProbes:
    given = target.settings.dlq
    adapter = wiring.adapter("angzarr.adapters.sqs.doctor", "boto3")
    client = wiring.adapter("angzarr.adapters.sqs.client", "boto3")
    service = _aws(given, client, target.timeout.total_seconds())
    return _QueueProbes(
        at=f"SQS in {given.aws_region or 'the default region'} (dead letters)",
        look=lambda domains: adapter.letter_queues(
            service,
            domains,
            fifo=given.aws_fifo,
            create_missing=given.create_missing,
            topics=topics,
        ),
        make=lambda domain: adapter.make_letter_queue(service, domain, fifo=given.aws_fifo),
        failures=client.FAILURES,
        reason=client.reason_of,
    )


def _aws(given: DeadLetterSettings, client: Any, timeout: float) -> Any:
    return client.Service(
        region=given.aws_region,
        endpoint_url=given.aws_endpoint_url,
        profile=given.aws_profile,
        timeout=timeout,
        options=dict(given.aws_options or {}),
    )


def _pubsub(target: DoctorTarget) -> _QueueProbes:
    given = target.settings.dlq
    adapter = wiring.adapter("angzarr.adapters.pubsub.doctor", "google.cloud.pubsub")
    client = wiring.adapter("angzarr.adapters.pubsub.client", "google.cloud.pubsub")
    service = client.PubSubService(
        project=given.pubsub_project,
        endpoint=given.pubsub_endpoint,
        timeout=target.timeout.total_seconds(),
        ordering=given.pubsub_ordering,
        options={},
    )
    return _QueueProbes(
        at=f"Pub/Sub project {given.pubsub_project} (dead letters)",
        look=lambda domains: adapter.letter_queues(
            service, domains, create_missing=given.create_missing
        ),
        make=lambda _domain: "the first letter makes it",
        failures=adapter.FAILURES,
        reason=client.reason_of,
    )


_PLACES: Final[dict[str, Callable[[DoctorTarget], _QueueProbes]]] = {
    "amqp": _amqp,
    "kafka": _kafka,
    "sqs": _sqs,
    "sns_sqs": partial(_sqs, topics=True),
    "pubsub": _pubsub,
}


def _spool(target: DoctorTarget) -> Probe:
    given = target.settings.dlq.spool
    path = Path(str(given.path))
    adapter = importlib.import_module("angzarr.adapters.files.doctor")
    return Probe(
        at=f"spool at {path}",
        look=lambda: letter_rules.spool_findings(adapter.examine(path, given.max_bytes)),
        failures=(OSError,),
    )
