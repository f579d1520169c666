"""angzarr dlq brake."""

from __future__ import annotations

import json


def test_a_brake_is_pulled_shown_and_released(app, run):
    assert "released" in run("dlq", "brake", "status").output
    pulled = run("dlq", "brake", "pull", "--why", "the CRM is ill", "--for", "2h")
    assert "nothing is replayed by itself" in pulled.output
    state = json.loads(run("dlq", "brake", "status", "--json").output)
    assert (state["holds"], state["why"]) == ("automatic", "the CRM is ill")
    assert state["until"]
    assert "jobs included" in run("dlq", "brake", "pull", "--all").output
    assert "go on" in run("dlq", "brake", "release").output
    history = json.loads(run("dlq", "brake", "history", "--json").output)
    assert [one["scope"] for one in history] == ["automatic", "all", "nothing"]
    assert "the CRM is ill" in run("dlq", "brake", "history").output


def test_a_duration_that_is_none_is_refused(app, run):
    done = run("dlq", "brake", "pull", "--for", "soon")
    assert done.exit_code == 2
    assert "write 90s, 15m" in done.output
