"""Whether a queue's policy lets a topic send is known for what people write, and never guessed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.sqs.fan_out import Sending, judge, policy_for

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
