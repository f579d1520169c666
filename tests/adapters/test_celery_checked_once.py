"""A message is checked once between its fetch and its run, whoever looks at it first."""

from __future__ import annotations

from collections import Counter

import pytest
from celery.contrib.testing.worker import start_worker

from angzarr import Angzarr
from angzarr.adapters.celery import claim_batch
from angzarr.adapters.celery.worker import consumer, request
from angzarr.adapters.celery.worker import message_limits as intake
from angzarr.events import received
from polling import wait_until

CHECKS = {
    "check_headers": (request, claim_batch, consumer),
    "checked_body": (request, claim_batch, consumer),
    "check_received": (received, intake),
}


@pytest.fixture
def calls(monkeypatch):
    """How often each check was called, by its name and the id that the headers say."""
    found = Counter()

    def counted(name, check):
        def count(first, *rest):
            said = first[0] if name == "checked_body" else first
            found[name, said["id"] if isinstance(said, dict) else said[0]] += 1
            return check(first, *rest)

        return count

    for name, modules in CHECKS.items():
        for module in modules:
            monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return found


@pytest.mark.parametrize(
    "options", [{}, {"expires": 3600}], ids=["claimed with its fetch", "claimed when it runs"]
)
def test_each_message_is_checked_once(redis_broker, unique_name, calls, options):
    app = Angzarr(
        "once",
        broker=redis_broker,
        store=redis_broker,
        dlq={"backend": "none", "accept_loss": True},
        facts={"log": False},
    )
    app.conf.update(task_default_queue=unique_name, task_ignore_result=True)
    ran = []

    @app.task(name="noop")
    def noop(number):
        ran.append(number)

    sent = [noop.apply_async((number,), **options).id for number in range(20)]
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=60):
        wait_until(lambda: len(ran) == len(sent))
    for name in CHECKS:
        keys = range(20) if name == "checked_body" else sent
        assert {key: calls[name, key] for key in keys} == dict.fromkeys(keys, 1), name
