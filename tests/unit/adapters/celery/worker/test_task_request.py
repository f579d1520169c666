"""The stack of requests: what Celery's own does, with every thread to itself."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery.utils.threads import LocalStack
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.celery.worker.task_request import RequestStack, disown_stacks, own_stacks
from polling import wait_until

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


def test_a_coroutine_sees_the_requests_of_whom_it_runs_for_until_that_has_ended():
    stack, go_on, left = RequestStack(), asyncio.Event(), []

    async def stray():
        await go_on.wait()
        stack.push("its own")
        left.extend([stack.pop(), stack.top])

    async def work():
        await asyncio.sleep(0)
        inner = asyncio.create_task(stray())
        return stack.top, len(stack), inner

    def deliver(loop, request):
        stack.push(request)
        owned = own_stacks()
        try:
            return asyncio.run_coroutine_threadsafe(work(), loop).result(60)
        finally:
            disown_stacks(owned)
            stack.pop()

    loop = asyncio.new_event_loop()
    runs = threading.Thread(target=loop.run_forever)
    runs.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            requests = [f"request {number}" for number in range(8)]
            found = list(pool.map(lambda request: deliver(loop, request), requests))
        assert [(top, deep) for top, deep, _ in found] == [(one, 1) for one in requests]
        stack.push("of the next")
        loop.call_soon_threadsafe(go_on.set)
        wait_until(lambda: len(left) == 16, seconds=60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        runs.join(60)
        loop.close()
    assert left == ["its own", None] * 8
    assert stack._stacks.popitem()[1] == ["of the next"]
    assert not stack._stacks
