"""The doctor and where dead letters go: Kafka, SQS, Pub/Sub, RabbitMQ, the spool of a machine."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import amqp
import boto3
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient

from angzarr.adapters.files.doctor import file_system_of
from angzarr.adapters.s3.doctor import deleting
from angzarr.adapters.sqs.client import Service
from angzarr.adapters.sqs.fan_out import policy_for
from angzarr.adapters.sqs.topics import SnsTopics
from angzarr.dead_letters.names import EXCHANGE, queue_name
from angzarr.doctor_probes import DoctorTarget
from angzarr.doctor_probes.run import apply_fix
from angzarr.errors import DeadLetterQueueUnavailable
from apps import apps
from doctoring import examined, found, ids, stock_app, virtual_host
from polling import wait_until


@pytest.fixture
def make_app(redis_url, unique_name):
    with apps(broker=redis_url) as make:
        yield lambda **dlq: make(dlq={"domains": [unique_name], **dlq})


def of(report, check, name):
    return [one for one in found(report, check) if queue_name(name) in one.at]


def mend_all(app, name):
    fixes = [one.fix for one in examined(app).findings if one.fix is not None and name in one.at]
    return [apply_fix(DoctorTarget(app=app), fix) for fix in fixes]


# -- Kafka --------------------------------------------------------------------------------------


def test_a_topic_that_is_missing_is_made_as_the_first_letter_would(
    make_app, kafka_brokers, unique_name
):
    app = make_app(backend="kafka", kafka_brokers=kafka_brokers)
    assert of(examined(app), "dead-letter-queue-missing", unique_name)
    admin = AdminClient({"bootstrap.servers": kafka_brokers})
    assert queue_name(unique_name) not in admin.list_topics(timeout=10).topics
    assert mend_all(app, unique_name) == [""]
    report = examined(app)
    assert not of(report, "dead-letter-queue-missing", unique_name)
    assert not [
        one
        for one in of(report, "dead-letter-queue-loses", unique_name)
        if one.severity != "warning"
    ], "one replica of the tests' one broker"


def test_a_topic_that_deletes_letters_and_one_that_nobody_reads_are_told(
    make_app, kafka_brokers, unique_name
):
    admin = AdminClient({"bootstrap.servers": kafka_brokers})
    name = queue_name(unique_name)
    topic = NewTopic(name, 1, config={"retention.ms": "604800000"})
    admin.create_topics([topic])[name].result(60)
    group = f"group-{unique_name}"
    app = make_app(backend="kafka", kafka_brokers=kafka_brokers, kafka_group=group)
    (told,) = of(examined(app), "dead-letter-queue-loses", unique_name)
    assert (told.severity, "retention.ms=604800000" in told.seen) == ("critical", True)
    assert not of(examined(app), "analysis-worker-missing", unique_name)
    producer = Producer({"bootstrap.servers": kafka_brokers})
    producer.produce(name, b"{}")
    assert producer.flush(10) == 0
    (unread,) = of(examined(app), "analysis-worker-missing", unique_name)
    assert unread.seen == "1 letters, no reader"


def test_a_kafka_that_is_away_is_one_finding(make_app):
    app = make_app(backend="kafka", kafka_brokers="127.0.0.1:9")
    soon = timedelta(seconds=1)
    assert [one.at for one in found(examined(app, timeout=soon), "server-away")] == [
        "Kafka at 127.0.0.1:9 (dead letters)"
    ]


# -- SQS ----------------------------------------------------------------------------------------


@pytest.fixture
def sqs(sqs_endpoint):
    return boto3.client("sqs", endpoint_url=sqs_endpoint, region_name="us-east-1")


@pytest.fixture
def on_sqs(make_app, sqs_endpoint):
    return make_app(backend="sqs", aws_endpoint_url=sqs_endpoint, aws_region="us-east-1")


def test_a_queue_on_sqs_that_is_missing_is_made_and_then_well(on_sqs, unique_name):
    (told,) = of(examined(on_sqs), "dead-letter-queue-missing", unique_name)
    assert told.severity == "warning"
    assert mend_all(on_sqs, unique_name) == [""]
    report = examined(on_sqs)
    assert not of(report, "dead-letter-queue-missing", unique_name)
    assert not of(report, "dead-letter-queue-loses", unique_name)


def test_a_queue_on_sqs_that_deletes_letters_is_told(on_sqs, sqs, unique_name):
    sqs.create_queue(
        QueueName=queue_name(unique_name), Attributes={"MessageRetentionPeriod": "345600"}
    )
    (told,) = of(examined(on_sqs), "dead-letter-queue-loses", unique_name)
    assert "MessageRetentionPeriod=345600" in told.seen


def test_letters_of_a_domain_that_nobody_reads_are_told(on_sqs, sqs, unique_name):
    other = f"other-{unique_name}"
    url = sqs.create_queue(QueueName=queue_name(other))["QueueUrl"]
    assert not of(examined(on_sqs), "letters-unread", other)
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    (told,) = of(examined(on_sqs), "letters-unread", other)
    assert f"dlq.domains: [{other}]" in told.change
    sqs.delete_queue(QueueUrl=url)


# -- SNS ----------------------------------------------------------------------------------------


@pytest.fixture
def on_sns(make_app, sqs_endpoint):
    return make_app(backend="sns_sqs", aws_endpoint_url=sqs_endpoint, aws_region="us-east-1")


@pytest.fixture
def sns(sqs_endpoint):
    return boto3.client("sns", endpoint_url=sqs_endpoint, region_name="us-east-1")


def test_a_queue_that_letters_cannot_come_to_by_its_topic_is_told_and_nothing_is_made(
    on_sns, sqs, sns, unique_name
):
    name = queue_name(unique_name)
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    assert missing(on_sns, unique_name) == "the SNS topic of its name does not exist"
    topic = sns.create_topic(Name=name)["TopicArn"]
    assert missing(on_sns, unique_name) == "it is not subscribed to the SNS topic of its name"
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    assert "has no policy" in missing(on_sns, unique_name)
    refusing = policy_for(arn, f"{topic}-other")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": refusing})
    (told,) = of(examined(on_sns), "dead-letter-queue-unfit", unique_name)
    assert "does not let the topic send to it" in told.seen
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy_for(arn, topic)})
    report = examined(on_sns)
    assert not of(report, "dead-letter-queue-unfit", unique_name)
    (told,) = of(report, "dead-letter-topic-unlike", unique_name)
    assert "RawMessageDelivery=true" in told.seen


def missing(app, name):
    (told,) = of(examined(app), "dead-letter-queue-missing", name)
    assert told.fix is None, "whoever puts a letter makes topic, queue and subscription"
    return told.seen


def test_a_topic_as_letters_make_it_is_well(on_sns, sqs_endpoint, unique_name):
    service = Service(
        region="us-east-1", endpoint_url=sqs_endpoint, profile=None, timeout=5, options={}
    )
    topics = SnsTopics(service, fifo=False, create_missing=True, sleep=lambda _seconds: None)
    topics.ready(unique_name)
    topics.close()
    told = {one.check.id for one in examined(on_sns).findings if queue_name(unique_name) in one.at}
    assert told == set()


def sqs_broker(endpoint):
    address = endpoint.removeprefix("http://")
    return f"sqs://{os.environ['AWS_ACCESS_KEY_ID']}:test@{address}"


def test_task_queues_on_sqs_are_looked_at_and_made(sqs, sqs_endpoint, redis_url, unique_name):
    dlq = {"backend": "sqs", "aws_endpoint_url": sqs_endpoint, "aws_region": "us-east-1"}
    with apps(broker=sqs_broker(sqs_endpoint), store=redis_url, dlq=dlq) as make:
        app = make()
        name = app.conf.task_default_queue
        assert [name in one.at for one in found(examined(app), "queue-missing")] == [True]
        assert mend_all(app, name) == [""]
        report = examined(app)
        assert not {"queue-missing", "sqs-retention", "sqs-redrive"} & ids(report)
        url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        arn = sqs.create_queue(QueueName=f"aside-{unique_name}")["QueueUrl"].rpartition("/")[2]
        redrive = (
            '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:'
            f'{os.environ["AWS_ACCESS_KEY_ID"]}:{arn}", "maxReceiveCount": "3"}}'
        )
        changed = {"MessageRetentionPeriod": "3600", "RedrivePolicy": redrive}
        sqs.set_queue_attributes(QueueUrl=url, Attributes=changed)
        assert {"sqs-retention", "sqs-redrive"} <= ids(examined(app), "warning")


def test_a_task_queue_that_is_made_hides_messages_as_long_as_a_worker_would_have_it(
    sqs, sqs_endpoint, monkeypatch, unique_name
):
    """Workers ask SQS for no time of their own: with its default, 30 s, longer tasks run twice."""
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)  # then kombu has one
    name = f"{unique_name}.urgent"  # kombu writes its dots as dashes
    with stock_app(sqs_broker(sqs_endpoint), task_default_queue=name) as app:
        app.conf.broker_transport_options = {"visibility_timeout": 900}
        (told,) = found(examined(app), "queue-missing")
        assert told.at.endswith(f"{unique_name}-urgent")
        apply_fix(DoctorTarget(app=app), told.fix)
        url = sqs.get_queue_url(QueueName=f"{unique_name}-urgent")["QueueUrl"]
        given = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert (given["VisibilityTimeout"], given["MessageRetentionPeriod"]) == ("900", "1209600")
        assert not {"queue-missing", "sqs-visibility", "server-away"} & ids(examined(app))
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "30"})
        (told,) = found(examined(app), "sqs-visibility")
        assert told.change.endswith("VisibilityTimeout=900")


def test_a_predefined_queue_is_looked_at_by_its_address(sqs, sqs_endpoint, unique_name):
    url = sqs.create_queue(QueueName=f"other-{unique_name}")["QueueUrl"]
    with stock_app(sqs_broker(sqs_endpoint), task_default_queue=unique_name) as app:
        app.conf.broker_transport_options = {"predefined_queues": {unique_name: {"url": url}}}
        report = examined(app)
        assert "sqs-visibility" in ids(report)
        assert "queue-missing" not in ids(report)
        sqs.delete_queue(QueueUrl=url)
        (told,) = found(examined(app), "queue-missing")
        assert told.fix is None


def test_what_celery_rejects_on_sqs_is_deleted(sqs, sqs_endpoint, unique_name):
    sqs.create_queue(QueueName=unique_name)
    with stock_app(sqs_broker(sqs_endpoint), task_default_queue=unique_name) as app:
        assert "sqs-rejects-delete" in ids(examined(app), "critical")


def test_an_sqs_that_is_away_is_one_finding(make_app, sqs_endpoint):
    app = make_app(backend="sqs", aws_endpoint_url="http://127.0.0.1:9", aws_region="us-east-1")
    (told,) = found(examined(app), "server-away")
    assert told.at == "SQS in us-east-1 (dead letters)"


# -- Pub/Sub ------------------------------------------------------------------------------------


def test_subscriptions_are_looked_at(make_app, pubsub_emulator, unique_name):
    app = make_app(backend="pubsub", pubsub_project="angzarr-doctor")
    name = queue_name(unique_name)
    assert of(examined(app), "dead-letter-queue-missing", unique_name)
    topic = f"projects/angzarr-doctor/topics/{name}"
    with PublisherClient() as publisher, SubscriberClient() as subscriber:
        publisher.create_topic(name=topic)
        subscriber.create_subscription(
            request={
                "name": f"projects/angzarr-doctor/subscriptions/{name}",
                "topic": topic,
                "message_retention_duration": {"seconds": 3600},
            }
        )
    (told,) = of(examined(app), "dead-letter-queue-loses", unique_name)
    assert "message_retention_duration=3600s" in told.seen


# -- RabbitMQ -----------------------------------------------------------------------------------


@pytest.fixture
def channel(amqp_url):
    parts = urlsplit(amqp_url)
    connection = amqp.Connection(
        host=f"{parts.hostname}:{parts.port}", userid=parts.username, password=parts.password,
        virtual_host=parts.path[1:],
    )  # fmt: skip
    connection.connect()
    yield connection.channel()
    connection.close()


def test_letters_that_wait_without_a_reader_are_told(make_app, amqp_url, channel, unique_name):
    app = make_app(backend="amqp", amqp_url=amqp_url)
    assert mend_all(app, unique_name) == [""]
    report = examined(app)
    assert not of(report, "dead-letter-queue-loses", unique_name)
    assert not of(report, "analysis-worker-missing", unique_name)
    name = queue_name(unique_name)
    channel.basic_publish(amqp.Message("{}"), exchange="", routing_key=name)
    wait_until(
        lambda: of(examined(app), "analysis-worker-missing", unique_name),
        "the count to be told",
    )
    channel.basic_consume(name, callback=lambda _message: None)
    wait_until(lambda: not of(examined(app), "analysis-worker-missing", unique_name), "a reader")


def test_a_queue_of_letters_that_loses_them_or_takes_none_is_told(
    make_app, amqp_url, channel, unique_name
):
    app, name = make_app(backend="amqp", amqp_url=amqp_url), queue_name(unique_name)
    channel.queue_declare(
        name,
        durable=True,
        auto_delete=False,
        arguments={"x-max-length": 10, "x-queue-type": "quorum"},
    )
    (told,) = of(examined(app), "dead-letter-queue-loses", unique_name)
    assert "x-max-length=10" in told.seen
    channel.queue_delete(name)
    channel.queue_declare(name, durable=False, auto_delete=True)
    assert of(examined(app), "dead-letter-queue-unfit", unique_name)
    channel.queue_delete(name)


def test_what_cannot_be_made_is_no_success(make_app, amqp_url, unique_name):
    """The exchange of the letters is another's: nothing was made, and the reason is told."""
    with virtual_host(amqp_url, unique_name) as host:
        app = make_app(backend="amqp", amqp_url=host)
        fixes = [one.fix for one in examined(app).findings if one.fix and unique_name in one.at]
        parts = urlsplit(host)
        connection = amqp.Connection(
            host=f"{parts.hostname}:{parts.port}", virtual_host=parts.path[1:]
        )
        connection.connect()
        connection.channel().exchange_declare(EXCHANGE, "fanout", durable=True, auto_delete=False)
        connection.close()
        with pytest.raises(DeadLetterQueueUnavailable, match="is not as letters need it"):
            apply_fix(DoctorTarget(app=app), fixes[0])
        assert "dead-letter-queue-unfit" in ids(examined(app), "error")


def test_a_queue_that_nobody_is_to_make_is_an_error(make_app, amqp_url, unique_name):
    app = make_app(backend="amqp", amqp_url=amqp_url, create_missing=False)
    (told,) = of(examined(app), "dead-letter-queue-missing", unique_name)
    assert told.severity == "error"


def test_letters_that_are_thrown_away_are_told(make_app):
    assert "letters-discarded" in ids(
        examined(make_app(backend="none", accept_loss=True)), "critical"
    )


# -- the spool ----------------------------------------------------------------------------------


def test_the_spool_of_this_machine_is_looked_at_and_left_alone(make_app, amqp_url, tmp_path):
    path = tmp_path / "spool"
    given = {"targets": ["amqp", "spool"], "amqp_url": amqp_url}
    spool = {"path": str(path), "durable": True, "max_bytes": 10}
    app = make_app(**given, spool=spool)
    report = examined(app)
    assert f"spool at {path}" in report.servers
    assert not {"spool-without-room", "spool-waiting"} & ids(report)
    assert not path.exists()
    much = make_app(**given, spool={**spool, "max_bytes": 2**60})
    assert "spool-without-room" in ids(examined(much), "warning")


# -- payloads -----------------------------------------------------------------------------------


@pytest.fixture
def make_with(make_app, amqp_url):
    return lambda **given: make_app(backend="amqp", amqp_url=amqp_url, payloads=given)


def of_payloads(app):
    found = examined(app).findings
    return {one.check.id: one.seen for one in found if one.at.startswith("payloads at ")}


def test_a_bucket_that_is_missing_or_deletes_payloads_is_told(make_with, sqs_endpoint, unique_name):
    bucket = unique_name.replace("_", "-")
    given = {"endpoint_url": sqs_endpoint, "region": "us-east-1"}
    app = make_with(url=f"s3://{bucket}/letters", **given)
    assert of_payloads(app) == {"payload-store-missing": "the bucket does not exist"}
    s3 = boto3.client("s3", endpoint_url=sqs_endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket=bucket)
    assert of_payloads(app) == {}
    rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 7}}
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    assert of_payloads(app) == {"payloads-deleted": "the rule 'old' deletes all* after 7 days"}
    assert s3.list_objects_v2(Bucket=bucket).get("Contents", []) == []


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"Prefix": "letters/old/"}, True),
        ({"Filter": {"And": {"Prefix": "l", "ObjectSizeGreaterThan": 5}}}, True),
        ({"Filter": {"Prefix": "logs/"}}, False),
        ({"Filter": {"Prefix": "letters-old/"}}, False),
        ({"Filter": {"Tag": {"Key": "a", "Value": "b"}}}, False),
        ({"Status": "Disabled"}, False),
        ({"Expiration": {"ExpiredObjectDeleteMarker": True}}, False),
    ],
)
def test_only_rules_that_meet_payloads_count(rule, told):
    rules = [{"Status": "Enabled", "Expiration": {"Days": 1}, **rule}]
    assert bool(list(deleting(rules, "letters/"))) is told


def test_an_s3_that_is_away_is_one_finding(make_with):
    app = make_with(url="s3://bucket/x", endpoint_url="http://127.0.0.1:9", region="us-east-1")
    assert set(of_payloads(app)) == {"server-away"}


def test_a_folder_of_payloads_is_looked_at_and_not_made(make_with, tmp_path):
    folder = tmp_path / "payloads"
    assert set(of_payloads(make_with(url=folder.as_uri()))) <= {"payload-store-not-durable"}
    assert not folder.exists()
    folder.write_text("no folder")
    assert set(of_payloads(make_with(url=(folder / "x").as_uri()))) == {"payload-store-missing"}


MOUNTS = """\
overlay / overlay rw 0 0
/dev/sda1 /var/lib ext4 rw 0 0
tmpfs /var/lib/an\\040other tmpfs rw 0 0
odd
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/spool", "overlay"),
        ("/var/lib/angzarr", "ext4"),
        ("/var/lib/an other/spool", "tmpfs"),
        ("/var/library", "overlay"),
    ],
)
def test_what_a_folder_lies_on_is_the_deepest_mount(path, kind):
    assert file_system_of(Path(path), MOUNTS.splitlines()) == kind


def test_the_store_of_messages_is_looked_at_besides_that_of_letters(
    make_with, monkeypatch, tmp_path, unique_name
):
    monkeypatch.setenv("ANGZARR_PAYLOADS__URL", f"memory://{unique_name}")
    (tmp_path / "file").touch()
    app = make_with(url=(tmp_path / "file" / "x").as_uri())
    servers = examined(app).servers
    assert f"payloads at memory://{unique_name}/" in servers
    assert set(of_payloads(app)) == {"payload-store-missing"}
    assert "payload-threshold-too-high" not in ids(examined(app))
    monkeypatch.setenv("ANGZARR_PAYLOADS__OVER", str(2**21))  # Redis: a MiB
    assert "payload-threshold-too-high" in ids(examined(make_with()))
