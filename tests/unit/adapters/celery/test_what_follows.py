"""What follows a task in a chain ends with it, however it ends; and a chord around it ends, too."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from datetime import timedelta

import pytest
from celery import Task, chain, chord
from celery.exceptions import Ignore, Reject
from celery.worker import state

from angzarr import Angzarr, GiveUp, Policy, Skip
from angzarr.errors import PoisonError
from angzarr.events.event import digest
from angzarr.resilience.idempotency import Claim, Position, key_for
from angzarr.testing.clock import FakeClock
from angzarr.testing.staging import staged
from angzarr.testing.worker import open_in_process

ONCE = Policy(
    name="once", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=1
)
#: Errors that the task's run ends with, by the word for it.
RAISED = {
    "refused": ValueError("for good"),
    "given up": GiveUp("for good"),
    "rejected": Reject("for good"),
    "exhausted": ConnectionError("down"),
    "timed out": TimeoutError("over"),
}


class Fragile(Task):
    """A task whose `before_start` raises what it finds in `errors`, one a run."""

    abstract = True
    errors = ()

    def before_start(self, *_):
        self.began = [*getattr(self, "began", ()), self.request.retries]
        if len(self.began) <= len(self.errors):
            raise self.errors[len(self.began) - 1]


@pytest.fixture
def app():
    made = Angzarr("follows", broker="memory://", backend="cache+memory://")
    made.heard = deque()

    @made.task(name="add")
    def add(*numbers):
        return sum(number or 0 for number in numbers)

    @made.task(name="total")
    def total(numbers):
        return numbers

    @made.task(name="ends", policy=ONCE, typing=False)
    def ends(how):
        raise RAISED[how]

    @made.task(name="skips")
    def skips():
        raise Skip("not ours")

    @made.task(name="ignores")
    def ignores():
        raise Ignore

    @made.task(name="gives_up", bind=True, max_retries=0)
    def gives_up(self):
        self.retry()

    @made.task(name="moves_on", bind=True)
    def moves_on(self):
        raise self.replace(add.s(40, 2))

    @made.task(name="heard")
    def heard(request, error, _traceback):
        made.heard.append(type(error).__name__)

    return made


@pytest.fixture
def fragile(app):
    """A task whose `before_start` fails as its `errors` say; it must be there before a worker."""

    @app.task(base=Fragile, name="fragile")
    def task(number=1):
        return number

    return task


@pytest.fixture
def worker(app, fragile, tmp_path):
    clock = FakeClock()
    with (
        staged(app, tmp_path, clock, chance=lambda: 0.0),
        open_in_process(app, clock) as opened,
    ):
        yield opened
    state.revoked.clear()


def rest_of(app, worker, first, **options):
    """Send *first* before another step, alone and inside of a chord; return how both end."""
    tasks = app.tasks
    alone = chain(first.clone(), tasks["add"].s(1)).apply_async(**options)
    inside = chord(
        [chain(first.clone(), tasks["add"].s(1)), tasks["add"].s(1)],
        tasks["total"].s().on_error(tasks["heard"].s()),
    ).apply_async(**options)
    worker.run_until_settled()
    return alone, inside


def failures(app):
    tasks = app.tasks
    return {
        **{how: tasks["ends"].si(how) for how in RAISED},
        "retries used up": tasks["gives_up"].si(),
        "undeliverable": tasks["ends"].si("no", "such", "arguments"),
        "unknown": app.signature("not.registered", immutable=True),
        "expired": tasks["ends"].si("refused").set(expires=-1),
    }


FAILURES = [*RAISED, "retries used up", "undeliverable", "unknown"]


@pytest.mark.parametrize("how", FAILURES)
def test_a_failure_is_the_result_of_each_later_step_and_ends_the_chord(app, worker, how):
    alone, inside = rest_of(app, worker, failures(app)[how])
    assert (alone.state, alone.parent.state, inside.state) == ("FAILURE",) * 3
    assert list(app.heard) == ["ChordError"]
    assert [one.handler for one in worker.settled if one.handler == "add"] == ["add"]


def test_what_expired_is_revoked_with_each_later_step_and_ends_the_chord(app, worker):
    alone, inside = rest_of(app, worker, failures(app)["expired"])
    assert (alone.state, alone.parent.state, inside.state) == ("REVOKED", "REVOKED", "FAILURE")


def test_what_is_revoked_is_so_with_each_later_step(app, worker):
    result = chain(app.tasks["ends"].si("refused"), app.tasks["add"].s(1)).apply_async()
    state.revoked.add(result.parent.id)
    worker.run_until_settled()
    assert (result.state, result.parent.state) == ("REVOKED", "REVOKED")


def test_a_poisonous_task_fails_each_later_step(app, worker):
    result = chain(app.tasks["add"].si(1), app.tasks["add"].s(1)).apply_async()
    claim = Claim(
        key=key_for("add", result.parent.id), token="t", owner="gone", position=Position(0, 0),
        fingerprint=digest([[1], {}]),
    )  # fmt: skip
    for token in range(4):  # started by workers that died
        app._parts.claims.store.claim([replace(claim, token=str(token))])
    worker.run_until_settled()
    assert (result.state, type(result.result)) == ("FAILURE", PoisonError)


def test_a_skip_is_the_end_of_its_chain_and_a_part_of_its_chord_like_any_other(app, worker):
    alone, inside = rest_of(app, worker, app.tasks["skips"].si())
    assert (alone.state, alone.result) == ("SUCCESS", None)
    assert (inside.state, inside.result) == ("SUCCESS", [None, 1])
    assert [one.handler for one in worker.settled if one.handler == "add"] == ["add"]


def test_a_skip_that_nobody_was_told_of_is_told_when_it_comes_again(app, worker, monkeypatch):
    result = chain(app.tasks["skips"].si(), app.tasks["add"].s(1)).apply_async()
    with monkeypatch.context() as patch:
        patch.setattr("angzarr.adapters.celery.worker.task.tell_skipped", lambda *_all: None)
        worker.run_until_settled()
    assert result.state == "PENDING"
    again = chain(
        app.tasks["skips"].si().set(task_id=result.parent.id),
        app.tasks["add"].s(1).set(task_id=result.id),
    )
    again.apply_async()
    worker.run_until_settled()
    assert (result.state, result.result) == ("SUCCESS", None)


def test_a_replacement_takes_the_rest_of_the_chain_along(app, worker):
    alone, inside = rest_of(app, worker, app.tasks["moves_on"].si())
    assert (alone.result, inside.result) == (43, [43, 1])


def test_what_celery_ignores_leaves_the_rest_as_celery_does(app, worker):
    result = chain(app.tasks["ignores"].si(), app.tasks["add"].s(1)).apply_async()
    worker.run_until_settled()
    assert result.state == "PENDING"


@pytest.mark.parametrize("error", [ConnectionError("down"), TimeoutError("over")], ids=repr)
def test_what_fails_before_its_start_and_is_tried_again_ends_no_chain_and_no_chord(
    app, fragile, worker, error
):
    fragile.errors = [error]
    alone = chain(fragile.s(41), app.tasks["add"].s(1)).apply_async()
    worker.run_until_settled()
    assert (alone.state, alone.result, alone.parent.state) == ("SUCCESS", 42, "SUCCESS")
    assert fragile.began == [0, 1]
    fragile.began = []
    inside = chord(
        [chain(fragile.s(41), app.tasks["add"].s(1)), app.tasks["add"].s(1)],
        app.tasks["total"].s().on_error(app.tasks["heard"].s()),
    ).apply_async()
    worker.run_until_settled()
    assert (inside.state, sorted(inside.result), list(app.heard)) == ("SUCCESS", [1, 42], [])


@pytest.mark.parametrize("error", [ValueError("for good"), Reject("for good")], ids=repr)
def test_what_fails_before_its_start_for_good_ends_chain_and_chord(app, fragile, worker, error):
    fragile.errors = [error] * 2
    alone, inside = rest_of(app, worker, fragile.s())
    assert (alone.state, alone.parent.state, inside.state) == ("FAILURE",) * 3
    assert list(app.heard) == ["ChordError"]


def test_before_start_raises_as_ever_where_no_worker_runs_the_task(fragile):
    fragile.errors = [ValueError("for good")]
    with pytest.raises(ValueError, match="for good"):
        fragile.apply(throw=True)


def test_what_is_sent_again_under_an_id_that_failed_ends_what_waits_behind_it(app, worker):
    """No broker says of it that it was redelivered, and its followers are its own."""
    ends, add = app.tasks["ends"], app.tasks["add"]
    failed = [ends.si("refused").apply_async() for _ in range(2)]
    worker.run_until_settled()
    alone = chain(ends.si("refused").set(task_id=failed[0].id), add.s(1)).apply_async()
    inside = chord(
        [ends.si("refused").set(task_id=failed[1].id), add.s(1)],
        app.tasks["total"].s().on_error(app.tasks["heard"].s()),
    ).apply_async()
    worker.run_until_settled()
    assert (alone.state, alone.parent.state, inside.state) == ("FAILURE",) * 3
    assert list(app.heard) == ["ChordError"]
    outcomes = [one.outcome for one in worker.settled if one.handler == "ends"]
    assert outcomes == ["dead_lettered"] * 2 + ["duplicate"] * 2
