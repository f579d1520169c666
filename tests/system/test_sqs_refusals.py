"""SQS answers a worker that asks for messages with an error: the worker waits, and goes on.

kombu would end the worker or, worse, leave it alive and never ask again.
"""

from __future__ import annotations

import os

import boto3
import pytest

from endurance import soak
from polling import wait_until
from sqs_gateway import Gateway

REFUSALS = [(403, "ExpiredToken"), (400, "ThrottlingException"), (503, "ServiceUnavailable")]


@pytest.fixture
def gateway(sqs_endpoint):
    with Gateway(sqs_endpoint) as gateway:
        yield gateway


@pytest.fixture
def site(make_site, gateway):
    address = gateway.url.removeprefix("http://")
    return make_site(broker=f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{address}")


def handled(site, n):
    """Publish a thing and wait until it is handled."""
    site.app.publish(site.module.Thing(n=n), root="r")
    wait_until(lambda: n in {line["n"] for line in site.ran("handled")}, f"thing {n}")


@pytest.mark.parametrize("pool", ["prefork", soak("solo")])
def test_a_worker_whose_fetches_are_refused_goes_on_by_itself(site, gateway, pool):
    with site.worker(pool=pool) as worker:
        for n, (status, code) in enumerate(REFUSALS):
            handled(site, n)
            gateway.refuse("ReceiveMessage", status, code)
            wait_until(lambda: gateway.asked["ReceiveMessage"] > 1, f"fetches refused: {code}")
            gateway.admit()
        handled(site, len(REFUSALS))
        assert worker.poll() is None
    assert site.text().count("sqs_refuses") == 1, "once a minute"


def test_a_worker_goes_on_when_sqs_was_mute(site, gateway):
    with site.worker(pool="solo") as worker:
        handled(site, 1)
        gateway.speaking.clear()
        wait_until(lambda: "sqs_refuses" in site.text(), "the silence to be noticed")
        gateway.speaking.set()
        handled(site, 2)
        assert worker.poll() is None


def test_a_worker_goes_on_when_sqs_was_away_and_when_its_queue_was_deleted(
    site, gateway, sqs_endpoint
):
    with site.worker(pool="solo") as worker:
        handled(site, 1)
        gateway.close()
        wait_until(lambda: "sqs_refuses" in site.text(), "the absence to be noticed")
        gateway.open()
        handled(site, 2)
        client = boto3.client("sqs", endpoint_url=sqs_endpoint)
        address = client.get_queue_url(QueueName=site.app.conf.task_default_queue)["QueueUrl"]
        client.delete_queue(QueueUrl=address)
        handled(site, 3)
        assert worker.poll() is None


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException"])
def test_a_worker_that_may_not_delete_handles_on_once_each(site, gateway, code):
    with site.worker(pool="solo") as worker:
        handled(site, 0)
        gateway.refuse("DeleteMessage", 403, code)
        for n in range(1, 13):  # more than it may hold
            handled(site, n)
        gateway.admit()
        handled(site, 13)
        assert worker.poll() is None
    assert [line["n"] for line in site.ran("handled")] == list(range(14))
    if code == "AccessDenied":  # what SQS says; kombu takes others for errors of one message
        assert site.text().count("sqs_not_deleted") == 1, "once a minute"
