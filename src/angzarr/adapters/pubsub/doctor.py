"""Reads the Pub/Sub subscriptions of dead letters for the doctor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.api_core.exceptions import GoogleAPICallError, NotFound
from google.auth.exceptions import GoogleAuthError

from angzarr.adapters.pubsub.client import Clients, PubSubService
from angzarr.adapters.pubsub.topics import longest_retention, problem_of, weaknesses
from angzarr.dead_letters.names import queue_name
from angzarr.doctor.letter_rules import LetterQueueSeen

#: What the doctor's caller turns into one finding.
FAILURES: Final = (GoogleAPICallError, GoogleAuthError)


def letter_queues(
    service: PubSubService, domains: Sequence[str], *, create_missing: bool
) -> list[LetterQueueSeen]:
    """The subscriptions of *domains*; raises the client's error if there is no answer."""
    clients = Clients(service)
    try:
        return [_seen(clients, domain, create_missing=create_missing) for domain in domains]
    finally:
        clients.close()


def _seen(clients: Clients, domain: str, *, create_missing: bool) -> LetterQueueSeen:
    name, service = queue_name(domain), clients.service
    found = _subscription(clients, name)
    if found is None:
        return LetterQueueSeen(
            domain=domain, name=name, exists=False, made_when_missing=create_missing
        )
    topic, ordering = service.topic(name), service.ordering
    return LetterQueueSeen(
        domain=domain,
        name=name,
        unfit=problem_of(found, topic, ordering=ordering, reading=False),
        weak=weaknesses(found, longest_retention()),
    )


def _subscription(clients: Clients, name: str) -> Any:
    try:
        return clients.subscriber.get_subscription(
            subscription=clients.service.subscription(name), **clients.service.once
        )
    except NotFound:
        return None
