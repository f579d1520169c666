"""A worker that is part of another program leaves no thread of ours there when it has stopped."""

from __future__ import annotations

import asyncio
import threading
import warnings

import pytest
from celery.contrib.testing.worker import start_worker

from angzarr import Angzarr
from polling import wait_until


@pytest.fixture
def servers(request, tmp_path):
    """A broker with a claim store and a database for facts."""
    store = f"sqlite:///{tmp_path / 'claims.db'}"
    if request.param == "memory":
        return {
            "broker": f"memory://{tmp_path.name}",
            "store": store,
            "dlq": {"backend": "channel"},
        }
    amqp = request.getfixturevalue("amqp_url")
    if request.param == "redis":
        redis = request.getfixturevalue("redis_broker")
        return {"broker": redis, "store": redis, "dlq": {"backend": "amqp", "amqp_url": amqp}}
    return {
        "broker": amqp,
        "store": request.getfixturevalue("redis_url"),
        "dlq": {"backend": "amqp", "amqp_url": amqp},
    }


def ours() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("angzarr-")]


@pytest.mark.parametrize("servers", ["memory", "redis", "amqp"], indirect=True)
@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_the_threads_of_a_worker_end_with_it(servers, pool, tmp_path, unique_name):
    before = ours()
    app = Angzarr(
        "embedded",
        backend="cache+memory://",
        facts={"url": f"sqlite:///{tmp_path / 'facts.db'}"},
        **servers,
    )
    app.conf.task_default_queue = unique_name
    seen = set()

    @app.task
    async def awaited():
        await asyncio.sleep(0)
        seen.update(ours())
        return "awaited"

    @app.task(bind=True)
    def retried(self):
        seen.update(ours())
        if not self.request.retries:
            raise self.retry(countdown=0.2)
        raise ValueError("for good")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with start_worker(
            app, pool=pool, concurrency=2, perform_ping_check=False, shutdown_timeout=60
        ):
            results = [awaited.delay(), retried.delay()]
            for one, end in zip(results, ["SUCCESS", "FAILURE"], strict=True):
                wait_until(lambda one=one, end=end: one.state == end, f"{one.id} is a {end}")
        wait_until(lambda: ours() == before, "our threads to end")
    assert {"angzarr-lease", "angzarr-facts"} <= seen
    app.close()
