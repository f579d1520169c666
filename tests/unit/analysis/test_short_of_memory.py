"""An analysis worker that has no room to read a letter takes it for no unreadable one."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of
from tests.hand_clock import HandClock

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.worker.intake import MOST_TRIES, Intake
from angzarr.dead_letters import codec

NOW = timedelta(0)


class Filed:
    """What was filed; while *short* is set, there is no room for it."""

    def __init__(self):
        self.failures, self.short = [], None

    def file(self, failures):
        if self.short:
            raise self.short
        self.failures += failures

    file_undecided = file


@pytest.fixture
def filed():
    return Filed()


@pytest.fixture
def queue():
    return MemoryDeadLetterQueue(uuid.uuid4().hex)  # others leave letters in the usual channel


@pytest.fixture
def intake(queue, filed):
    return Intake(queue=queue, deciding=filed, clock=HandClock(), domains=["order"])


@pytest.fixture
def no_room(monkeypatch):
    """Let each read of a letter fail until it is undone."""

    def fail(*_args, **_options):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(codec, "_read_json", fail)
        yield patch


def test_letters_that_came_while_there_was_no_room_are_read_later(queue, intake, filed, no_room):
    queue.put([letter_of("1"), letter_of("2")])
    with pytest.raises(MemoryError):
        intake.turn(NOW)
    no_room.undo()
    assert intake.turn(NOW) == 2
    assert not any(isinstance(one, Unreadable) for one in filed.failures)
    assert len(filed.failures) == 2


def test_a_letter_that_never_fits_stays_queued_and_keeps_no_other(queue, intake, filed, no_room):
    queue.put([letter_of("1")])
    for _ in range(MOST_TRIES - 1):
        with pytest.raises(MemoryError):
            intake.turn(NOW)
    assert intake.turn(NOW) == 0
    no_room.undo()
    queue.put([letter_of("2")])
    assert intake.turn(NOW) == 1
    assert not any(isinstance(one, Unreadable) for one in filed.failures)


def test_a_ledger_that_there_is_no_room_for_makes_no_letter_unreadable(queue, intake, filed):
    queue.put([letter_of("1")])
    filed.short = OSError(24, "Too many open files")
    with pytest.raises(OSError, match="Too many"):
        intake.turn(NOW)
    filed.short = None
    assert intake.turn(NOW) == 1
    assert not any(isinstance(one, Unreadable) for one in filed.failures)
