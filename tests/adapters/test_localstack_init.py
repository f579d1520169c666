"""localstack/ on a real LocalStack: what it makes is what workers use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from angzarr_aws import names
from angzarr_aws.command import DIFFERS, main
from pydantic import BaseModel

from angzarr import Angzarr
from angzarr.adapters.s3.payloads import S3PayloadStore
from angzarr.adapters.sqs.dead_letters import SnsSqsDeadLetterQueue, SqsDeadLetterQueue
from angzarr.dead_letters.codec import encode
from angzarr.testing.cloud import Aws
from contracts.dead_letters import a_letter, take
from polling import wait_until

LOCALSTACK = Path(__file__).resolve().parents[2] / "localstack"


class Placed(BaseModel):
    order_id: str


@pytest.fixture
def aws(sqs_endpoint):
    return Aws(endpoint_url=sqs_endpoint)


@pytest.fixture
def make(aws, tmp_path, unique_name, monkeypatch):
    """Make what is wanted, with names of this test's own; gone when it ends."""
    monkeypatch.delenv("ANGZARR_DOMAINS", raising=False)
    made = tmp_path / "wanted.json"

    def run(**wanted):
        made.write_text(json.dumps({"domains": [unique_name], **wanted}))
        return main([str(made), "--endpoint-url", aws.endpoint_url])

    return run


def attributes(aws, name):
    sqs = aws.client("sqs")
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    return url, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]


def opened(aws, adapter, **options):
    return adapter(
        region=aws.region, endpoint_url=aws.endpoint_url, create_missing=False,
        options={"aws_access_key_id": "test", "aws_secret_access_key": "test"}, **options,
    )  # fmt: skip


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_letters_go_through_the_topic_into_the_queue_that_was_made(make, aws, unique_name, fifo):
    assert make(topics=True, fifo=fifo) == 0
    queue = opened(aws, SnsSqsDeadLetterQueue, fifo=fifo)
    letter = a_letter(unique_name)
    assert queue.put([letter]) == [None]
    (receipt,) = take(queue, [unique_name], 1)
    assert receipt.letter == letter
    queue.close()


def test_what_sns_cannot_deliver_is_found_by_who_reads_the_domain_undelivered(
    make, aws, unique_name
):
    assert make(topics=True) == 0
    topic = f"arn:aws:sns:{aws.region}:000000000000:{names.letters(unique_name)}"
    aws.client("sqs").delete_queue(QueueUrl=attributes(aws, names.letters(unique_name))[0])
    letter = a_letter(unique_name)
    encoded = encode(letter)
    said = {"content_type": {"DataType": "String", "StringValue": encoded.content_type}}
    aws.client("sns").publish(TopicArn=topic, Message=encoded.body.decode(), MessageAttributes=said)
    queue = opened(aws, SqsDeadLetterQueue)
    found = wait_until(
        lambda: [one for one in take(queue, [names.UNDELIVERED], 1) if one.letter == letter],
        "the letter is in the queue of what could not be delivered",
    )
    queue.done(found)
    queue.close()


def test_letters_go_into_the_queue_that_was_made_without_a_topic(make, aws, unique_name):
    assert make(encryption="none") == 0
    queue = opened(aws, SqsDeadLetterQueue)
    letter = a_letter(unique_name)
    assert queue.put([letter]) == [None]
    assert [one.letter for one in take(queue, [unique_name], 1)] == [letter]
    queue.close()


def test_the_second_run_changes_nothing_on_localstack(make, aws, unique_name):
    wanted = {
        "topics": True,
        "task_queues": {unique_name: {"max_receives": 3}},
        "bucket": {"name": unique_name, "prefix": "dlq", "keep_days": 400},
    }
    assert make(**wanted) == 0
    name = names.letters(unique_name)
    before = attributes(aws, name), attributes(aws, unique_name)
    assert make(**wanted) == 0
    assert (attributes(aws, name), attributes(aws, unique_name)) == before


def test_a_queue_that_somebody_made_otherwise_is_told_and_left(make, aws, unique_name, capsys):
    name = names.letters(unique_name)
    aws.client("sqs").create_queue(QueueName=name, Attributes={"MessageRetentionPeriod": "60"})
    assert make() == DIFFERS
    assert f"the queue {name} is there and was not changed" in capsys.readouterr().err
    assert attributes(aws, name)[1]["MessageRetentionPeriod"] == "60"


def test_a_payload_goes_into_the_bucket_that_was_made(make, aws, unique_name):
    assert make(bucket={"name": unique_name, "prefix": "dlq"}) == 0
    store = S3PayloadStore(
        unique_name, "dlq", region=aws.region, endpoint_url=aws.endpoint_url,
        options={"aws_access_key_id": "test", "aws_secret_access_key": "test"},
    )  # fmt: skip
    reference = store.put(b"a large body")
    assert store.fetch(reference) == b"a large body"
    store.close()


def test_what_is_received_too_often_is_moved_whole_and_can_be_moved_back(make, aws, unique_name):
    """A last resort: the road counts starts itself, and makes a letter of the fourth (poison)."""
    assert make(task_queues={unique_name: {"visibility_timeout": 60, "max_receives": 3}}) == 0
    app = Angzarr(
        unique_name,
        broker=f"sqs://test:test@{urlsplit(aws.endpoint_url).netloc}",
        store="memory://",
        set_as_current=False,
    )
    app.conf.broker_transport_options = {"region": aws.region, "is_secure": False}
    app.conf.task_default_queue = unique_name
    app.handler(Placed, domain=unique_name, name="sync")(_nothing)
    app.publish(Placed(order_id="o-1"), id="e-1")
    app.close()
    sqs = aws.client("sqs")
    url, found = attributes(aws, unique_name)
    aside = sqs.get_queue_url(QueueName=names.redriven(unique_name))["QueueUrl"]
    bodies = []
    wait_until(lambda: bodies.extend(_receive(sqs, url)) or len(bodies) == 3)
    (moved,) = wait_until(lambda: _receive(sqs, url) or _receive(sqs, aside))
    assert {*bodies} == {moved}
    arn = attributes(aws, names.redriven(unique_name))[1]["QueueArn"]
    sqs.start_message_move_task(SourceArn=arn, DestinationArn=found["QueueArn"])
    assert wait_until(lambda: _receive(sqs, url)) == [moved]


def _receive(sqs, url):
    reply = sqs.receive_message(QueueUrl=url, VisibilityTimeout=0, WaitTimeSeconds=0)
    return [message["Body"] for message in reply.get("Messages", ())]


def _nothing(_event: Placed) -> None:
    """Take it."""


def test_localstack_runs_the_script_as_its_own(aws, tmp_path, unique_name):
    """LocalStack executes the text of the file, which so has no name, in its own process."""
    init = shutil.copytree(LOCALSTACK, tmp_path / "init")
    (init / "angzarr.json").write_text(json.dumps({"domains": ["order"], "topics": True}))
    stand_in = tmp_path / "localstack"
    stand_in.mkdir()
    (stand_in / "__init__.py").touch()
    (stand_in / "config.py").write_text(f"class dirs:\n    init = {os.fspath(init)!r}\n")
    script = init / "ready.d" / "angzarr.py"
    netloc = urlsplit(aws.endpoint_url).netloc
    env = {
        **os.environ, "PYTHONPATH": str(tmp_path), "GATEWAY_LISTEN": netloc,
        "ANGZARR_DOMAINS": unique_name, "AWS_DEFAULT_REGION": aws.region,
    }  # fmt: skip
    told = subprocess.run(
        [sys.executable, "-c", f"exec(open({os.fspath(script)!r}, 'rb').read(), {{}})"],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    name = names.letters(unique_name)
    assert attributes(aws, name)[1]["VisibilityTimeout"] == "300"
    queue = opened(aws, SnsSqsDeadLetterQueue, timeout=timedelta(seconds=5))
    assert queue.put([a_letter(unique_name)]) == [None]
    queue.close()
