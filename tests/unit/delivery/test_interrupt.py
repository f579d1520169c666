"""A blade cuts a handler that runs on the main thread, once, and nothing else."""

from __future__ import annotations

import threading

import pytest

from angzarr.delivery.async_runner import HandlerInterrupter, Interrupt


def test_it_cuts_the_handler_that_runs():
    blade = HandlerInterrupter()
    with pytest.raises(Interrupt), blade:
        blade.interrupt()


def test_what_comes_after_the_handler_is_let_be():
    blade = HandlerInterrupter()
    with blade:
        pass
    blade.interrupt()  # the outcome is being made true
    assert not blade.inside


def test_a_strike_before_the_handler_waits_for_it():
    blade = HandlerInterrupter()
    blade.interrupt()
    ran = []
    with pytest.raises(Interrupt), blade:
        ran.append("handler")
    assert ran == []


def test_a_handler_that_cleans_up_is_not_cut_again():
    blade = HandlerInterrupter()
    cleaned = []

    def handler():
        try:
            blade.interrupt()
        finally:
            blade.interrupt()
            cleaned.append(True)

    with pytest.raises(Interrupt), blade:
        handler()
    assert cleaned == [True]


def test_a_handler_that_catches_every_exception_is_cut_all_the_same():
    blade = HandlerInterrupter()

    def handler():
        try:
            blade.interrupt()
        except Exception:
            pytest.fail("it swallowed the cut")

    with pytest.raises(Interrupt), blade:
        handler()


def test_signals_reach_the_main_thread_only_so_other_threads_are_not_in_it():
    blade = HandlerInterrupter()
    seen = []

    def run():
        with blade:
            seen.append(blade.inside)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]


def test_another_worker_of_this_process_begins_anew():
    blade = HandlerInterrupter()
    blade.interrupt()
    blade.reset()
    with blade:
        assert blade.inside
