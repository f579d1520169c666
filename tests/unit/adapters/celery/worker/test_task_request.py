"""The requests in hand, and `self.retry` as Celery means it, with a worker and without one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

import pytest
from celery import Celery, chain
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from celery.utils.threads import LocalStack
from hypothesis import given
from hypothesis import strategies as st

from angzarr import Angzarr, GiveUp, Skip
from angzarr.adapters.celery.worker.task_request import RequestStack, disown_stacks, own_stacks
from angzarr.testing.clock import FakeClock
from angzarr.testing.staging import staged
from angzarr.testing.worker import open_in_process
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


def stock_app():
    return Celery("stock", broker="memory://", backend="cache+memory://")


def our_app():
    return Angzarr("retries", broker="memory://", backend="cache+memory://")


@pytest.fixture
def app():
    return our_app()


@pytest.fixture
def run(app, tmp_path):
    """Send a task, let a worker handle all that comes of it; return the result and the worker."""
    with ExitStack() as doors:
        opened = []

        def run(task, *args):
            if not opened:  # a worker knows the tasks that there are when it starts
                clock = FakeClock()
                doors.enter_context(staged(app, tmp_path, clock, chance=lambda: 0.0))
                opened.append(doors.enter_context(open_in_process(app, clock)))
            result = task.delay(*args)
            opened[0].run_until_settled()
            return result, opened[0]

        yield run


def outcomes(worker):
    return [one.outcome for one in worker.settled]


# -- no retry left ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("exc", "said"), [
    (None, "MaxRetriesExceededError"), (ValueError("busy"), "ValueError"),
    (ConnectionError("down"), "ConnectionError"),
])  # fmt: skip
@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_retry_that_is_not_left_raises_inside_the_task_and_the_run_is_the_last(
    app, run, exc, said, most
):
    heard = []

    @app.task(bind=True, max_retries=most)
    def task(self):
        try:
            self.retry(exc=exc, countdown=0)
        except Retry:
            raise
        except Exception as error:
            heard.append(type(error).__name__)
            raise

    result, worker = run(task)
    assert outcomes(worker) == ["retried"] * most + ["dead_lettered"]
    assert heard == [said]
    assert (result.state, type(result.result).__name__) == ("FAILURE", said)


@pytest.mark.parametrize("end", [
    "a fallback", Skip("not ours"), GiveUp("for good"), KeyError("another error"),
    ConnectionError("one that may pass"),
])  # fmt: skip
def test_what_the_task_does_then_decides_and_no_error_is_tried_again(app, run, end):
    @app.task(bind=True, max_retries=0)
    def task(self):
        try:
            self.retry()
        except MaxRetriesExceededError:
            if isinstance(end, Exception):
                raise end from None
            return end

    result, worker = run(task)
    wanted = {str: "handled", Skip: "skipped"}.get(type(end), "dead_lettered")
    assert outcomes(worker) == [wanted]
    assert result.state == ("FAILURE" if wanted == "dead_lettered" else "SUCCESS")


def test_the_error_names_no_arguments_in_its_text_and_has_them_as_celerys_has(app, run):
    caught = []

    @app.task(bind=True, max_retries=0)
    def task(self, secret):
        try:
            self.retry()
        except MaxRetriesExceededError as error:
            caught.append(error)

    run(task, "s3cr3t")
    (error,) = caught
    assert "s3cr3t" not in str(error)
    assert error.task_args == ["s3cr3t"]


def test_the_bound_of_one_call_is_not_the_bound_of_later_ones(app, run):
    @app.task(bind=True, autoretry_for=(ValueError,), retry_kwargs={"max_retries": 1})
    def task(self):
        if not self.request.retries:
            self.retry(max_retries=9, countdown=0)
        raise ValueError

    run(task)
    _, worker = run(task)
    assert outcomes(worker) == ["retried", "dead_lettered"] * 2


# -- throw=False -----------------------------------------------------------------------------------

ENDS = {
    "it returns": "value", "it ignores": Ignore(), "it fails": ValueError("for good"),
    "it rejects": Reject("no"), "it is refused": ConnectionError("down"),
}  # fmt: skip


@pytest.mark.parametrize("how", ENDS)
def test_a_retry_that_is_not_thrown_follows_however_the_run_ends(app, run, how):
    later = []

    @app.task(name="next")
    def following(value):
        later.append(value)

    @app.task(bind=True)
    def task(self):
        if self.request.retries:
            return "again"
        assert isinstance(self.retry(throw=False, countdown=0), Retry)
        if isinstance(ENDS[how], Exception):
            raise ENDS[how]
        return ENDS[how]

    _, worker = run(chain(task.s(), following.s()))
    assert outcomes(worker)[:2] == ["retried", "handled"]
    assert later == ["again"]


def test_a_retry_that_is_caught_was_asked_for_all_the_same(app, run):
    @app.task(bind=True)
    def task(self):
        try:
            if not self.request.retries:
                self.retry(countdown=0)
        except Exception:
            return "caught"
        return "again"

    result, worker = run(task)
    assert (outcomes(worker), result.result) == (["retried", "handled"], "again")


def test_a_retry_that_is_not_thrown_waits_as_long_as_it_asked(app, run):
    @app.task(bind=True)
    def task(self):
        if not self.request.retries:
            self.retry(throw=False, countdown=300)

    _, worker = run(task)
    assert worker.waits() == [timedelta(minutes=5)]


@pytest.mark.parametrize(("said", "outcome"), [
    (GiveUp("no"), "dead_lettered"), (Skip("no"), "skipped"),
])  # fmt: skip
def test_what_the_run_says_outright_afterwards_wins(app, run, said, outcome):
    @app.task(bind=True)
    def task(self):
        self.retry(throw=False)
        raise said

    _, worker = run(task)
    assert outcomes(worker) == [outcome]


# -- other arguments -------------------------------------------------------------------------------


def shapes():
    """Return functions that take arguments in every way that Python has."""

    def plain(a=1, b=2, c=3):
        return [a, b, c]

    def rest(a=1, *more, b=2, **named):
        return [a, list(more), b, dict(sorted(named.items()))]

    def only(a=1, /, b=2, *, c=3):
        return [a, b, c]

    return [plain, rest, only]


VALUES = st.lists(st.integers(10, 13), max_size=3)
NAMED = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(20, 23), max_size=3)


def fits(function, args, kwargs):
    try:
        function(*args, **kwargs)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("number", range(3))
def test_other_arguments_are_reconciled_as_celery_does(number, tmp_path):
    """Whatever a task was sent and asks for: ours on the road, Celery's own where it is eager."""
    app, stock, sent, clock = our_app(), stock_app(), [], FakeClock()

    def make(owner):
        @owner.task(bind=True, name="again", typing=False, max_retries=1, shared=False)
        def again(self, *args, **kwargs):
            if not self.request.retries:
                raise self.retry(args=asked[0], kwargs=asked[1], countdown=0)
            sent.append((list(args), kwargs))

        # What Celery looks at is the function that takes them.
        again.run.__func__.__signature__ = with_self(shapes()[number])
        return again

    asked = [None, None]
    ours, theirs = make(app), make(stock)
    stock.conf.task_always_eager = True

    @given(VALUES, NAMED, st.none() | VALUES, st.none() | NAMED)
    def check(args, kwargs, new_args, new_kwargs):
        asked[:] = [new_args, new_kwargs]
        sent.clear()
        theirs.apply_async(args, kwargs)
        ours.apply_async(args, kwargs)
        worker.run_until_settled()
        assert len(sent) == 2
        assert sent[0] == sent[1]

    with staged(app, tmp_path, clock, chance=lambda: 0.0), open_in_process(app, clock) as worker:
        check()


def with_self(function):
    bound = inspect.signature(function)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    return bound.replace(parameters=[me, *bound.parameters.values()])
