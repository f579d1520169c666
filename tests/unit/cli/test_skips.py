"""Entries of ordered handlers at the command line: their lanes go on, and what waits is told."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.contracts.ledger import ordered_letter_of
from tests.hand_clock import HandClock, seldom_by
from tests.unit.cli.ledger_app import held

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.replay.replay import ReplayTargets
from angzarr.cli import application as behind
from angzarr.cli.application import WaitingBehind
from angzarr.errors import ConfigurationError, StoreUnavailable
from angzarr.events import headers as names


class FakeLanes:
    """Lanes that count what waits behind letters."""

    def __init__(self) -> None:
        self.waiting = {}
        self.asked = []
        self.error = None
        self.closed = 0

    def behind(self, letter_ids):
        self.asked.append(list(letter_ids))
        if self.error:
            raise self.error
        return {one: self.waiting[one] for one in letter_ids if one in self.waiting}

    def close(self):
        self.closed += 1


class Stores:
    def __init__(self, lanes) -> None:
        self.lanes = lanes


@pytest.fixture
def lanes(monkeypatch, app):
    app.broker_url = "memory://"
    lanes = FakeLanes()
    monkeypatch.setattr(behind, "open_ordering", lambda _settings, _broker: Stores(lanes))
    return lanes


def ordered(ledger, event_id="e1", sequence=3):
    letter = ordered_letter_of(event_id, sequence)
    return held(ledger, event_id, component_type=letter.component_type, event=letter.event,
                message=letter.message)  # fmt: skip


def test_a_skip_sends_what_lets_the_lane_go_on_and_says_so(app, ledger, run):
    entry = ordered(ledger)
    done = run("dlq", "skip", entry.id, "--yes", "--note", "a test order")
    assert done.exit_code == 0, done.output
    assert "later events of its aggregate go on without it" in done.stderr
    (sent,) = app.publisher.sent
    assert names.skip_of(sent.headers).endswith(": a test order")
    assert ledger.open(entry.id).entry.status is Status.SKIPPED


def test_what_is_archived_holds_its_lane_up_and_that_is_said(app, ledger, run):
    entry = ordered(ledger)
    done = run("dlq", "archive", entry.id, "--yes")
    assert "wait on behind it" in done.stderr
    assert app.publisher.sent == []


def test_while_the_broker_is_away_it_is_told_that_the_worker_sends_it(app, ledger, run):
    entry = ordered(ledger)
    app.publisher.away = True
    done = run("dlq", "skip", entry.id, "--yes")
    assert done.exit_code == 0
    assert "later events wait behind 1 entry: the analysis worker lets them go on" in done.stderr


def test_a_dry_run_says_what_could_not_be_sent_and_sends_nothing(app, ledger, run):
    entry = ordered(ledger)
    assert run("dlq", "skip", entry.id, "--dry-run").exit_code == 0
    app.replay_targets = lambda: ReplayTargets(tasks=set(), queues=set())
    refused = run("dlq", "skip", entry.id, "--dry-run")
    assert refused.exit_code == 1
    assert "could not go on" in " ".join(refused.output.split())
    assert app.publisher.sent == []
    assert ledger.open(entry.id).entry == entry


def test_the_list_counts_what_waits_in_one_question(ledger, run, lanes):
    first, second = ordered(ledger), ordered(ledger, "e2", 4)
    held(ledger, "e3")
    lanes.waiting = {first.letter_id: 1700}
    told = json.loads(run("dlq", "list", "--json").output)["entries"]
    counts = {one["id"]: one["events_behind"] for one in told}
    assert (counts.pop(first.id), set(counts.values())) == (1700, {None})
    assert lanes.asked == [sorted([first.letter_id, second.letter_id])]
    assert lanes.closed == 1
    assert "1,700" in run("dlq", "list").output


def test_an_entry_says_how_many_events_of_what_wait(ledger, run, lanes):
    entry = ordered(ledger)
    lanes.waiting = {entry.letter_id: 17}
    shown = run("dlq", "show", entry.id)
    assert "17 later events of order/o-1 wait behind it" in " ".join(shown.output.split())
    assert json.loads(run("dlq", "show", entry.id, "--json").output)["events_behind"] == 17


def test_nobody_is_asked_about_handlers_without_an_order(ledger, run, lanes):
    held(ledger)
    assert "behind" not in run("dlq", "list").output
    assert lanes.asked == []


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ConfigurationError("no database")])
def test_lanes_that_cannot_be_asked_are_not_spoken_of(ledger, run, lanes, error):
    entry = ordered(ledger)
    lanes.error = error
    shown = run("dlq", "show", entry.id, "--json")
    assert shown.exit_code == 0
    assert json.loads(shown.output)["events_behind"] is None


def test_lanes_that_are_away_are_asked_again_after_a_while_only(ledger):
    clock, lanes = HandClock(), FakeLanes()
    entry = ordered(ledger)
    count = WaitingBehind(lambda: lanes, seldom_by(clock))
    lanes.error = StoreUnavailable("away")
    assert count([entry]) == count([entry]) == {}
    assert len(lanes.asked) == 1
    lanes.error, lanes.waiting = None, {entry.letter_id: 2}
    clock.sleep(timedelta(minutes=1))
    assert count([entry]) == {entry.id: 2}
    count.close()
    count.close()
    assert lanes.closed == 1
