"""angzarr demo on real servers: real workers, real payloads, and nothing left on the servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from polling import PATIENCE

pytestmark = pytest.mark.soak
EVENTS = 60


def dlq_of(kind, request):
    address = request.getfixturevalue(
        {"kafka": "kafka_brokers", "amqp": "amqp_url", "sns-sqs": "sqs_endpoint"}[kind]
    )
    return {
        "kafka": f"kafka://{address}",
        "amqp": address,
        "sns-sqs": f"sns-sqs://us-east-1?endpoint={quote(address, safe='')}",
    }[kind]


@contextmanager
def demo(*options, folder):
    process = subprocess.Popen(
        [sys.executable, "-m", "angzarr", "demo", "--dir", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        process.stdout.close()


@pytest.mark.parametrize(
    ("broker", "dlq"), [("redis", "kafka"), ("amqp", "amqp"), ("redis", "sns-sqs")]
)
def test_real_payloads_are_accounted_for(broker, dlq, request, redis_url, data_folder, tmp_path):
    broker_url = redis_url if broker == "redis" else request.getfixturevalue("amqp_url")
    with demo(
        "--broker", broker_url, "--store", redis_url, "--dlq", dlq_of(dlq, request),
        "--events", str(data_folder / "github-webhooks.jsonl"), "--count", str(EVENTS),
        "--timeout", "240", folder=tmp_path,
    ) as process:  # fmt: skip
        said, _ = process.communicate(timeout=360)
    assert process.returncode == 0, said
    assert f"{EVENTS} events made {3 * EVENTS} (event, handler) pairs" in said
    assert re.search(r"Every pair is accounted for", said)
    assert leftovers(redis_url) == []
    if dlq == "sns-sqs":
        assert leftovers_of_aws(request.getfixturevalue("sqs_endpoint")) == []


def test_letters_on_pubsub_are_accounted_for_and_nothing_is_left_there(pubsub_emulator, tmp_path):
    from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient

    project = f"angzarr-demo-{uuid.uuid4().hex[:8]}"
    options = ("--dlq", f"pubsub://{project}", "--count", "4", "--seed", "2", "--timeout", "240")
    with demo(*options, folder=tmp_path) as process:
        said, _ = process.communicate(timeout=360)
    assert process.returncode == 0, said
    assert re.search(r"of them [1-9]\d* by a replay", said), "a letter went there and back"
    with PublisherClient() as publisher, SubscriberClient() as subscriber:
        assert list(publisher.list_topics(project=f"projects/{project}")) == []
        assert list(subscriber.list_subscriptions(project=f"projects/{project}")) == []


def test_a_message_taken_from_a_real_queue_is_missed(redis_url, kafka_brokers, tmp_path):
    import redis

    with (
        redis.Redis.from_url(redis_url) as client,
        demo(
            "--broker", redis_url, "--dlq", f"kafka://{kafka_brokers}", "--count", "12",
            "--timeout", "45", folder=tmp_path,
        ) as process,
    ):  # fmt: skip
        stolen = steal(client)
        said, _ = process.communicate(timeout=360)
    assert stolen
    assert process.returncode == 1, said
    assert "NOT ACCOUNTED FOR (1):" in said


def steal(client):
    """Take one message out of the demo's queue while its worker is still starting."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for key in client.scan_iter("angzarr-demo-*:angzarr-demo-*", _type="list"):
            if taken := client.rpop(key):
                return taken
        time.sleep(0.01)
    return None


def leftovers_of_aws(endpoint):
    import boto3

    sqs, sns = (boto3.client(name, endpoint_url=endpoint) for name in ("sqs", "sns"))
    urls = sqs.list_queues(QueueNamePrefix="angzarr-dlq-demo-").get("QueueUrls", [])
    topics = [one["TopicArn"] for one in sns.list_topics()["Topics"]]
    leads = [one["TopicArn"] for one in sns.list_subscriptions()["Subscriptions"]]
    return [*urls, *(one for one in (*topics, *leads) if "angzarr-dlq-demo-" in one)]


def leftovers(redis_url):
    import redis

    with redis.Redis.from_url(redis_url) as client:
        return list(client.scan_iter("*angzarr-demo-*"))
