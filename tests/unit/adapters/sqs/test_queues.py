"""What a queue of others lacks is named with the cure."""

from __future__ import annotations

import json

import pytest

from angzarr.adapters.sqs.queues import weaknesses


def test_a_queue_like_ours_lacks_nothing():
    assert weaknesses({"MessageRetentionPeriod": "1209600"}) == []
    assert weaknesses({}) == [], "what SQS does not tell is not guessed"


def test_a_short_retention_and_a_redrive_policy_are_named():
    redrive = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:1:aside", "maxReceiveCount": "3"}
    assert weaknesses({"MessageRetentionPeriod": "60", "RedrivePolicy": json.dumps(redrive)}) == [
        "MessageRetentionPeriod=60 (set it to 1209600)",
        "a letter received 3 times is moved to aside (remove its redrive policy)",
    ]


@pytest.mark.parametrize("redrive", ["x", "[]", "7", '{"deadLetterTargetArn": 1}', "[" * 100_000])
def test_a_redrive_policy_that_cannot_be_read_is_named_too(redrive):
    [told] = weaknesses({"RedrivePolicy": redrive})
    assert told == (
        "letters received several times are moved to another queue (remove its redrive policy)"
    )
