"""What a coroutine is shown of its own task, where several run at once on one loop."""

from __future__ import annotations

import asyncio

import pytest
from celery import current_task
from celery.contrib.testing.worker import start_worker

from angzarr import Angzarr
from polling import wait_until

AT_ONCE = 4


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_each_coroutine_sees_its_own_request(redis_broker, unique_name, pool):
    app = Angzarr(
        "coroutines", broker=redis_broker, store=redis_broker,
        dlq={"backend": "none", "accept_loss": True}, facts={"log": False},
    )  # fmt: skip
    app.conf.update(task_default_queue=unique_name, task_ignore_result=True)
    seen, children, gathered = [], [], []
    running, together = set(), asyncio.Event()

    @app.task(name="child", bind=True)
    def child(self, number):
        children.append((number, self.request.parent_id, self.request.root_id))

    def look(self, number):
        request = self.request
        return (
            number, request.id, request.retries, request.delivery_info["routing_key"],
            current_task.request.id, request.args,
        )  # fmt: skip

    async def beside(self, number):
        await asyncio.sleep(0.01)
        return look(self, number)

    @app.task(name="waits", bind=True, max_retries=3)
    async def waits(self, number):
        first = look(self, number)
        running.add(number)
        if len(running) == AT_ONCE or pool == "solo":
            together.set()
        await together.wait()
        gathered.extend(await asyncio.gather(beside(self, number), beside(self, number)))
        assert look(self, number) == first
        seen.append(first)
        if not self.request.retries:
            raise self.retry(countdown=0)
        child.delay(number)

    sent = {number: waits.delay(number).id for number in range(AT_ONCE)}
    with start_worker(
        app, pool=pool, concurrency=AT_ONCE, perform_ping_check=False, shutdown_timeout=60
    ):
        wait_until(lambda: len(children) == AT_ONCE, seconds=60)
    assert sorted(seen) == sorted(
        (number, task_id, retries, unique_name, task_id, [number])
        for number, task_id in sent.items()
        for retries in (0, 1)
    )
    assert sorted(gathered) == sorted(2 * seen), "what it awaits sees the same"
    assert sorted(children) == sorted((n, task_id, task_id) for n, task_id in sent.items())
