"""The result backend: what is stored before an acknowledgement, and how long that may take."""

from __future__ import annotations

import uuid
import warnings
from types import SimpleNamespace

import pytest
from celery.backends.base import Backend
from celery.backends.cache import CacheBackend
from redis.exceptions import ConnectionError as RedisConnectionError
from tests.unit.adapters.celery import child

from angzarr.adapters.celery.celery_defaults import bound_retries
from angzarr.adapters.celery.claim_batch import LeftToAck
from angzarr.adapters.celery.envelope import sent_as
from angzarr.adapters.celery.worker.task import _one_server, ack_follows
from angzarr.delivery.settle import Settler
from angzarr.errors import DecodeError
from angzarr.resilience import VerdictRule
from angzarr.resilience.category import Category, Verdict
from angzarr.resilience.idempotency import AlreadyCompleted, Claim, Claimed, key_for

STORE = "redis://:secret@one:6379/0"
PLAIN = SimpleNamespace(chord=None, ignore_result=None)


def nothing():
    return None


def follows(make_app, backend=None, request=PLAIN, **options):
    app = make_app(broker="amqp://broker//", store=STORE, backend=backend)
    task = app.task(name="t", lazy=False, **options)(nothing)
    return ack_follows(task, request)


def test_without_a_result_backend_the_acknowledgement_follows(make_app):
    assert follows(make_app)


@pytest.mark.parametrize(
    "backend",
    [
        "redis://one/1",
        "redis://one:6379/0",
        "rediss://user:other@one:6379/3?ssl_cert_reqs=required",
    ],
)
def test_a_result_in_the_redis_of_the_claims_changes_nothing(make_app, backend):
    assert follows(make_app, backend)


@pytest.mark.parametrize(
    "backend",
    ["redis://other/0", "redis://one:6380/0", "redis://one:none/0", "rpc://", "cache+memory://"],
)
def test_before_a_result_that_goes_elsewhere_the_claim_is_completed(make_app, backend):
    if ":none" in backend:
        assert not _one_server(backend, STORE)
        return
    assert not follows(make_app, backend)


def test_a_result_that_is_not_wanted_is_not_stored(make_app):
    unwanted = SimpleNamespace(chord=None, ignore_result=True)
    assert follows(make_app, "redis://other/0", ignore_result=True)
    assert follows(make_app, "redis://other/0", unwanted)
    part = SimpleNamespace(chord={"task": "body"}, ignore_result=True)
    assert not follows(make_app, "redis://other/0", part), "its chord is counted there"


@pytest.mark.parametrize("name", ["on_success", "after_return"])
def test_a_tasks_own_code_after_its_outcome_may_take_its_time(make_app, name):
    app = make_app()

    class Slow(app.Task):
        abstract = True

    setattr(Slow, name, lambda *_args: None)
    task = app.task(name="t", lazy=False, base=Slow)(nothing)
    assert not ack_follows(task, PLAIN)


@pytest.mark.filterwarnings("ignore:Call to deprecated setex")
@pytest.mark.parametrize(("a_try_takes", "tries"), [(0.0, 4), (3.0, 1)], ids=["refused", "mute"])
def test_a_worker_sends_a_result_again_for_2_s_and_not_for_20(
    make_app, monkeypatch, a_try_takes, tries
):
    app, clock, begun = make_app(backend="redis://127.0.0.1:1/0"), [1.0], []

    def fail(*_args):
        begun.append(clock[0])
        clock[0] += a_try_takes
        raise RedisConnectionError

    def sleep(seconds):
        clock[0] += seconds

    monkeypatch.setattr("kombu.utils.functional.time", lambda: clock[0])
    monkeypatch.setattr("kombu.utils.functional.sleep", sleep)
    bound_retries(app.conf)
    app.backend._set = fail
    with pytest.raises(RedisConnectionError):
        app.backend.set("key", "value")
    assert len(begun) == tries
    assert begun[-1] - begun[0] <= 2


def test_what_the_user_set_wins(make_app):
    app = make_app(backend="redis://127.0.0.1:1/0")
    mine = {"retry_policy": {"timeout": 60.0}, "global_keyprefix": "mine"}
    app.conf.update(result_backend_transport_options=mine, redis_socket_timeout=30.0)
    bound_retries(app.conf)
    assert app.conf.result_backend_transport_options == mine
    assert app.backend.connparams["socket_timeout"] == 30.0
    assert app.backend.connparams["socket_connect_timeout"] == 2.0


def test_what_else_the_user_set_stays(make_app):
    app = make_app()
    app.conf.result_backend_transport_options = {"global_keyprefix": "mine"}
    bound_retries(app.conf)
    assert app.conf.result_backend_transport_options["global_keyprefix"] == "mine"
    assert app.conf.result_backend_transport_options["retry_policy"]["timeout"] == 2.0


# -- a claim that came with the fetch --------------------------------------------------------------


@pytest.fixture
def app(make_app):
    rule = VerdictRule(category=Category.CLIENT, verdict=Verdict.SKIP)
    app = make_app(facts={"log": False}, verdicts=[rule])
    app._runtime.begin_work()
    yield app
    app._runtime.end_work()


def traced(app, task):
    """Run a message with a batched claim through the tracer; return what the parent is told."""
    task_id, token = str(uuid.uuid4()), uuid.uuid4().hex
    claim = Claim(
        key=key_for(task.name, task_id), token=token, owner=app._runtime.owner, counted=False
    )
    (answer,) = app._parts.tenure.claim(app._runtime.executor().claimer.store, [claim])
    assert answer == Claimed(starts=0)
    told = child.traced(task, task_id=task_id, token=token, answer=sent_as(answer))
    return claim, told


def state_of(app, claim):
    again = Claim(key=claim.key, token="another", owner=app._runtime.owner)
    (answer,) = app._runtime.executor().claimer.store.claim([again])
    return answer


def test_a_success_without_a_result_is_completed_by_its_acknowledgement(app):
    claim, told = traced(app, app.task(name="t", lazy=False)(nothing))
    assert isinstance(told.retstr, LeftToAck)
    assert not isinstance(state_of(app, claim), AlreadyCompleted)


def test_a_success_is_completed_before_its_result_is_stored_elsewhere(app, monkeypatch):
    task, seen = app.task(name="t", lazy=False)(nothing), []
    backend = SimpleNamespace(url="redis://other/0", process_cleanup=lambda: None)
    backend.mark_as_done = lambda *_args, **_options: seen.append(state_of(app, claims[0]))
    claims = []
    real = app._runtime.executor().claimer.store.claim
    monkeypatch.setattr(
        type(app._runtime.executor().claimer.store), "claim",
        lambda _self, given: (claims.extend(given), real(given))[1],
    )  # fmt: skip
    task.backend = backend
    _, told = traced(app, task)
    assert not isinstance(told.retstr, LeftToAck)
    assert [type(state) for state in seen] == [AlreadyCompleted]


def refuse(*_args):
    msg = "not ours"
    raise DecodeError(msg)


def test_what_is_skipped_before_the_road_ends_its_claim_itself(app, monkeypatch):
    """Nothing is told to the parent then that its acknowledgement could complete."""
    monkeypatch.setattr(app.loader, "on_task_init", refuse)
    with warnings.catch_warnings(action="ignore"):  # Celery's own, of an error outside the body
        claim, _ = traced(app, app.task(name="t", lazy=False)(nothing))
    assert isinstance(state_of(app, claim), AlreadyCompleted)


def test_what_its_before_start_skips_is_completed_by_its_acknowledgement(app):
    class Refuses(app.Task):
        abstract = True
        before_start = refuse

    claim, told = traced(app, app.task(name="t", lazy=False, base=Refuses)(nothing))
    assert isinstance(told.retstr, LeftToAck)
    assert not isinstance(state_of(app, claim), AlreadyCompleted)


def away():
    msg = "away"
    raise ConnectionResetError(msg)


def run_beside(make_app, monkeypatch, steps, *, tasks_own=False):
    """Run what is to be retried, with a result backend, noting in *steps* what it stores."""
    app = make_app(backend=None if tasks_own else "cache+memory://", facts={"log": False})
    backend = CacheBackend(app=app, backend="memory") if tasks_own else app.backend
    task, kind = app.task(name="t", lazy=False, backend=backend)(away), CacheBackend
    stores = kind.store_result

    def store(backend, task_id, result, state, **options):
        steps.append(state)
        return stores(backend, task_id, result, state, **options)

    monkeypatch.setattr(kind, "store_result", store)
    app._runtime.begin_work()
    try:
        child.traced(task, task_id=uuid.uuid4().hex)
    finally:
        app._runtime.end_work()


@pytest.fixture
def puts(monkeypatch):
    """What is called before each copy is published."""
    before, send_back = [], Settler._send_back

    def noted(*what):
        for one in before:
            one()
        send_back(*what)

    monkeypatch.setattr(Settler, "_send_back", noted)
    return before


@pytest.mark.parametrize("tasks_own", [False, True])
def test_a_retry_is_told_before_its_copy_may_end(make_app, monkeypatch, puts, tasks_own):
    steps = []
    puts.append(lambda: steps.append("copy"))
    run_beside(make_app, monkeypatch, steps, tasks_own=tasks_own)
    assert steps == ["RETRY", "copy"]


def test_a_retry_that_the_backend_refused_is_told_after_the_copy(make_app, monkeypatch, puts):
    steps, works = [], Backend.mark_as_retry

    def flaky(*what, **options):
        return works(*what, **options) if "copy" in steps else away()

    puts.append(lambda: steps.append("copy"))
    monkeypatch.setattr(Backend, "mark_as_retry", flaky)
    run_beside(make_app, monkeypatch, steps)
    assert steps == ["copy", "RETRY"]


def test_what_is_told_as_a_retry_and_becomes_a_letter_ends_as_a_failure(
    make_app, monkeypatch, puts
):
    steps = []

    def refused():
        msg = "our own error"
        raise TypeError(msg)

    puts.append(refused)
    monkeypatch.setattr("angzarr.delivery.retry_until_available.MOST_TRIES", 1)
    run_beside(make_app, monkeypatch, steps)
    assert steps == ["RETRY", "FAILURE"]
