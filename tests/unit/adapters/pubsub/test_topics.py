from datetime import timedelta

import pytest

from angzarr.adapters.pubsub.topics import (
    RETENTIONS,
    new_subscription,
    problem_of,
    weaknesses,
)

TOPIC = "projects/p/topics/angzarr-dlq-order"


def made(**changes):
    subscription = new_subscription(
        "projects/p/subscriptions/angzarr-dlq-order",
        TOPIC,
        lease=timedelta(minutes=1),
        retention=timedelta(days=31),
        ordering=changes.pop("ordering", False),
    )
    for name, value in changes.items():
        setattr(subscription, name, value)
    return subscription


def test_a_subscription_that_we_make_never_expires_and_is_trusted():
    subscription = made()
    assert "expiration_policy" in subscription
    assert not subscription.expiration_policy.ttl
    assert problem_of(subscription, TOPIC, ordering=False, reading=False) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "projects/p/topics/another"},
        {"push_config": {"push_endpoint": "https://example.com"}},
        {"bigquery_config": {"table": "p.d.t"}},
        {"cloud_storage_config": {"bucket": "b"}},
        {"detached": True},
        {"filter": 'attributes.domain = "x"'},
    ],
)
@pytest.mark.parametrize("reading", [True, False])
def test_one_that_would_lose_letters_is_told_in_one_sentence(changes, reading):
    said = problem_of(made(**changes), TOPIC, ordering=False, reading=reading)
    assert said.startswith("the subscription angzarr-dlq-order ")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("changes", "ordering"), [({"topic": "_deleted-topic_"}, False), ({}, True)]
)
def test_letters_may_be_read_from_what_no_more_are_trusted_to(changes, ordering):
    assert problem_of(made(**changes), TOPIC, ordering=ordering, reading=False)
    assert problem_of(made(**changes), TOPIC, ordering=ordering, reading=True) == ""


def test_a_subscription_that_we_make_has_no_weaknesses():
    assert weaknesses(made(), RETENTIONS[0]) == []
    assert weaknesses(made(message_retention_duration=RETENTIONS[1]), RETENTIONS[1]) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"message_retention_duration": timedelta(days=7)},
            "message_retention_duration=604800s (set it to 2678400s)",
        ),
        (
            {"expiration_policy": {"ttl": timedelta(days=31)}},
            "it expires after 2678400s without a reader (let it never expire)",
        ),
        (
            {"dead_letter_policy": {"dead_letter_topic": "projects/p/topics/aside"}},
            "a letter delivered 5 times is moved to aside (remove its dead-letter policy)",
        ),
    ],
)
def test_what_google_gives_a_subscription_of_somebody_else_is_told(changes, said):
    assert weaknesses(made(**changes), RETENTIONS[0]) == [said]
