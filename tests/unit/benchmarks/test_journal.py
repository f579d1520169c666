from __future__ import annotations

import os
import time

import pytest
from harness.relay import NeverBack, start_of
from workers.hold import hold
from workers.journal import Journal


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "journal")
    yield made
    made.close()


def test_every_start_is_kept_with_its_moment_and_its_worker(journal):
    before = time.monotonic()
    for number in (7, 3, 7):
        journal.write(number)

    starts = list(journal)
    assert [start.number for start in starts] == [7, 3, 7]
    assert all(before - 0.001 <= start.moment <= time.monotonic() for start in starts)
    assert {start.worker for start in starts} == {os.getpgrp()}
    assert len(journal) == 3
    assert journal.starts(7) == [starts[0], starts[2]]


def test_two_writers_append_to_one_journal(journal, tmp_path):
    other = Journal(tmp_path / "journal")
    journal.write(1)
    other.write(2)
    journal.write(3)
    other.close()
    assert [start.number for start in journal] == [1, 2, 3]


def test_the_first_start_holds_its_message_and_the_second_ends_at_once(journal, monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr("workers.hold.HOLD", 300.0)
    monkeypatch.setattr("workers.hold.time.sleep", slept.append)

    hold(journal, 4)
    assert slept == [300.0]
    hold(journal, 4)
    assert slept == [300.0]
    assert len(journal) == 2


def test_the_second_start_is_the_one_that_is_waited_for(journal):
    for number in (1, 0, 1):
        journal.write(number)
    assert start_of(journal, 1, 1, patience=0) == list(journal)[2]


def test_a_message_that_does_not_come_back_is_told(journal):
    journal.write(5)
    with pytest.raises(NeverBack, match="message 5 had 1 starts after 0 s"):
        start_of(journal, 5, 1, patience=0)
