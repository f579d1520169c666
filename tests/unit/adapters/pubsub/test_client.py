import threading

import pytest

from angzarr.adapters.pubsub.client import Calls
from angzarr.errors import DeadLetterQueueUnavailable
from polling import wait_until


def test_a_fork_waits_for_a_call_and_holds_up_the_next():
    calls, answered, order = Calls(), threading.Event(), []

    def call(name, until):
        with calls.under_way():
            order.append(f"{name} begins")
            until.wait(60)
            order.append(f"{name} ends")

    def fork():
        calls.before_fork()
        order.append("fork")
        calls.after_in_parent()

    first = threading.Thread(target=call, args=("first", answered))
    first.start()
    wait_until(lambda: order)
    forking = threading.Thread(target=fork)
    forking.start()
    wait_until(lambda: calls._forking)
    second = threading.Thread(target=call, args=("second", answered))
    second.start()
    answered.set()
    for thread in (first, forking, second):
        thread.join()
    assert order == ["first begins", "first ends", "fork", "second begins", "second ends"]


def test_a_child_forked_between_calls_is_fit():
    calls = Calls()
    with calls.under_way():
        pass
    calls.before_fork()
    calls.after_in_child()
    with calls.under_way():
        pass


def test_a_child_of_a_process_with_a_stream_is_unfit_and_so_are_its_own_children():
    calls = Calls()
    calls.stream(+1)
    for _ in range(2):
        calls.before_fork()
        calls.after_in_child()
        with pytest.raises(DeadLetterQueueUnavailable, match="start it anew"), calls.under_way():
            pytest.fail("it may not call")


def test_a_stream_that_has_ended_leaves_children_fit():
    calls = Calls()
    calls.stream(+1)
    calls.stream(-1)
    calls.before_fork()
    calls.after_in_child()
    with calls.under_way():
        pass
