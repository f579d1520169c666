"""Rows of replay jobs."""

from __future__ import annotations

import json

import pytest
from tests.hand_clock import START

from angzarr.adapters.sql.ledger.job_rows import job_row
from angzarr.analysis.replay.job import JobPlan, ReplayJob, Selection


@pytest.mark.parametrize("original", [False, True])
def test_a_plan_that_leaves_no_edit_out_can_be_read_by_workers_of_before(original):
    plan = JobPlan(original=original)
    job = ReplayJob(id="j", selection=Selection(), plan=plan, created_by="ann", created_at=START)
    assert ("original" in json.loads(job_row(job)["plan"])) is original
