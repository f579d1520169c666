"""Which topics and policies lose letters, how much they take, and when all of AWS knows them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.sqs.fan_out import (
    CHANGED_FOR,
    NEW_FOR,
    FanOut,
    Sending,
    changed_for,
    judge,
    lacks,
    limit,
    new_for,
    policy_for,
    queue_beside,
    topic_beside,
    warnings,
)

CN_QUEUE = "arn:aws-cn:sqs:cn-north-1:123456789012:angzarr-dlq-order"
CN_TOPIC = "arn:aws-cn:sns:cn-north-1:123456789012:angzarr-dlq-order"
SOUND = FanOut(
    name="angzarr-dlq-order",
    topic_arn=CN_TOPIC,
    topic={},
    queue={
        "QueueArn": CN_QUEUE,
        "Policy": policy_for(CN_QUEUE, CN_TOPIC),
        "MaximumMessageSize": "1048576",
        "CreatedTimestamp": "1000",
        "LastModifiedTimestamp": "1000",
    },
    subscription={"RawMessageDelivery": "true", "PendingConfirmation": "false"},
)


def changed(part, **attributes):
    return replace(SOUND, **{part: {**getattr(SOUND, part), **attributes}})


def test_topic_and_queue_of_one_name_stand_beside_each_other():
    assert topic_beside(CN_QUEUE) == CN_TOPIC
    assert queue_beside(CN_TOPIC) == CN_QUEUE


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
            changed(
                "queue", Policy=policy_for(CN_QUEUE, CN_TOPIC).replace("SourceArn", "SourceOrgID")
            ),
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


QUEUE = "arn:aws:sqs:eu-central-1:123456789012:angzarr-dlq-order"
TOPIC = "arn:aws:sns:eu-central-1:123456789012:angzarr-dlq-order"


def statement(**changes):
    [given_] = json.loads(policy_for(QUEUE, TOPIC))["Statement"]
    return {key: value for key, value in (given_ | changes).items() if value is not None}


def said(*statements):
    return judge(json.dumps({"Statement": list(statements)}), QUEUE, TOPIC)


def test_our_own_policy_lets_the_topic_send_and_no_other():
    policy = policy_for(QUEUE, TOPIC)
    assert judge(policy, QUEUE, TOPIC) is Sending.ALLOWED
    assert judge(policy, QUEUE, f"{TOPIC}2") is Sending.REFUSED
    assert judge(policy, f"{QUEUE}2", TOPIC) is Sending.REFUSED


@pytest.mark.parametrize(
    "changes",
    [
        {"Principal": "*"},
        {"Principal": {"AWS": "*"}},
        {"Principal": {"Service": ["events.amazonaws.com", "sns.amazonaws.com"]}},
        {"Action": "SQS:*"},
        {"Action": ["sqs:ReceiveMessage", "sqs:Send*"]},
        {"Action": "*"},
        {"Resource": "*"},
        {"Resource": "arn:aws:sqs:*:123456789012:angzarr-dlq-*"},
        {"Condition": None},
        {"Condition": {"ArnLike": {"AWS:SourceArn": "arn:aws:sns:*:*:angzarr-dlq-*"}}},
        {"Condition": {"StringEquals": {"aws:SourceAccount": ["1", "123456789012"]}}},
        {"Condition": {"Bool": {"aws:SecureTransport": "true"}}},
    ],
)
def test_other_words_that_let_it_send_are_understood(changes):
    assert said(statement(**changes)) is Sending.ALLOWED


@pytest.mark.parametrize(
    "changes",
    [
        {"Principal": {"AWS": "arn:aws:iam::123456789012:root"}},
        {"Principal": None},
        {"Action": "sqs:ReceiveMessage"},
        {"Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:sns:::other"}}},
        {"Condition": {"StringEquals": {"aws:SourceAccount": "1"}, "NumericLess": {"x": 1}}},
    ],
)
def test_a_policy_that_does_not_let_it_send_is_told(changes):
    assert said(statement(**changes)) is Sending.REFUSED


def test_a_condition_that_is_beyond_us_is_said_to_be_unclear():
    beyond = {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}
    assert said(statement(Condition=beyond)) is Sending.UNCLEAR
    assert said(statement(Condition=beyond), statement()) is Sending.ALLOWED
    assert said(statement(Condition="?")) is Sending.UNCLEAR


def test_a_denial_wins_where_it_holds_for_the_topic():
    insecure = {"Bool": {"aws:SecureTransport": "false"}}
    denial = statement(Effect="Deny", Principal="*", Action="sqs:*")
    assert said(statement(), {**denial, "Condition": insecure}) is Sending.ALLOWED
    assert said(statement(), statement(Effect="Deny", Condition=None)) is Sending.REFUSED


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
keys = st.sampled_from(["Principal", "Action", "Resource", "Condition", "Effect", "Other"])


@given(st.text() | st.lists(st.dictionaries(keys, json_values)).map(
    lambda given_: json.dumps({"Statement": [statement() | one for one in given_]})
))  # fmt: skip
def test_no_policy_of_others_raises(policy):
    assert isinstance(judge(policy, QUEUE, TOPIC), Sending)
