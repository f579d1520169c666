from __future__ import annotations

import os
import threading
from datetime import timedelta

import pytest

from angzarr.runtime.periodic_thread import PeriodicThread
from polling import wait_until


class Turns:
    def __init__(self, stopping):
        self.stopping = stopping
        self.taken = 0
        self.left = threading.Event()

    def turn(self):
        self.taken += 1
        return timedelta(0) if self.taken < 5 else timedelta(hours=1)

    def leave(self):
        self.left.set()


@pytest.fixture
def made():
    turns = []

    def make(stopping):
        turns.append(Turns(stopping))
        return turns[0]

    thread = PeriodicThread("test", make)
    yield thread, turns[0]
    thread.end()


def test_turns_are_taken_as_often_as_they_ask_and_then_left(made):
    thread, turns = made
    thread.start()
    wait_until(lambda: turns.taken == 5, "five turns were taken")
    assert not turns.stopping()
    thread.end()
    assert turns.stopping()
    assert turns.left.is_set()
    thread.end()


def test_a_forked_child_ends_nothing(made, monkeypatch):
    thread, turns = made
    thread.start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: thread._pid + 1)
        thread.end()
    assert not turns.stopping()


def test_turns_can_be_taken_by_hand_and_are_left_without_a_thread(made):
    thread, turns = made
    thread.turn()
    thread.turn()
    assert turns.taken == 2
    before = threading.active_count()
    thread.end()
    assert turns.left.is_set()
    assert threading.active_count() == before
