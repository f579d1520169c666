"""A task on the road: what it is shown of its delivery, and what it may do with itself."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from celery.exceptions import Reject
from pydantic import BaseModel

from angzarr import Angzarr, Skip
from angzarr.testing.clock import FakeClock
from angzarr.testing.staging import staged
from angzarr.testing.worker import open_in_process


class Placed(BaseModel):
    n: int


@pytest.fixture
def app():
    return Angzarr("road", broker="memory://", backend="cache+memory://")


@pytest.fixture
def run(app, tmp_path):
    """Do something while a worker is there, which then handles all that comes of it."""
    with ExitStack() as doors:

        def run(do):
            clock = FakeClock()
            doors.enter_context(staged(app, tmp_path, clock, chance=lambda: 0.0))
            worker = doors.enter_context(open_in_process(app, clock))
            result = do()
            worker.run_until_settled()
            return result, [one.outcome for one in worker.settled]

        yield run


# -- Reject ----------------------------------------------------------------------------------------


def test_what_a_task_gave_back_to_its_queue_comes_redelivered(app, run):
    seen = []

    @app.task(bind=True)
    def task(self):
        seen.append((self.request.delivery_info["redelivered"], self.request.retries))
        if len(seen) == 1:
            raise Reject("busy", requeue=True)
        if len(seen) == 2:
            raise self.retry(countdown=0)
        return "done"

    result, outcomes = run(task.delay)
    assert (result.result, outcomes) == ("done", ["retried", "retried", "handled"])
    assert seen == [(False, 0), (True, 1), (False, 2)]


def test_what_always_gives_back_ends_as_a_letter(app, run):
    @app.task
    def task():
        raise Reject("busy", requeue=True)

    result, outcomes = run(task.delay)
    assert outcomes == ["retried"] * 4 + ["dead_lettered"]
    assert result.state == "FAILURE"


# -- headers ---------------------------------------------------------------------------------------


def test_a_child_that_gets_its_parents_headers_begins_afresh(app, run):
    seen = []

    @app.task(bind=True, max_retries=5)
    def parent(self):
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        child.apply_async(headers=self.request.headers)

    @app.task(bind=True)
    def child(self):
        seen.append((self.request.retries, self.request.headers))
        if self.request.retries < 1:
            raise self.retry(countdown=0)

    _, outcomes = run(lambda: parent.apply_async(headers={"x-tenant": "acme"}))
    assert outcomes == ["retried", "retried", "handled", "retried", "handled"]
    assert seen == [(0, {"x-tenant": "acme"}), (1, {"x-tenant": "acme"})]


def test_two_children_of_one_event_are_two_events(app, run):
    seen = []

    @app.task
    def item(n):
        seen.append(n)

    @app.handler(Placed, domain="order")
    def on_placed(event, ctx):
        from celery import current_task

        for n in (1, 2):
            item.apply_async((n,), headers=current_task.request.headers)

    run(lambda: app.publish(Placed(n=1)))
    assert seen == [1, 2]


# -- the same task again ---------------------------------------------------------------------------


@pytest.mark.parametrize("same", [True, False])
def test_a_task_may_replace_itself(app, run, same):
    ran = []

    @app.task(bind=True)
    def down(self, n):
        ran.append(n)
        if len(ran) < 4:
            raise self.replace(down.s(n if same else n - 1))
        return "bottom"

    result, outcomes = run(lambda: down.delay(3))
    assert (result.result, outcomes) == ("bottom", ["handled"] * 4)
    assert ran == ([3] * 4 if same else [3, 2, 1, 0])


def test_a_replacement_that_is_delivered_twice_runs_once(app, run):
    ran = []

    @app.task(bind=True)
    def task(self):
        ran.append(self.request.id)
        if len(ran) == 1:
            raise self.replace(task.si())

    def twice():
        result = task.delay()
        for _ in range(2):
            task.apply_async(task_id=result.id, replaced_task_nesting=1)
        return result

    _, outcomes = run(twice)
    assert len(ran) == 2
    assert sorted(outcomes) == ["duplicate", "duplicate", "handled", "handled"]


def test_a_task_may_call_itself(app, run):
    @app.task
    def factorial(n):
        return n * factorial(n - 1) if n else 1

    result, outcomes = run(lambda: factorial.delay(5))
    assert (result.result, outcomes) == (120, ["handled"])


# -- without a worker ------------------------------------------------------------------------------


def test_a_skip_is_none_and_followed_by_nothing_where_a_task_is_eager(app):
    followed = []

    @app.task
    def following(value):
        followed.append(value)

    @app.task
    def task():
        raise Skip("not ours")

    app.conf.task_always_eager = True
    result = task.apply_async(link=following.s())
    assert (result.state, result.get(), followed) == ("SUCCESS", None, [])
