from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from tests.hand_clock import START, HandClock

from angzarr.analysis.ledger.entry import OPEN, Status
from angzarr.analysis.ledger.upkeep import ClosedEntries, EntryRetention, ended_jobs
from angzarr.analysis.replay.job_limits import ADDED_UP
from angzarr.analysis.worker.auto_replay import LEFT_TO_PEOPLE, LONGEST_PAUSE
from angzarr.errors import ConfigurationError
from angzarr.maintenance.retention import PAUSE, Pruning
from angzarr.settings.settings import load

NOTHING = timedelta(0)
A_MONTH = EntryRetention(closed=timedelta(days=30))


class FakeLedger:
    """Has so many entries to remove."""

    def __init__(self, entries: int) -> None:
        self.entries, self.asked = entries, []

    def prune(self, before, *, limit):
        self.asked.append(before)
        removed = min(limit, self.entries)
        self.entries -= removed
        return removed


def pruning(ledger, retention=A_MONTH, batch=10):
    removal = ClosedEntries(ledger=ledger, retention=retention, batch=batch)
    return Pruning(removal=removal, clock=HandClock())


def test_nothing_open_is_ever_to_be_removed():
    every = EntryRetention(closed=NOTHING, archived=NOTHING)
    assert OPEN & every.ends(START).keys() == set()
    assert every.ends(START).keys() | OPEN == set(Status)


def test_what_is_kept_for_ever_is_not_asked_for():
    ledger = FakeLedger(5)
    assert pruning(ledger, EntryRetention()).turn(NOTHING) == 0
    assert ledger.asked == []
    assert Status.ARCHIVED not in A_MONTH.ends(START)


def test_batches_follow_each_other_until_nothing_is_left_and_then_it_pauses(caplog):
    caplog.set_level(logging.INFO, "angzarr.pruning")
    ledger = FakeLedger(25)
    duty = pruning(ledger)
    assert [duty.turn(NOTHING) for _ in range(5)] == [10, 10, 5, 0, 0]
    assert len(ledger.asked) == 3
    assert caplog.messages == ["removed 25 entries that were closed long ago"]
    ledger.entries = 3
    duty.clock.sleep(PAUSE)
    assert duty.turn(NOTHING) == 3
    assert ledger.asked[-1][Status.RESOLVED] == START + PAUSE - timedelta(days=30)


def test_a_look_that_finds_nothing_says_nothing(caplog):
    caplog.set_level(logging.INFO, "angzarr.pruning")
    assert pruning(FakeLedger(0)).turn(NOTHING) == 0
    assert caplog.messages == []


def test_jobs_go_in_batches_some_time_after_their_end(caplog):
    caplog.set_level(logging.INFO, "angzarr.pruning")
    jobs, clock = FakeLedger(25), HandClock()
    removal = ended_jobs(jobs, timedelta(days=90), batch=10)
    duty = Pruning(removal=removal, clock=clock)
    assert [duty.turn(NOTHING) for _ in range(4)] == [10, 10, 5, 0]
    assert set(jobs.asked) == {START - timedelta(days=90)}
    assert caplog.messages == ["removed 25 replay jobs that ended long ago and entries of them"]
    for_ever = Pruning(removal=ended_jobs(jobs, None), clock=clock)
    assert (for_ever.turn(NOTHING), len(jobs.asked)) == (0, 3)


def test_jobs_are_kept_for_as_long_as_others_are_judged_by_them(monkeypatch):
    monkeypatch.delenv("ANGZARR_CONFIG", raising=False)
    assert load({}).analysis.keep_jobs == timedelta(days=90)
    assert load({"analysis": {"keep_jobs": "for ever"}}).analysis.keep_jobs is None
    with pytest.raises(ConfigurationError, match="keep_jobs"):
        load({"analysis": {"keep_jobs": 3600}})
    assert max(LEFT_TO_PEOPLE, ADDED_UP, LONGEST_PAUSE) <= timedelta(days=1)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("for ever", None), (None, timedelta(days=30)), (86400, timedelta(days=1))],
)
def test_how_long_entries_are_kept_is_a_setting(given, kept, monkeypatch):
    monkeypatch.delenv("ANGZARR_CONFIG", raising=False)
    analysis = {} if given is None else {"keep_closed": given}
    assert load({"analysis": analysis}).analysis.keep_closed == kept
    if given is not None:
        monkeypatch.setenv("ANGZARR_ANALYSIS__KEEP_CLOSED", str(given))
        assert load({}).analysis.keep_closed == kept


@pytest.mark.parametrize("name", ["keep_closed", "keep_archived", "keep_jobs"])
@pytest.mark.parametrize("given", [86399, "PT23H", 0, -1])
def test_what_is_kept_is_kept_for_a_day_at_least(name, given, monkeypatch):
    monkeypatch.delenv("ANGZARR_CONFIG", raising=False)
    with pytest.raises(ConfigurationError) as refused:
        load({"analysis": {name: given}})
    assert str(refused.value).endswith(
        f'analysis.{name}: must be a day or longer (86400 seconds), or "for ever"'
    )
