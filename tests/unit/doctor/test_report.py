from __future__ import annotations

import json

import pytest

from angzarr.doctor import finding, redis_rules
from angzarr.doctor.finding import Severity
from angzarr.doctor.report import SCHEMA, DoctorReport, as_json, chosen

CRITICAL = redis_rules.EVICTS.found("b", "allkeys-lru", "set noeviction")
ERROR = finding.away("a", "refused")
UNKNOWN = finding.not_looked_at("c", "no right", "look")
INFO = redis_rules.FSYNC.found("d", "everysec", "always")


def report(*findings):
    return DoctorReport(app="app shop", servers=["a"], findings=chosen(findings), seconds=1.23456)


def test_the_worst_comes_first_and_what_is_unknown_after_what_is_known():
    found = report(UNKNOWN, INFO, ERROR, CRITICAL).findings
    assert list(found) == [CRITICAL, ERROR, INFO, UNKNOWN]


@pytest.mark.parametrize(
    ("findings", "at", "fails"),
    [
        ([], Severity.INFO, False),
        ([CRITICAL], None, False),
        ([CRITICAL], Severity.CRITICAL, True),
        ([ERROR], Severity.CRITICAL, False),
        ([ERROR], Severity.ERROR, True),
        ([INFO], Severity.WARNING, False),
        ([INFO], Severity.INFO, True),
        ([UNKNOWN], Severity.INFO, False),
    ],
)
def test_it_fails_from_the_severity_on_that_was_asked_for(findings, at, fails):
    assert report(*findings).fails(at) is fails


def test_checks_are_chosen_and_left_out_by_id():
    everything = [CRITICAL, ERROR, INFO]
    assert chosen(everything, only=["redis-evicts", "server-away"]) == [CRITICAL, ERROR]
    assert chosen(everything, skip=["redis-evicts"]) == [ERROR, INFO]
    assert chosen(everything, only=["redis-evicts"], skip=["redis-evicts"]) == []


def test_what_is_unknown_is_counted_as_that():
    counts = report(CRITICAL, UNKNOWN, INFO).counts()
    assert counts == {"critical": 1, "error": 0, "warning": 0, "info": 1, "unknown": 1}


def test_the_json_form_keeps_its_fields():
    told = json.loads(json.dumps(as_json(report(CRITICAL, UNKNOWN), Severity.ERROR, [])))
    assert (told["schema"], SCHEMA) == (1, 1)
    assert list(told) == [
        "schema", "app", "failed", "fail_on", "counts", "servers", "seconds", "findings", "fixed",
    ]  # fmt: skip
    first, second = told["findings"]
    assert first == {
        "id": "redis-evicts", "severity": "critical", "known": True, "area": "Redis", "at": "b",
        "seen": "allkeys-lru", "why": redis_rules.EVICTS.why, "change": "set noeviction",
        "fixable": False,
    }  # fmt: skip
    assert second["known"] is False
    assert as_json(report(), None, [])["fail_on"] == "never"
