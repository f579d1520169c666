"""What the pool of coroutines makes of an app."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from celery.backends.cache import CacheBackend

from angzarr.adapters.celery.worker.coroutines_pool import (
    CoroutinesPool,
    store_results_in_threads,
)
from angzarr.adapters.celery.worker.delivery_greenlets import DeliveryGreenlets
from angzarr.adapters.celery.worker.pools import SteadyExecutor
from angzarr.delivery import async_runner
from polling import wait_until


def nothing():
    return None


class Slow(CacheBackend):
    """Notes which thread stores."""

    def __init__(self, app) -> None:
        super().__init__(app=app, backend="memory")
        self.stored: list[tuple[object, str]] = []

    def store_result(self, task_id, result, state, **_options):
        self.stored.append((result, threading.current_thread().name))


@pytest.fixture
def greenlets():
    async_runner.begin_sharing()
    callers = SteadyExecutor(1)
    yield DeliveryGreenlets(async_runner.begin_shared(), callers, 10)
    callers.shutdown()
    async_runner.end_sharing()


@pytest.mark.parametrize("given", ["app", "task"])
def test_a_result_is_stored_in_another_thread_whosever_backend_it_is(make_app, greenlets, given):
    app = make_app(broker="memory://", store="memory://")
    backend = Slow(app)
    if given == "app":
        app._backend_cache = backend
    own = {"backend": backend} if given == "task" else {}
    task = app.task(name="t", lazy=False, **own)(nothing)
    store_results_in_threads(app)
    greenlets.begin("t", lambda _run: task.backend.mark_as_done("1", "on the loop"))
    wait_until(lambda: backend.stored, "the result")
    task.backend.mark_as_done("2", "elsewhere")
    (first, first_thread), (second, second_thread) = backend.stored
    assert (first, second) == ("on the loop", "elsewhere")
    assert first_thread.startswith("angzarr-pool")
    assert second_thread == threading.current_thread().name


def test_what_a_lost_connection_brought_last_begins_all_the_same(greenlets):
    begun = threading.Event()
    pool = object.__new__(CoroutinesPool)
    pool.greenlets = greenlets
    pool.register_with_event_loop(SimpleNamespace(on_tick=set()))  # which turns no more
    greenlets.begin("t", lambda _run: begun.set())
    assert not begun.is_set()
    pool.flush()
    assert begun.wait(60)
