"""Which replay jobs wait for a second person, and what is counted beside them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hand_clock import START

from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.replay.job import AUTOMATIC, JobPlan, JobStatus, ReplayJob, Selection
from angzarr.analysis.replay.job_limits import (
    ADDED_UP,
    besides,
    is_anybody,
    others_matter,
    same_person,
    waits_for,
)
from angzarr.analysis.replay.job_progress import filled

GROUP = Selection(wanted=EntryFilter(fingerprint="g1"))
OTHER = Selection(wanted=EntryFilter(fingerprint="g2"))
FILTER = Selection(wanted=EntryFilter(handler_name="orders.sync"))
NAMED = Selection(entry_ids=("e1",))


def job(**fields) -> ReplayJob:
    given = {
        "id": "new", "selection": GROUP, "plan": JobPlan(), "created_by": "ada@host1",
        "created_at": START,
    }  # fmt: skip
    return ReplayJob(**given | fields)


def other(**fields) -> ReplayJob:
    return job(**{"id": "other", "total": 10, "sent": 4, "refused": 1} | fields)


@pytest.mark.parametrize("selection", [GROUP, OTHER, FILTER, NAMED])
@pytest.mark.parametrize("by", ["ada@host1", "ada@host2", "Ada", "ada"])
def test_all_that_a_person_has_under_way_adds_up_whatever_it_is_about(selection, by):
    under_way = other(selection=selection, created_by=by)
    assert besides([under_way], job()) == 9
    assert besides([replace(under_way, status=JobStatus.HALTED)], job()) == 9


def test_what_a_job_sent_counts_for_a_day_after_it_ended():
    done = other(status=JobStatus.DONE, ended_at=START - ADDED_UP + timedelta(seconds=1))
    assert besides([done], job()) == 4
    assert besides([replace(done, ended_at=START - ADDED_UP)], job()) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"created_by": "bob@host1"},
        {"approved_by": "bob"},
        {"status": JobStatus.PROPOSED},
        {"id": "new"},
        {"created_by": AUTOMATIC},
        {"status": JobStatus.CANCELLED, "sent": 0, "ended_at": START},
    ],
    ids=["another's", "approved", "sends nothing", "itself", "automatic", "never sent"],
)
def test_what_goes_round_no_second_person_does_not_count(fields):
    assert besides([other(**fields)], job()) == 0


def test_automatic_jobs_add_up_over_one_group_only():
    new = job(created_by=AUTOMATIC)
    assert besides([other(created_by=AUTOMATIC)], new) == 9
    assert besides([other(created_by=AUTOMATIC, selection=OTHER)], new) == 0
    done = other(created_by=AUTOMATIC, status=JobStatus.DONE, ended_at=START)
    assert besides([done, other()], new) == 0


@given(st.lists(st.integers(2, 30), min_size=1), st.integers(0, 60))
def test_nobody_replays_more_than_the_limit_in_jobs_without_a_second_person(sizes, limit):
    begun: list[ReplayJob] = []
    for number, size in enumerate(sizes):
        fresh = job(id=f"j{number}", selection=(GROUP, FILTER, NAMED)[number % 3])
        made = filled(
            fresh, total=size, handlers=(), elsewhere=(0, ""), behind="", approval_over=limit,
            besides=besides(begun, fresh),
        )  # fmt: skip
        if made.status is JobStatus.RUNNING and number % 2:
            made = replace(made, status=JobStatus.DONE, sent=size, ended_at=START)
        begun.append(made)
    alone = [one for one in begun if one.status is not JobStatus.PROPOSED]
    assert sum(one.total for one in alone) <= limit


def test_the_reason_says_what_was_counted():
    assert waits_for(3, 0, 2) == "more than 2 entries: a second person must approve"
    assert "with 2 of other jobs of the last day" in waits_for(2, 2, 3)
    assert waits_for(2, 1, 3) == waits_for(1, 100, 3) == waits_for(99, 99, None) == ""


def test_others_matter_only_where_the_limit_is_not_passed_without_them():
    assert [others_matter(total, 5) for total in (0, 1, 2, 5, 6)] == [
        False, False, True, True, False,
    ]  # fmt: skip
    assert not others_matter(3, None)


@given(st.integers(0, 20), st.integers(0, 20), st.none() | st.integers(0, 20))
def test_what_is_not_asked_would_change_nothing(total, beside, limit):
    if not others_matter(total, limit):
        assert bool(waits_for(total, beside, limit)) == bool(waits_for(total, 0, limit))


def test_a_person_has_one_login_wherever_he_sits():
    assert same_person("ada@host", "ADA")
    assert not same_person("ada@host", "bob@host")


def test_whoever_acts_without_a_token_may_be_anybody():
    assert same_person("local", "ada@host")
    assert same_person("ada", "local")
    assert not is_anybody("locale@host")
    assert besides([other(created_by="local")], job(created_by="ada@host")) == 9
    assert besides([other(created_by="ada@host")], job(created_by="local")) == 9
    assert besides([other(created_by=AUTOMATIC)], job(created_by="local")) == 0
