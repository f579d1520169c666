from __future__ import annotations

from datetime import timedelta

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.grpc.exchange import DETAILS, CallAttempts, ReportedStatus
from angzarr.resilience.policies import POLICIES
from hand_clock import START

POLICY = POLICIES["grpc_connection"]
AWAY = ReportedStatus(grpc.StatusCode.UNAVAILABLE, "away")
HOUR = timedelta(hours=1)


def asking(seconds: int) -> ReportedStatus:
    wish = AnyMessage()
    wish.Pack(RetryInfo(retry_delay=Duration(seconds=seconds)))
    raw = Status(code=14, details=[wish]).SerializeToString()
    return AWAY._replace(metadata=((DETAILS, raw),))


@given(st.timedeltas(timedelta(0), timedelta(minutes=5)), st.floats(0, 0.999))
def test_all_pauses_together_stay_within_the_deadline(deadline, chance):
    now, attempts = START, CallAttempts(POLICY, START + deadline)
    while (pause := attempts.after(AWAY, now, chance)) is not None:
        now += pause
        assert 0 < attempts.left(now) <= deadline.total_seconds()
    assert now <= START + deadline
    assert attempts.tries <= POLICY.max_attempts


def test_a_server_that_stays_away_is_tried_as_often_as_the_policy_says():
    attempts = CallAttempts(POLICY, START + HOUR)
    pauses = [attempts.after(AWAY, START, 0.0) for _ in range(POLICY.max_attempts)]
    assert [pause.total_seconds() for pause in pauses[:7]] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5]
    assert pauses[-2:] == [timedelta(seconds=5), None]


@pytest.mark.parametrize(
    "code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.UNAVAILABLE]
)
def test_any_other_code_is_final(code):
    assert CallAttempts(POLICY, START + HOUR).after(ReportedStatus(code, ""), START, 0.0) is None


def test_the_server_is_given_the_time_that_it_asks_for():
    pause = CallAttempts(POLICY, START + HOUR).after(asking(20), START, 0.5)
    assert timedelta(seconds=20) < pause < timedelta(seconds=21)


def test_a_wish_beyond_the_deadline_ends_it():
    assert CallAttempts(POLICY, START + timedelta(seconds=20)).after(asking(20), START, 0.0) is None


def test_no_time_is_left_behind_the_deadline():
    assert CallAttempts(POLICY, START).left(START + HOUR) == 0
