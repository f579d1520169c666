"""A nudge reaches who listens, and nobody else: not whoever has the number of its pipe later."""

from __future__ import annotations

import os
import select
import threading

import pytest

from angzarr.runtime.nudge import Nudge


@pytest.fixture
def nudge():
    made = Nudge()
    yield made
    made.close()


def is_heard(nudge):
    return bool(select.select([nudge.fileno()], [], [], 0)[0])


def test_it_is_heard_once_however_often_it_is_given(nudge):
    assert not is_heard(nudge)
    nudge.now()
    nudge.now()
    assert is_heard(nudge)
    nudge.answer()
    assert not is_heard(nudge)


def test_one_that_nobody_listened_to_is_none_for_who_listens_later(nudge):
    nudge.now()
    assert not is_heard(nudge)


def test_it_is_heard_again_though_the_last_one_was_never_answered(nudge):
    nudge.fileno()
    nudge.now()
    nudge.close()
    assert not is_heard(nudge)
    nudge.now()
    assert is_heard(nudge)


def test_a_pipe_is_not_closed_while_another_thread_writes_to_it(nudge, monkeypatch):
    nudge.fileno()
    write, closing = os.write, threading.Thread(target=nudge.close)

    def close_meanwhile(end, byte):
        closing.start()
        closing.join(0.1)
        return write(end, byte)

    monkeypatch.setattr("angzarr.runtime.nudge.os.write", close_meanwhile)
    nudge.now()
    closing.join()
    nudge.now()  # nobody listens any more
