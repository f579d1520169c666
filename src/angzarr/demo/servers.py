"""Servers of a demo run: where its dead letters go, whether all of them answer, and cleaning up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from angzarr.dead_letters.names import queue_name
from angzarr.demo.run import Run
from angzarr.errors import ConfigurationError
from angzarr.settings.dead_letters import DeadLetterSettings
from angzarr.settings.dlq_urls import QUEUE_FORMS, QUEUE_SCHEMES, read_url
from angzarr.wiring import dead_letters as letter_wiring
from angzarr.wiring import stores as wiring

_log = logging.getLogger("angzarr.demo")


def dead_letter_settings(url: str | None) -> dict[str, Any]:
    """Return the settings that *url* stands for; None leaves it to the broker.

    Raises ConfigurationError, with what is possible, where it names no queue.
    """
    if url is None:
        return {}
    if url == "channel":
        return {"backend": "channel"}
    if url.partition("://")[0] not in QUEUE_SCHEMES:  # what was named instead may be a secret
        msg = f"the demo cannot use the dead-letter queue of --dlq: use channel, {QUEUE_FORMS}"
        raise ConfigurationError(msg)
    place = read_url(url)
    return {"backend": place.backend, **place.given}


def check(app: Any) -> None:
    """Raise one clear error if a server that the run needs does not answer."""
    _check_broker(app)
    wiring.open_claims(app.settings, app.broker_url).leases.renew(
        f"{app.run.name}-start", timedelta(seconds=1)
    )
    letters = app.open_dead_letter_queue()
    try:
        letters.receive(app.dead_letter_domains(), limit=1, wait=timedelta(0))
    finally:
        letters.close()
    ledger = app.open_ledger()
    try:
        ledger.get_failure_stats()
    finally:
        ledger.close()


def _check_broker(app: Any) -> None:
    from kombu.utils.url import maybe_sanitize_url

    connection = app.connection_for_write()
    try:
        connection.ensure_connection(max_retries=1, interval_start=0.2, timeout=5)
    except Exception as error:
        where = maybe_sanitize_url(app.broker_url)
        msg = f"the broker at {where} does not answer ({error}); start it, or name another"
        raise ConfigurationError(msg) from error
    finally:
        connection.release()


def clean(app: Any) -> None:
    """Remove the run's queues, topics and keys; what cannot be removed is logged and left."""
    run: Run = app.run
    if run.embedded and app.settings.dlq.backend in (None, "channel"):
        return
    domains = app.dead_letter_domains()
    places = letter_wiring.places(app.settings, app.broker_url)
    letters = [_letters_cleaner(app, place, domains) for place in places]
    for step in (_broker_cleaner(app), _store_cleaner(app), *letters):
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the run is over, its result stands
            _log.warning("demo_not_removed: something of %s was left behind: %s", run.name, error)


def _nothing() -> None:
    """Remove nothing: there is nothing, or it ends by itself."""


def _broker_cleaner(app: Any) -> Callable[[], None]:
    if app.broker_url.startswith(("redis", "rediss")):
        return lambda: _unlink(app.broker_url, app.run.name)
    if wiring.is_amqp(app.broker_url):
        queues = [app.run.name, f"{app.run.name}-outcomes"]
        return lambda: _delete_amqp(app.broker_url, queues, exchanges=queues)
    return _nothing


def _store_cleaner(app: Any) -> Callable[[], None]:
    store = wiring.store_url(app.settings, app.broker_url)
    if store.startswith(("redis", "rediss")):
        return lambda: _unlink(store, app.run.name)
    return _nothing


def _letters_cleaner(app: Any, place: str, domains: Sequence[str]) -> Callable[[], None]:
    given = app.settings.dlq
    names = [queue_name(domain) for domain in domains]
    match place:
        case "kafka":
            return lambda: _delete_topics(given.kafka_brokers, names)
        case "sqs" | "sns_sqs":
            return lambda: _delete_aws(given, domains, topics=place == "sns_sqs")
        case "pubsub":
            return lambda: _delete_pubsub(given.pubsub_project, names)
        case "amqp":
            return lambda: _delete_amqp(given.amqp_url or app.broker_url, names)
        case _:
            return _nothing


def _unlink(url: str, prefix: str) -> None:
    import redis

    with redis.Redis.from_url(url) as client:
        if keys := list(client.scan_iter(f"*{prefix}*", count=1000)):
            client.unlink(*keys)


def _delete_amqp(url: str, queues: Sequence[str], exchanges: Sequence[str] = ()) -> None:
    from kombu import Connection

    with Connection(url) as connection:
        for name in queues:
            with suppress(connection.channel_errors):  # it closes the channel where it is missing
                connection.channel().queue_delete(name)
        for name in exchanges:
            with suppress(connection.channel_errors):
                connection.channel().exchange_delete(name)


def _delete_topics(brokers: str, names: Sequence[str]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.delete_topics(list(names)).values():
        with suppress(Exception):  # a topic without letters was never made
            future.result(timeout=10)


def _delete_aws(given: DeadLetterSettings, domains: Sequence[str], *, topics: bool) -> None:
    """Delete queues and, with *topics*, the topics of their names with their subscriptions."""
    import boto3

    from angzarr.adapters.sqs.fan_out import topic_beside
    from angzarr.adapters.sqs.queues import FIFO_SUFFIX

    session = boto3.Session(profile_name=given.aws_profile, region_name=given.aws_region)
    sqs = session.client("sqs", endpoint_url=given.aws_endpoint_url)
    sns = session.client("sns", endpoint_url=given.aws_endpoint_url)
    for domain in domains:
        name = queue_name(domain, FIFO_SUFFIX if given.aws_fifo else "")
        with suppress(sqs.exceptions.QueueDoesNotExist):
            url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
            if topics:
                told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
                sns.delete_topic(TopicArn=topic_beside(told["Attributes"]["QueueArn"]))
            sqs.delete_queue(QueueUrl=url)


def _delete_pubsub(project: str, names: Sequence[str]) -> None:
    from google.api_core.exceptions import NotFound
    from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient

    with PublisherClient() as publisher, SubscriberClient() as subscriber:
        for name in names:
            with suppress(NotFound):
                path = subscriber.subscription_path(project, name)
                subscriber.delete_subscription(subscription=path)
            with suppress(NotFound):
                publisher.delete_topic(topic=publisher.topic_path(project, name))
