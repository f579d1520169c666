"""What SNS wraps is unwrapped, and nothing else is touched."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.sqs.letter_messages import BASE64, Text, unwrapped

NOTIFICATION = {
    "Type": "Notification",
    "MessageId": "m-1",
    "TopicArn": "arn:aws:sns:us-east-1:123456789012:angzarr-dlq-order",
    "Message": '{"a": 1}',
    "MessageAttributes": {"content_type": {"Type": "String", "Value": "application/json"}},
}


def test_a_notification_gives_its_message_and_its_content_type():
    assert unwrapped(Text(json.dumps(NOTIFICATION))) == Text('{"a": 1}', "application/json")


def test_a_notification_gives_its_transfer_encoding():
    attributes = {"content_transfer_encoding": {"Type": "String", "Value": BASE64}}
    text = json.dumps(NOTIFICATION | {"MessageAttributes": attributes, "Message": "/w=="})
    assert unwrapped(Text(text)) == Text("/w==", "", BASE64)


def test_what_names_its_own_content_type_is_no_notification():
    for told in (("application/json", ""), ("", BASE64)):
        text = Text(json.dumps(NOTIFICATION), *told)
        assert unwrapped(text) == text


@pytest.mark.parametrize(
    "changes",
    [{"Type": "SubscriptionConfirmation"}, {"TopicArn": None}, {"Message": {"a": 1}}],
)
def test_what_only_looks_like_one_comes_as_it_is(changes):
    text = json.dumps(NOTIFICATION | changes)
    assert unwrapped(Text(text)) == Text(text)


@pytest.mark.parametrize(
    "attributes", [None, [], {"content_type": "x"}, {"content_type": {"Value": 7}}, "x"]
)
def test_attributes_that_are_malformed_say_nothing(attributes):
    text = json.dumps(NOTIFICATION | {"MessageAttributes": attributes})
    assert unwrapped(Text(text)) == Text('{"a": 1}')


@pytest.mark.parametrize("text", ['"TopicArn"' + "[" * 100_000, '{"TopicArn"', '["TopicArn"]', ""])
def test_hostile_text_comes_as_it_is(text):
    assert unwrapped(Text(text)) == Text(text)


@given(st.text())
def test_any_message_survives_its_envelope(message):
    assert unwrapped(Text(json.dumps(NOTIFICATION | {"Message": message}))).text == message
