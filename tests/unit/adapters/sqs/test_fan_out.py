"""Which topics lose what they are given, how much they take, and when all of AWS knows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from angzarr.adapters.sqs.fan_out import (
    CHANGED_FOR,
    NEW_FOR,
    FanOut,
    changed_for,
    lacks,
    limit,
    new_for,
    policy_for,
    queue_beside,
    topic_beside,
    warnings,
)

QUEUE = "arn:aws-cn:sqs:cn-north-1:123456789012:angzarr-dlq-order"
TOPIC = "arn:aws-cn:sns:cn-north-1:123456789012:angzarr-dlq-order"
SOUND = FanOut(
    name="angzarr-dlq-order",
    topic_arn=TOPIC,
    topic={},
    queue={
        "QueueArn": QUEUE,
        "Policy": policy_for(QUEUE, TOPIC),
        "MaximumMessageSize": "1048576",
        "CreatedTimestamp": "1000",
        "LastModifiedTimestamp": "1000",
    },
    subscription={"RawMessageDelivery": "true", "PendingConfirmation": "false"},
)


def changed(part, **attributes):
    return replace(SOUND, **{part: {**getattr(SOUND, part), **attributes}})


def test_topic_and_queue_of_one_name_stand_beside_each_other():
    assert topic_beside(QUEUE) == TOPIC
    assert queue_beside(TOPIC) == QUEUE


def test_a_sound_topic_lacks_nothing():
    assert (lacks(SOUND), warnings(SOUND)) == ([], [])


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (changed("queue", Policy=""), "does not let the topic send to it: add the statement"),
        (changed("queue", KmsMasterKeyId="alias/aws/sqs"), "which SNS may not use: set Sqs"),
        (changed("subscription", FilterPolicy='{"a": ["b"]}'), "does not fit: remove it"),
        (changed("subscription", PendingConfirmation="true"), "its confirmation: confirm it"),
    ],
)
def test_what_would_lose_letters_is_told_with_the_cure(found, told):
    [lack] = lacks(found)
    assert told in lack
    assert "angzarr-dlq-order" in lack


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (changed("subscription", RawMessageDelivery="false"), "set RawMessageDelivery=true"),
        (changed("queue", KmsMasterKeyId="alias/ours"), "kms:GenerateDataKey"),
        (
            changed("queue", Policy=policy_for(QUEUE, TOPIC).replace("SourceArn", "SourceOrgID")),
            "conditions that are not judged",
        ),
    ],
)
def test_what_may_lose_letters_is_a_warning(found, told):
    assert lacks(found) == []
    [warning] = warnings(found)
    assert told in warning


@pytest.mark.parametrize(
    ("found", "size"),
    [
        (SOUND, 262_144),
        (changed("topic", MaximumMessageSize="1048576"), 1_048_576),
        (changed("queue", MaximumMessageSize="4096"), 4096),
        (changed("queue", MaximumMessageSize="262144"), 262_144),
        (changed("subscription", RawMessageDelivery="false"), 262_144),
    ],
)
def test_a_letter_may_be_as_large_as_both_take(found, size):
    assert limit(found) == size


def test_a_message_that_is_not_delivered_raw_must_fit_with_its_envelope():
    found = changed("subscription", RawMessageDelivery="false")
    small = replace(found, queue={**found.queue, "MaximumMessageSize": "262144"})
    assert 3 * limit(small) + 4096 <= 262_144
    assert limit(replace(found, queue={**found.queue, "MaximumMessageSize": "1024"})) == 0


def test_what_is_new_is_waited_for_and_no_longer_if_clocks_differ():
    assert new_for(SOUND, 1000.0) == NEW_FOR
    assert new_for(SOUND, 900.0) == NEW_FOR
    assert new_for(SOUND, 1000.0 + NEW_FOR) == 0
    assert new_for(replace(SOUND, is_new=True), 9999.0) == NEW_FOR
    assert changed_for(SOUND, 1000.0) == 0


def test_a_policy_that_was_given_later_is_not_trusted_at_once():
    later = changed("queue", LastModifiedTimestamp="5000")
    assert changed_for(later, 5000.0) == changed_for(later, 4000.0) == CHANGED_FOR
    assert changed_for(later, 5000.0 + CHANGED_FOR) == 0
    assert changed_for(replace(SOUND, policy_is_new=True), 9999.0) == CHANGED_FOR
    assert changed_for(changed("queue", LastModifiedTimestamp="1001"), 1001.0) == 0
