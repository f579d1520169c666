"""What is gathered into a batch, when it goes, and who hears of its end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from billiard.einfo import ExceptionInfo
from celery.exceptions import TaskRevokedError

from angzarr.adapters.celery.worker.batches import (
    MOST_PREFETCHED,
    BatchGatherer,
    BatchRequest,
    gather_batches,
    prefetch_multiplier,
)
from angzarr.delivery.batch import Batch
from angzarr.delivery.handlers import Handler, Handlers
from angzarr.events import headers as names


class FakeRequest:
    def __init__(self, number, name="h", **said):
        self.id, self.name = f"id-{number}", name
        self.request_dict = said.pop("headers", {})
        self.delivery_info = {"redelivered": said.pop("redelivered", False)}
        self.time_limits = said.pop("time_limits", (None, None))
        self.expires = said.pop("expires", None)
        self.embedded = said.pop("embedded", {})
        self.acknowledged = self.is_revoked = False
        self.time_start = self.batch = None
        self.task = SimpleNamespace(soft_time_limit=None, time_limit=None)
        self.app = SimpleNamespace(use_fast_trace_task=False)
        self.heard = []

    @property
    def call(self):
        return self.id, self.request_dict, ((), {}, {})

    def revoked(self):
        return self.is_revoked

    def __getattr__(self, name):
        if name.startswith("on_") or name in ("keep_result", "fail_to_begin", "discard_job"):
            return lambda *what, **_said: self.heard.append((name, *what))
        raise AttributeError(name)


class Gathering:
    """A gatherer whose time stands still until a test lets it pass."""

    def __init__(self, size=3):
        self.handed, self.due = [], []
        handlers = Handlers()
        batch = Batch(size=size, wait=5)
        handlers.add(Handler(name="h", bind=None, batch=batch))
        handlers.add(Handler(name="i", bind=None, batch=batch))
        handlers.add(Handler(name="single", bind=None))
        self.is_full = False
        self.gatherer = BatchGatherer(
            handlers, self.handed.append, lambda _seconds, flush: self.due.append(flush),
            lambda: self.is_full,
        )  # fmt: skip

    def take(self, *requests):
        for request in requests:
            self.gatherer(request)

    def pass_time(self):
        due, self.due = self.due, []
        for flush in due:
            flush()

    @property
    def ids(self):
        """Return the ids of what was handed over, a list for each job."""
        return [
            [one.id for one in job._requests] if isinstance(job, BatchRequest) else [job.id]
            for job in self.handed
        ]


@pytest.fixture
def gathering():
    return Gathering()


def test_a_batch_goes_once_it_is_full(gathering):
    gathering.take(*map(FakeRequest, range(7)))
    assert gathering.ids == [["id-0", "id-1", "id-2"], ["id-3", "id-4", "id-5"]]


def test_what_is_left_goes_once_the_first_has_waited(gathering):
    gathering.take(*map(FakeRequest, range(2)))
    assert gathering.ids == []
    gathering.pass_time()
    assert gathering.ids == [["id-0", "id-1"]]


def test_a_wait_that_ends_late_cuts_no_later_batch_short(gathering):
    gathering.take(*map(FakeRequest, range(3)))
    (late,), gathering.due = gathering.due, []
    gathering.take(FakeRequest(3))
    late()
    assert gathering.ids == [["id-0", "id-1", "id-2"]]
    gathering.pass_time()
    assert gathering.ids[1:] == [["id-3"]]


def test_nothing_waits_for_what_the_broker_will_not_send(gathering):
    gathering.take(FakeRequest(0), FakeRequest(1, "i"))
    gathering.is_full = True
    gathering.take(FakeRequest(2))
    assert gathering.ids == [["id-0", "id-2"], ["id-1"]]
    gathering.take(FakeRequest(3))
    assert gathering.ids[2:] == [["id-3"]]
    gathering.pass_time()
    assert len(gathering.ids) == 3


def test_each_handler_has_batches_of_its_own(gathering):
    gathering.take(FakeRequest(0), FakeRequest(1, "i"), FakeRequest(2), FakeRequest(3, "i"))
    gathering.pass_time()
    assert gathering.ids == [["id-0", "id-2"], ["id-1", "id-3"]]


def test_handlers_without_a_batch_and_unknown_ones_wait_for_nothing(gathering):
    gathering.take(FakeRequest(0, "single"), FakeRequest(1, "unknown"))
    assert gathering.ids == [["id-0"], ["id-1"]]


@pytest.mark.parametrize(
    "said",
    [
        {"redelivered": True},
        {"headers": {names.ATTEMPT: 2}},
        {"headers": {"retries": 1}},
        {"headers": {names.REPLAY: 1}},
        {"time_limits": (10, None)},
        {"time_limits": (None, 10)},
        {"expires": "a time"},
        {"embedded": {"callbacks": ["a link"]}},
        {"embedded": {"chain": ["a step"]}},
        {"embedded": {"chord": "a body"}},
    ],
)
def test_what_may_harm_others_or_wants_more_runs_alone(gathering, said):
    gathering.take(FakeRequest(0), FakeRequest(1, **said), FakeRequest(2))
    assert gathering.ids == [["id-1"]]
    gathering.pass_time()
    assert gathering.ids == [["id-1"], ["id-0", "id-2"]]


def test_a_copy_that_used_no_attempt_is_gathered(gathering):
    gathering.take(FakeRequest(0, headers={names.ATTEMPT: 1, names.HOP: 2}), FakeRequest(1))
    gathering.pass_time()
    assert gathering.ids == [["id-0", "id-1"]]


def test_what_was_given_back_meanwhile_does_not_run(gathering):
    requests = [FakeRequest(n) for n in range(3)]
    requests[0].acknowledged = requests[1].acknowledged = True
    gathering.take(*requests)
    assert gathering.ids == [["id-2"]]


def test_what_a_lost_connection_brought_is_forgotten(gathering):
    requests = [FakeRequest(n) for n in range(2)]
    gathering.take(*requests)
    assert gathering.gatherer.forget() == requests
    gathering.pass_time()
    assert gathering.ids == []
    gathering.take(*map(FakeRequest, range(4, 7)))
    assert gathering.ids == [["id-4", "id-5", "id-6"]]


class Pool:
    def __init__(self, error=None):
        self.error, self.options = error, {}

    def apply_async(self, _target, args, **options):
        if self.error is not None:
            raise self.error
        self.options = {"args": args, **options}


def batch_of(*requests, alone=None):
    return BatchRequest(list(requests), [].append if alone is None else alone.append)


def test_each_request_hears_of_its_own_end():
    first, second = FakeRequest(0), FakeRequest(1)
    pool = Pool()
    batch_of(first, second).execute_using_pool(pool)
    pool.options["accept_callback"](7, 1.0)
    pool.options["callback"]((0, ["end of 0", "end of 1"], 0.0))
    assert first.heard == [("on_accepted", 7, 1.0), ("on_success", "end of 0")]
    assert second.heard == [("on_accepted", 7, 1.0), ("on_success", "end of 1")]
    assert first.batch == second.batch == pool.options["correlation_id"]


def test_the_loss_of_its_process_is_told_to_each():
    first, second = FakeRequest(0), FakeRequest(1)
    pool, told = Pool(), []
    batch_of(first, second).execute_using_pool(pool)
    pool.options["error_callback"]("lost")
    try:
        raise SystemExit
    except SystemExit:
        told = ExceptionInfo()
    pool.options["callback"](told)
    assert first.heard == second.heard == [("on_failure", "lost"), ("on_failure", told)]


def test_one_that_fails_to_hear_keeps_no_other_from_it():
    first, second = FakeRequest(0), FakeRequest(1)

    def fail(*_how):
        raise OSError("lost")

    first.on_success = fail
    pool = Pool()
    batch_of(first, second).execute_using_pool(pool)
    with pytest.raises(OSError, match="lost"):
        pool.options["callback"]((0, [0, 1], 0.0))
    assert second.heard == [("on_success", 1)]


def test_a_revoked_request_is_left_out_and_an_empty_batch_frees_its_slot():
    first, second, third = (FakeRequest(n) for n in range(3))
    first.is_revoked = third.acknowledged = True
    pool = Pool()
    batch_of(first, second, third).execute_using_pool(pool)
    assert [call[0] for call in pool.options["args"][2]] == ["id-1"]
    with pytest.raises(TaskRevokedError):
        batch_of(first, third).execute_using_pool(pool)


def test_what_cannot_be_sent_together_goes_one_by_one():
    first, second = FakeRequest(0), FakeRequest(1)
    alone = []
    with pytest.raises(TaskRevokedError):
        batch_of(first, second, alone=alone).execute_using_pool(Pool(RecursionError()))
    assert alone == [first, second]
    assert first.batch is second.batch is None


def test_what_has_begun_is_not_handed_over_again():
    first, second = FakeRequest(0), FakeRequest(1)
    first.time_start = 1.0
    alone = []
    with pytest.raises(TaskRevokedError):
        batch_of(first, second, alone=alone).execute_using_pool(Pool(ValueError("a bug")))
    assert [what for what, *_ in first.heard] == ["fail_to_begin"]
    assert alone == [second]


def test_one_that_fails_before_it_runs_goes_back_and_keeps_no_other_from_running():
    first, second, pool = FakeRequest(0), FakeRequest(1), Pool()

    def fail():
        raise ValueError("a bug")

    first.revoked = fail
    batch_of(first, second).execute_using_pool(pool)
    assert [what for what, *_ in first.heard] == ["fail_to_begin"]
    assert [call[0] for call in pool.options["args"][2]] == ["id-1"]


def test_a_lost_connection_keeps_none_from_going_alone():
    requests, alone = [FakeRequest(n) for n in range(3)], []

    def hand_over(request):
        alone.append(request)
        raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        BatchRequest(list(requests), hand_over).execute_using_pool(Pool(RecursionError()))
    assert alone == requests


def test_a_lost_connection_is_passed_on():
    with pytest.raises(ConnectionError):
        batch_of(FakeRequest(0), FakeRequest(1)).execute_using_pool(Pool(ConnectionError()))


@pytest.fixture
def consumer_of(make_app):
    """Make the consumer of a worker for *queues* of an app whose batches come from two queues."""

    def consumer_of(*queues):
        app = make_app("batches")

        @app.handler("A", name="a", queue="batches", batch=Batch(size=100, wait=1))
        def take(_events): ...

        @app.handler("B", name="b", queue="others")
        def take_one(_event): ...

        app.finalize(auto=True)
        app.amqp.queues.select(queues)
        return SimpleNamespace(
            app=app, prefetch_multiplier=1, initial_prefetch_count=4, hub=object(), qos=None,
            on_task_request=print, pool=None,
        )  # fmt: skip

    return consumer_of


@pytest.mark.parametrize(
    ("queues", "expected"), [(["batches"], 800), (["others"], 4), (["others", "batches"], 800)]
)
def test_only_a_worker_of_their_queues_is_sent_enough_for_batches(consumer_of, queues, expected):
    consumer = consumer_of(*queues)
    assert gather_batches(consumer) is consumer.on_task_request
    assert consumer.initial_prefetch_count == expected
    assert consumer.prefetch_multiplier == expected // 4


@pytest.mark.parametrize(
    ("given", "largest", "processes", "expected"),
    [
        (1, 0, 8, 1),  # no handler takes batches
        (0, 100, 8, 0),  # no limit
        (1, 100, 1, 200),
        (500, 100, 1, 500),
        (1, 1000, 64, MOST_PREFETCHED // 64),
    ],
)
def test_each_process_is_sent_enough_for_two_batches(given, largest, processes, expected):
    assert prefetch_multiplier(given, largest, processes) == expected
