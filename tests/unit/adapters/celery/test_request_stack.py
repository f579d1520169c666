"""The stack of requests: what Celery's own does, with every thread to itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from celery.utils.threads import LocalStack
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.celery.request_stack import RequestStack

STEPS = st.lists(st.one_of(st.integers(), st.just("pop")))


@given(STEPS)
def test_it_does_what_celerys_own_does(steps):
    ours, celerys = RequestStack(), LocalStack()
    for step in steps:
        if step == "pop":
            assert ours.pop() == celerys.pop()
        else:
            assert ours.push(step) == celerys.push(step)
        assert (ours.top, ours.stack, len(ours)) == (celerys.top, celerys.stack, len(celerys))


def test_a_thread_sees_its_own_requests_only_and_leaves_nothing_behind():
    stack = RequestStack()
    stack.push("of the main thread")

    def elsewhere():
        seen = [stack.top, stack.push("of another") and stack.top, stack.pop(), stack.top]
        return [*seen, len(stack)]

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(elsewhere).result(60) == [None, "of another", "of another", None, 0]
    assert stack.top == "of the main thread"
    assert len(stack._stacks) == 1


def test_a_greenlet_sees_its_own_requests_only():
    greenlet = pytest.importorskip("greenlet")
    stack = RequestStack()
    stack.push("outside")
    inside = greenlet.greenlet(lambda: (stack.top, stack.push("inside"), stack.top)[::2])
    assert inside.switch() == (None, "inside")
    assert stack.top == "outside"


def test_every_task_of_an_app_has_one_of_its_own(app):
    def run():
        pass

    one, other = (app.task(name=name, lazy=False)(run) for name in ("one", "other"))
    assert type(one.request_stack) is type(other.request_stack) is RequestStack
    assert one.request_stack is not other.request_stack
    kept = one.request_stack
    one.bind(app)
    assert one.request_stack is kept, "bound again, in the middle of a run"
