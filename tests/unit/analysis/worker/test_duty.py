from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from tests.hand_clock import HandClock, seldom_by

from angzarr.analysis.worker.duty import Outages
from angzarr.analysis.worker.worker import AnalysisWorker
from angzarr.errors import LedgerUnavailable


class Failing:
    """A duty that raises what it is told to."""

    def __init__(self, name):
        self.name = name
        self.error = None

    def turn(self, wait):
        if self.error:
            raise self.error
        return 0


class Place:
    def __init__(self, caplog):
        self.clock = HandClock()
        self.duties = [Failing(name) for name in ("letters", "answers", "recovery")]
        self.worker = AnalysisWorker(
            duties=self.duties,
            name="analysis@here",
            chance=lambda: 0.5,
            outages=Outages(seldom=seldom_by(self.clock)),
        )
        self._caplog = caplog

    def lines(self, **errors):
        """Do one round in which duties fail with *errors*, and return what was said."""
        self._caplog.clear()
        for duty in self.duties:
            duty.error = errors.get(duty.name)
        self.worker.step()
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def place(caplog):
    with caplog.at_level(logging.INFO):
        yield Place(caplog)


def away(text="no database"):
    return LedgerUnavailable(text)


def all_away(text="no database"):
    return {name: away(text) for name in ("letters", "answers", "recovery")}


def test_one_cause_is_one_line_that_names_all_that_wait(place):
    assert place.lines(**all_away()) == [
        "work_waits: letters, answers, recovery wait, nothing is lost, trying again: no database"
    ]
    assert place.lines(**all_away()) == []


def test_a_cause_is_said_again_after_a_minute(place):
    place.lines(**all_away())
    place.clock.sleep(timedelta(minutes=1))
    assert len(place.lines(**all_away())) == 1


def test_another_cause_is_said_at_once_and_nothing_is_over_meanwhile(place):
    place.lines(**all_away())
    (line,) = place.lines(**all_away("the password is wrong"))
    assert line.endswith("the password is wrong")


def test_two_causes_are_two_lines(place):
    lines = place.lines(letters=away("no queue"), answers=away(), recovery=away())
    assert [line.split(" wait,")[0] for line in lines] == [
        "work_waits: letters",
        "work_waits: answers, recovery",
    ]


def test_texts_that_differ_in_numbers_are_one_cause(place):
    assert len(place.lines(letters=away("pid 12"), answers=away("pid 345"))) == 1


def test_what_is_back_is_said_once(place):
    place.lines(**all_away())
    assert place.lines() == ["answers, letters, recovery go on"]
    assert place.lines() == []


def test_what_comes_and_goes_is_two_lines_a_minute(place):
    said = [line for _ in range(5) for line in (*place.lines(letters=away()), *place.lines())]
    assert len(said) == 2


def test_a_fault_of_ours_keeps_its_stack_trace(place, caplog):
    place.lines(letters=ValueError("odd"))
    assert caplog.records[0].exc_info
