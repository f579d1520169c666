"""A delivery between Celery's parent and its tracer: whatever fails, the road ends it."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from weakref import ref

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import (
    SoftTimeLimitExceeded,
    Terminated,
    TimeLimitExceeded,
    WorkerLostError,
)
from celery.concurrency.base import apply_target
from celery.concurrency.thread import TaskPool
from celery.exceptions import Ignore, Reject, TaskRevokedError
from celery.signals import task_postrun
from celery.states import FAILURE, IGNORED, REJECTED, SUCCESS
from celery.states import RETRY as RETRIED
from celery.worker.request import Request, create_request_cls
from celery.worker.strategy import hybrid_to_proto2
from kombu.utils.json import dumps
from tests.unit.adapters.celery import child

from angzarr.adapters.celery.claim_batch import BatchedClaim, LeftToAck
from angzarr.adapters.celery.envelope import FIELD, Envelope, delivery_of
from angzarr.adapters.celery.worker.request import AngzarrRequest
from angzarr.dead_letters.letter import Reason
from angzarr.delivery.completions import LeftCompletion
from angzarr.errors import GivenBack, Postpone, StoreUnavailable
from angzarr.resilience.idempotency import Claim, Claimed, Complete, Fail, Release, Wait
from polling import wait_until


@pytest.fixture
def app(make_app):
    app = make_app(facts={"log": False})
    app._runtime.begin_work()
    yield app
    app._runtime.end_work()


def task_of(app, call, **options):
    """Register *call*, which may be a lambda, as a task of any arguments."""

    def run(*args):
        return call(*args)

    return app.task(name="t", lazy=False, **options)(run)


@pytest.fixture
def letters(app):
    """All letters that were put so far, in order."""
    put = []
    queue = app._runtime.executor().settler.dead_letters
    real = queue.put
    queue.put = lambda given: (put.extend(given), real(given))[1]
    return put


def traced(task, *args, **given):
    """Run a message through Celery's own tracer, as a child would; return (state, value)."""
    told = child.traced(task, *args, **given)
    return (told.info.state if told.info else SUCCESS), told


def test_a_handled_event_is_a_success_with_its_value(app, letters):
    task = task_of(app, lambda n: n + 1)
    state, told = traced(task, 1)
    assert (state, told.retval) == (SUCCESS, 2)
    assert letters == []


@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), Reject("no"), KeyError()])
def test_a_dead_letter_is_a_failure_and_gives_celery_no_order(app, letters, error):
    def fail():
        raise error

    state, told = traced(task_of(app, fail))
    assert state == FAILURE
    assert len(letters) == 1
    assert not isinstance(told.info.retval, MemoryError | Reject | Ignore)


def test_who_dies_before_a_failure_is_told_leaves_that_to_its_successor(app, letters):
    def fail():
        raise ValueError("no")

    task = task_of(app, fail)
    traced(task, task_id="same")
    state, told = traced(task, task_id="same", redelivered=True)
    assert state == FAILURE
    assert "failed before with ValueError: no" in str(told.info.retval)
    assert len(letters) == 1
    state, _ = traced(task, task_id="same")
    assert state == IGNORED, "one that its publisher sent twice says nothing"


def test_a_retry_is_told_after_its_copy_was_put(app, waiting):
    def fail():
        raise ConnectionResetError

    state, _ = traced(task_of(app, fail))
    assert state == RETRIED
    assert [message.headers["retries"] for message in waiting()] == [1]


def test_before_start_that_fails_takes_the_road_and_loses_nothing(app, letters, waiting):
    class Base(app.Task):
        abstract = True
        errors = [ValueError("a bug"), ConnectionResetError("away")]  # noqa: RUF012 - used up

        def before_start(self, *_):
            raise self.errors.pop()

    task = task_of(app, lambda: pytest.fail("must not run"), base=Base)
    traced(task)
    assert [message.headers["retries"] for message in waiting()] == [1]
    state, _ = traced(task)
    assert state == FAILURE
    assert [letter.reason for letter in letters] == [Reason.REFUSED]


def test_a_result_backend_that_is_away_before_the_run_loses_nothing(app, waiting, monkeypatch):
    task = task_of(app, lambda: 1, track_started=True)

    def away(*_args, **_options):
        raise ConnectionError("the backend is away")

    monkeypatch.setattr(app.backend, "store_result", away)
    with warnings.catch_warnings(action="ignore"):  # Celery's own, of an error outside the body
        state, _ = traced(task)
    assert state == FAILURE, "and acknowledged, since its copy waits"
    assert [message.headers["retries"] for message in waiting()] == [1]


def test_what_is_given_back_is_rejected_for_requeue(app, monkeypatch):
    task = task_of(app, lambda: 1)

    def stop(*_args):
        raise GivenBack("the worker stops")

    monkeypatch.setattr(type(app._runtime.executor()), "decide", stop)
    state, told = traced(task)
    assert state == REJECTED
    assert told.info.retval.requeue is True


def test_a_result_backend_that_is_away_after_the_run_repeats_nothing(app, sent, monkeypatch):
    runs = []
    task = task_of(app, lambda: runs.append(1))

    def away(*_args, **_options):
        raise ConnectionError("the backend is away")

    monkeypatch.setattr(app.backend, "mark_as_done", away)
    monkeypatch.setattr(app.backend, "mark_as_failure", away)
    with warnings.catch_warnings(action="ignore"):
        state, _ = traced(task)
    assert (state, runs, sent()) == (FAILURE, [1], [])


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
def test_an_exit_in_a_pool_thread_is_given_back_with_its_start_counted(app, letters, error):
    def leave():
        raise error

    task = task_of(app, leave)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            state, told = pool.submit(traced, task, task_id="same").result(60)
            assert state == REJECTED
            assert told.info.retval.requeue is True
        pool.submit(traced, task, task_id="same").result(60)
    (letter,) = letters
    assert letter.reason is Reason.POISON
    assert type(error).__name__ in letter.error_message.rpartition("ended by ")[2]
    assert "in leave\n" in letter.error_stack, "and where"


@pytest.mark.parametrize(("worker_does", "counted"), [("begin", True), ("cut", False)])
def test_an_exit_in_a_pool_thread_counts_unless_the_grace_has_ended(
    app, monkeypatch, worker_does, counted
):
    released = []
    settle = app._runtime.executor().claimer.store.settle
    monkeypatch.setattr(
        app._runtime.executor().claimer.store,
        "settle",
        lambda *given: (released.append(given[2]), settle(*given))[1],
    )

    def leave():
        getattr(app._runtime.stopping, worker_does)()  # meanwhile the worker was asked to stop
        raise SystemExit

    task = task_of(app, leave)
    with ThreadPoolExecutor(1) as pool:
        state, _ = pool.submit(traced, task).result(60)
    assert state == REJECTED
    (release,) = released
    assert release.counted is counted
    assert ("SystemExit" in release.last_words) is counted, "its parent knows why it cut it"


def test_an_exit_on_the_main_thread_ends_the_process_and_is_named_at_last(app, letters):
    def leave():
        raise SystemExit(1)

    task = task_of(app, leave)
    assert threading.current_thread() is threading.main_thread()
    for _ in range(3):
        with pytest.raises(SystemExit):
            traced(task, task_id="same")
    traced(task, task_id="same")
    (letter,) = letters
    assert "the last run ended by SystemExit: 1" in letter.error_message
    assert "in leave\n" in letter.error_stack


def test_an_exit_that_its_parent_asked_a_child_for_is_no_word_of_the_handler(app, monkeypatch):
    released = []
    monkeypatch.setattr(
        app._runtime.executor().claimer.store, "settle", lambda *given: released.append(given)
    )
    monkeypatch.setattr("angzarr.adapters.celery.worker.task.terminate_handler_fired", lambda: True)

    def leave():
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        traced(task_of(app, leave))
    assert not released, "its parent ends the claim, and knows whether the start counts"


def test_a_soft_time_limit_while_settling_lets_nothing_go(app, letters, monkeypatch):
    def fail():
        raise ValueError

    task = task_of(app, fail)
    settle, strikes = app._runtime.executor().claimer.store.settle, [SoftTimeLimitExceeded()]

    def struck(*args):
        if strikes:
            raise strikes.pop()
        return settle(*args)

    monkeypatch.setattr(app._runtime.executor().settler.store, "settle", struck)
    state, _ = traced(task)
    assert state == FAILURE
    assert {letter.reason for letter in letters} == {Reason.REFUSED}


# -- the parent's side --------------------------------------------------------------------------


@pytest.fixture
def request_of(app):
    """Make the parent's request of a message, with a claim that its child holds."""

    def make(**headers):
        task = app.tasks["t"] if "t" in app.tasks else task_of(app, lambda: None)
        app.finalize(auto=True)
        given = {"id": "task-1", "task": "t", "lang": "py", "argsrepr": "", **headers}
        message = SimpleNamespace(
            headers=given, body=dumps([[], {}, {}]), content_type="application/json",
            content_encoding="utf-8", properties={"correlation_id": "task-1"},
            delivery_info={"exchange": "", "routing_key": "q", "redelivered": False},
            payload=[[], {}, {}],
        )  # fmt: skip
        return AngzarrRequest(message, app=app, task=task)

    return make


def test_each_delivery_has_a_token_of_its_own_and_the_owner_of_its_process_tree(app, request_of):
    one, other = (Envelope._make(request_of()._request_dict[FIELD]) for _ in range(2))
    assert one.token != other.token
    assert one.owner == other.owner == app._runtime.owner


def test_a_body_goes_on_as_it_was_decoded_here_and_raw_for_its_copies(request_of):
    request = request_of()
    assert request.body == [[], {}, {}]
    assert (request.content_type, request.content_encoding) == (None, None)
    raw = Envelope._make(request._request_dict[FIELD]).message("")
    assert raw.body == dumps([[], {}, {}]).encode()
    assert (raw.content_type, raw.content_encoding) == ("application/json", "utf-8")


def test_what_goes_to_a_child_is_hardly_larger_than_what_celery_sends(app):
    task = task_of(app, lambda: None)
    app.finalize(auto=True)
    args = [[{"n": n, "text": "x" * 20} for n in range(100)], {}, {}]
    message = SimpleNamespace(
        headers={"id": "task-1", "task": "t"}, body=dumps([args, {}, {}]), payload=[args, {}, {}],
        content_type="application/json", content_encoding="utf-8", properties={}, delivery_info={},
    )  # fmt: skip
    sent = [
        pickle.dumps((one.request_dict, one.body, one.content_type))
        for one in (made(message, app=app, task=task) for made in (AngzarrRequest, Request))
    ]
    assert len(sent[0]) < len(sent[1]) + 400


@pytest.fixture
def ended(app, request_of, monkeypatch):
    """A request whose message is watched: what it is told, in order, and what the store is told."""
    told = []
    store = app._runtime.settlement._executor.claimer.store
    settle = store.settle
    monkeypatch.setattr(
        store, "settle", lambda *given: told.append(given[2]) or settle(*given), raising=False
    )
    monkeypatch.setattr("angzarr.adapters.celery.worker.settlement.LOST_PAUSE", 0.01)

    def make(**headers):
        request = request_of(**headers)
        request._on_ack = lambda *_: told.append("ack")
        request._on_reject = lambda *given: told.append("requeue" if given[-1] else "reject")
        return request, told

    return make


def failure(error):
    try:
        raise error
    except type(error):
        return ExceptionInfo()


#: What the worker does while a child of its dies → whether the child died of itself, a start.
DIED = {
    "works": (lambda _app: None, True),
    "lets what runs end": (lambda app: app._runtime.stopping.begin(), True),
    "has closed its queues": (lambda app: app._runtime.stopping.close(), True),
    "cuts what runs": (lambda app: app._runtime.stopping.cut(), False),
}


@pytest.mark.parametrize(("worker_does", "counted"), DIED.values(), ids=DIED)
def test_a_lost_child_frees_its_claim_first_and_counts_only_its_own_death(
    ended, app, worker_does, counted
):
    request, told = ended()
    worker_does(app)
    request.on_failure(failure(WorkerLostError("signal 9")))
    wait_until(lambda: len(told) == 2)
    assert told == [Release(counted=counted), "requeue"]


def test_what_would_end_a_process_is_given_back_counted_in_a_pool_without_any(ended):
    """A solo pool tells of it as if it were a success."""
    request, told = ended()

    def leave():
        raise SystemExit(3)

    made = create_request_cls(
        AngzarrRequest, request.task, SimpleNamespace(apply_async=None), "host", None
    )
    apply_target(leave, callback=partial(made.on_success, request))
    wait_until(lambda: len(told) == 2)
    assert told == [Release(counted=True), "requeue"]


def test_a_child_lost_in_a_cold_shutdown_counts_no_start(ended, monkeypatch):
    monkeypatch.setattr("celery.worker.state.should_terminate", True)
    request, told = ended()
    request.on_failure(failure(WorkerLostError("signal 9")))
    wait_until(lambda: len(told) == 2)
    assert told == [Release(counted=False), "requeue"]


def test_what_breaks_off_in_a_child_comes_back_after_a_pause(ended, monkeypatch):
    monkeypatch.setattr("angzarr.adapters.celery.worker.settlement.LOST_PAUSE", 0.2)
    request, told = ended()
    request.on_failure(failure(Reject("broke off", requeue=True)), return_ok=True)
    assert told == []
    wait_until(lambda: told == ["requeue"])


def test_a_worker_that_stops_gives_back_at_once(ended, app):
    request, told = ended()
    app._runtime.stopping.begin()
    request.on_failure(failure(Reject("the worker stops", requeue=True)), return_ok=True)
    assert told == ["requeue"]


def test_after_a_lost_connection_the_claim_is_freed_and_nothing_given_back(ended):
    request, told = ended()
    request._already_cancelled = True
    request.on_failure(failure(Terminated(15)))
    wait_until(lambda: told)
    assert told == [Release(counted=False)]


def test_a_hard_time_limit_is_retried_by_a_copy_and_acknowledged_last(ended, waiting):
    request, told = ended()
    request.on_failure(failure(TimeLimitExceeded(1)))
    request.on_timeout(soft=False, timeout=1)
    wait_until(lambda: "ack" in told)
    fenced, waits, acknowledged = told
    assert fenced == Release(counted=False), "whoever still runs it is fenced first"
    assert isinstance(waits, Wait)
    assert acknowledged == "ack"
    assert [message.headers["retries"] for message in waiting()] == [1]


@pytest.mark.parametrize(
    ("reason", "expected"), [("revoked", Reason.REVOKED), ("expired", Reason.TOO_OLD)]
)
def test_a_revoked_or_expired_message_is_a_letter_before_it_is_acknowledged(
    app, ended, reason, expected
):
    put = []
    queue = app._runtime.settlement._executor.settler.dead_letters
    queue.put = lambda letters: put.extend(letters) or [None] * len(letters)
    request, told = ended()
    request._announce_revoked(reason, None, None, reason == "expired")
    wait_until(lambda: "ack" in told)
    assert [letter.reason for letter in put] == [expected]
    assert isinstance(told[-2], Fail)


def test_what_celery_rejects_for_good_is_a_letter_first(app, ended):
    put = []
    app._runtime.settlement._salvage.dead_letters.put = lambda letters: (
        put.extend(letters) or [None]
    )
    request, told = ended()
    request.reject(requeue=False)
    wait_until(lambda: told)
    assert told == ["ack"]
    assert [letter.error_code for letter in put] == ["REJECTED"]


def test_what_a_child_returned_is_left_alone(app, request_of, monkeypatch):
    monkeypatch.setattr(
        app._runtime.settlement._executor.claimer.store,
        "settle",
        lambda key, *_: "duty" in key or pytest.fail("twice"),
    )
    monkeypatch.setattr(Request, "on_failure", lambda *_args, **_options: None)
    request_of().on_failure(None, return_ok=True)


def test_a_store_that_is_away_keeps_the_message_until_it_is_back(ended, app, monkeypatch):
    request, told = ended()
    store, outage = app._runtime.settlement._executor.claimer.store, [StoreUnavailable("away")] * 3
    settle = store.settle

    def away(*given):
        if outage:
            raise outage.pop()
        return settle(*given)

    monkeypatch.setattr(store, "settle", away)
    request.on_failure(failure(WorkerLostError("signal 9")))
    wait_until(lambda: len(told) == 2)
    assert told == [Release(counted=True), "requeue"]


def test_a_message_of_protocol_1_goes_on_as_one_of_protocol_2(app):
    task = task_of(app, lambda *_: None)
    app.finalize(auto=True)
    told = {
        "task": "t", "id": "old", "args": [1], "kwargs": {}, "retries": 2, "eta": None,
        "callbacks": None, "argsrepr": "", "kwargsrepr": "", "headers": {"mine": "yes"},
    }  # fmt: skip
    message = SimpleNamespace(
        headers={}, body=dumps(told), content_type="application/json", content_encoding="utf-8",
        properties={}, delivery_info={}, payload=told,
    )  # fmt: skip
    body = ([1], {}, {"callbacks": None})
    request = AngzarrRequest(message, app=app, task=task, body=body, headers=told, decoded=True)
    raw = Envelope._make(request._request_dict[FIELD]).message("q")
    assert json.loads(raw.body) == [[1], {}, {"callbacks": None}]
    assert (raw.task, raw.id, raw.headers["retries"]) == ("t", "old", 2)
    assert raw.headers["mine"] == "yes"


def test_messages_half_of_protocol_1_are_told_apart_by_the_id_in_their_body(app):
    task = task_of(app, lambda *_: None)
    app.finalize(auto=True)
    keys = set()
    for name in ("one", "other"):
        told = {"id": name, "args": [1], "kwargs": {}}
        message = SimpleNamespace(
            headers={"task": "t", "mine": "yes"}, body=dumps(told), payload=told, properties={},
            content_type="application/json", content_encoding="utf-8", delivery_info={},
        )  # fmt: skip
        body, headers, decoded, _ = hybrid_to_proto2(message, told)
        request = AngzarrRequest(
            message, app=app, task=task, body=body, headers=headers, decoded=decoded
        )
        delivery = delivery_of(app, request._request_dict[FIELD], request.args, request.kwargs)
        assert (delivery.message.id, delivery.message.headers["mine"]) == (name, "yes")
        assert json.loads(delivery.message.body)[:2] == [[1], {}]
        keys.add(delivery.key)
    assert len(keys) == 2, "or the second would be taken for a duplicate, and be lost"


def test_a_copy_of_a_compressed_message_does_not_claim_to_be_compressed(request_of):
    request = request_of(compression="application/x-gzip")
    assert "compression" not in Envelope._make(request._request_dict[FIELD]).message("q").headers


@pytest.mark.parametrize("error", [RecursionError("too deep"), pickle.PicklingError("no")])
def test_what_no_child_can_be_sent_is_a_letter_and_frees_its_slot(app, ended, error):
    put = []
    app._runtime.settlement._salvage.dead_letters.put = lambda letters: (
        put.extend(letters) or [None]
    )
    request, told = ended()
    forgotten = []
    jobs = [
        SimpleNamespace(correlation_id=name, _payload=sent, discard=partial(forgotten.append, at))
        for at, (name, sent) in enumerate([("task-1", None), ("task-1", b"sent"), ("other", None)])
    ]

    def apply_async(*_args, **_options):
        raise error

    pool = SimpleNamespace(
        apply_async=apply_async, _pool=SimpleNamespace(_cache=dict(enumerate(jobs)))
    )
    made = create_request_cls(AngzarrRequest, request.task, pool, "host", None, app=app)
    request.__class__ = made
    with pytest.raises(TaskRevokedError):  # on which Celery frees the slot
        request.execute_using_pool(pool)
    wait_until(lambda: told)
    assert told == ["ack"]
    assert [letter.error_code for letter in put] == ["INVALID_TASK"]
    assert forgotten == [0], "and no job of another message, or one that is under way"


def test_a_claim_that_could_not_be_given_back_is_the_next_tries_own(ended, app, monkeypatch, sent):
    put, refused = [], [OSError("the dead-letter queue is away")]
    queue, store = (
        app._runtime.settlement._executor.settler.dead_letters,
        app._runtime.settlement._executor.claimer.store,
    )
    settle = store.settle

    def put_later(letters):
        if refused:
            raise refused[0]
        put.extend(letters)
        return [None]

    def settled(key, token, ending, facts=()):
        if refused and isinstance(ending, Release) and store.owns(key, token):
            refused.clear()
            raise StoreUnavailable("so is the store, when the claim is to be given back")
        return settle(key, token, ending, facts)

    monkeypatch.setattr(queue, "put", put_later)
    monkeypatch.setattr(store, "settle", settled)
    request, told = ended()
    request._announce_revoked("revoked", None, None, expired=False)
    wait_until(lambda: "ack" in told)
    assert [letter.reason for letter in put] == [Reason.REVOKED]
    assert sent("q") == [], "it was not taken for one in another worker's hands"


def test_a_task_runs_where_its_start_cannot_be_told_to_listeners(ended, monkeypatch):
    request, _ = ended()

    def away(*_args, **_fields):
        raise ConnectionError("the broker of events")

    monkeypatch.setattr(request, "_eventer", SimpleNamespace(enabled=True, send=away))
    monkeypatch.setattr(request.task, "send_events", True)
    ran = []
    pool = TaskPool(1)
    try:
        pool.on_apply(
            ran.append, (True,), callback=ran.append, accept_callback=request.on_accepted
        ).wait(60)
    finally:
        pool.on_stop()
    assert ran == [True, None], "and its end was told"


def test_who_listens_for_states_hears_that_a_delivery_was_ignored(app):
    heard = []

    def hear(state=None, **_signal):
        heard.append(state)

    def wait():
        raise Postpone(60)

    task = task_of(app, wait)
    state, told = traced(task, task_id="unheard")
    assert (state, type(told.info.retval)) == (IGNORED, Ignore)
    task_postrun.connect(hear)
    try:
        assert traced(task, task_id="heard")[0] == IGNORED
    finally:
        task_postrun.disconnect(hear)
    assert heard == [IGNORED]


@pytest.fixture
def succeeded(app, request_of, monkeypatch):
    """A request whose child handled the event and left its completion; and what follows, in order.

    *token* holds the claim, and *settle_all* takes the place of the store's.
    """
    told = []
    store, owner = app._runtime.claim_batch.store, app._runtime.owner

    def make(token="mine", settle_all=store.settle_all):
        def watched(ends):
            held = settle_all(ends)
            told.append([(type(end.ending).__name__, *end.facts) for end in ends])
            return held

        key = f"idempotency:t:{uuid.uuid4()}"
        store.claim([Claim(key=key, token=token, owner=owner, counted=False)])
        monkeypatch.setattr(store, "settle_all", watched)
        request = request_of()
        request._ride = BatchedClaim("mine", key, Claimed(starts=0))
        request._on_ack = lambda *_: told.append("ack")
        request._on_reject = lambda *given: told.append("requeue" if given[-1] else "reject")
        left = LeftCompletion(Complete(result='"kept"'), ("a fact",))
        request.leave_to_ack(LeftToAck.of("", left))
        request.acknowledge()
        return store.claim([Claim(key=key, token="another", owner=owner)]) and told

    return make


def test_a_success_is_acknowledged_once_its_completion_is_confirmed(succeeded):
    told = succeeded()
    wait_until(lambda: len(told) == 2)
    assert told == [[("Complete", "a fact")], "ack"]


def test_nothing_is_acknowledged_while_the_claim_store_is_away(succeeded, app):
    away, asked = threading.Event(), threading.Event()
    settle_all = app._runtime.claim_batch.store.settle_all

    def fail_first(ends):
        asked.set()
        if not away.is_set():
            msg = "away"
            raise StoreUnavailable(msg)
        return settle_all(ends)

    told = succeeded(settle_all=fail_first)
    assert asked.wait(60)
    assert told == []
    away.set()
    wait_until(lambda: len(told) == 2)
    assert told == [[("Complete", "a fact")], "ack"]


def test_a_success_whose_claim_was_taken_over_is_fenced_and_acknowledged(
    succeeded, app, monkeypatch
):
    noted = []
    monkeypatch.setattr(type(app._runtime.settlement), "note_fenced", lambda *_: noted.append(1))
    told = succeeded(token="a successor's")
    wait_until(lambda: len(told) == 2)
    assert (told, noted) == ([[("Complete", "a fact")], "ack"], [1])


def test_a_success_whose_claim_cannot_be_ended_goes_back(succeeded, monkeypatch):
    def refuse(_ends):
        msg = "a record of another kind"
        raise TypeError(msg)

    monkeypatch.setattr("angzarr.adapters.celery.worker.settlement.LOST_PAUSE", 0.0)
    told = succeeded(settle_all=refuse)
    wait_until(lambda: told)
    assert told == ["requeue"]


class Alone:
    """A run that is ended without its process."""

    def __init__(self) -> None:
        self.told = []

    def cut_for(self, told) -> None:
        self.told.append(told)


def test_a_run_that_ends_alone_is_settled_as_revoked(ended, app, monkeypatch):
    put, run, (request, told) = [], Alone(), ended()
    queue = app._runtime.settlement._executor.settler.dead_letters
    real = queue.put
    monkeypatch.setattr(queue, "put", lambda given: (put.extend(given), real(given))[1])
    request.keep_result(ref(run))
    request.terminate(None, "KILL")
    assert told == []
    (tell,) = run.told
    tell()
    wait_until(lambda: "ack" in told, "its message to be acknowledged")
    assert [letter.reason for letter in put] == [Reason.REVOKED]
    assert told.count("ack") == 1
    assert "requeue" not in told


def test_a_run_that_ends_with_its_process_only_is_left_to_the_pool(ended):
    class Pool:
        def terminate_job(self, *_):
            raise NotImplementedError

    request, _ = ended()
    request.time_start = 1.0
    with pytest.raises(NotImplementedError):
        request.terminate(Pool())
