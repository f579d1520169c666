"""The doctor and a real RabbitMQ: queues of others, wrong exchanges, delays without an end."""

from __future__ import annotations

from urllib.parse import urlsplit

import amqp
import pytest
from kombu.transport.native_delayed_delivery import (
    declare_native_delayed_delivery_exchanges_and_queues as declare_delays,
)
from tests.conftest import manage

from addresses import MANAGEMENT, addresses
from angzarr.adapters.rabbitmq.doctor import Management
from angzarr.adapters.rabbitmq.queue_check import drops, in_force
from angzarr.dead_letters.names import dropped_queue, queue_name
from angzarr.doctor.finding import Area
from angzarr.doctor_probes import DoctorTarget
from angzarr.doctor_probes.run import apply_fix
from apps import apps
from doctoring import examined, found, ids, stock_app, untold, virtual_host
from polling import wait_until


@pytest.fixture
def management():
    return addresses()[MANAGEMENT]


@pytest.fixture
def vhost(unique_name, amqp_url):
    """A virtual host of the test's own: its delay queues are seen by nobody else."""
    with virtual_host(amqp_url, unique_name) as url:
        yield url


@pytest.fixture
def channel(vhost):
    parts = urlsplit(vhost)
    connection = amqp.Connection(
        host=f"{parts.hostname}:{parts.port}", userid=parts.username, password=parts.password,
        virtual_host=parts.path[1:],
    )  # fmt: skip
    connection.connect()
    yield connection.channel()
    connection.close()


@pytest.fixture
def make_app(vhost, redis_url, unique_name, monkeypatch):
    monkeypatch.setenv("ANGZARR_PREFIX", unique_name)
    with apps(broker=vhost, store=redis_url, dlq={"backend": "amqp"}) as make:
        yield make


def checks_of_rabbitmq(report):
    return {
        one.check.id for one in report.findings if one.check.area is Area.RABBITMQ and one.known
    }


def declare(app):
    """As a worker does."""
    for queue in app.amqp.queues.values():
        with app.connection_for_write() as connection:
            queue(connection.default_channel).declare()
            declare_delays(connection, "quorum")


def test_the_queues_of_an_app_that_are_missing_are_named_and_nothing_is_made(make_app, channel):
    app = make_app()
    report = examined(app)
    told = [one.at.rpartition(" ")[2] for one in found(report, "queue-missing")]
    name = app.conf.task_default_queue
    assert sorted(told) == sorted([name, dropped_queue(app.settings.prefix)])
    assert "delay-queues-missing" in ids(report, "error")
    assert "dead-letter-queue-missing" in ids(report, "warning")
    for queue in (name, queue_name("unknown"), "celery_delayed_0"):
        with pytest.raises(amqp.exceptions.NotFound):
            channel.queue_declare(queue, passive=True)


def test_all_that_is_missing_is_made_as_a_worker_would(make_app, management):
    app = make_app()
    patient = DoctorTarget(app=app)
    kinds = set()
    for finding in examined(app).findings:
        if finding.fix is not None and finding.check.area is not Area.REDIS:
            apply_fix(patient, finding.fix)
            kinds.add(finding.fix.kind)
    assert len(kinds) == 3
    report = examined(app, management=management)
    assert checks_of_rabbitmq(report) == set()
    assert "dead-letter-queue-missing" not in ids(report)


def test_a_server_with_the_queues_of_a_worker_is_well(make_app, management):
    app = make_app()
    declare(app)
    report = examined(app, management=management)
    assert checks_of_rabbitmq(report) == {"queue-missing"}  # the one of what is dropped
    assert "rabbitmq-alarm" not in untold(report)


def test_a_classic_queue_in_place_of_a_quorum_queue_is_told(make_app, channel):
    app = make_app()
    channel.queue_declare(app.conf.task_default_queue, durable=True, auto_delete=False)
    told = ids(examined(app))
    assert {"queue-differs", "queue-classic"} <= told
    assert "queue-not-durable" not in told


def test_a_queue_that_goes_with_its_last_reader_is_told(make_app, channel):
    app = make_app()
    channel.queue_declare(app.conf.task_default_queue, durable=False, auto_delete=True)
    assert "queue-not-durable" in ids(examined(app), "critical")


def test_an_exchange_of_another_type_is_told(make_app, channel):
    app = make_app()
    declare(app)
    exchange = app.amqp.queues[app.conf.task_default_queue].exchange.name
    assert "exchange-type" not in ids(examined(app))
    channel.queue_delete(app.conf.task_default_queue)
    channel.exchange_delete(exchange)
    channel.exchange_declare(exchange, "fanout", durable=True, auto_delete=False)
    (told,) = found(examined(app), "exchange-type")
    assert "'topic'" in told.seen or "'fanout'" in told.seen


@pytest.mark.parametrize(
    "arguments", [{"x-message-ttl": 60_000}, {"x-max-length": 5}, {"x-expires": 600_000}]
)
def test_a_queue_that_drops_messages_is_told(vhost, channel, arguments):
    channel.queue_declare("celery", durable=True, auto_delete=False, arguments=arguments)
    with stock_app(vhost) as app:
        (told,) = found(examined(app), "queue-drops")
    assert next(iter(arguments)) in told.seen
    assert told.severity == "critical"


def test_a_policy_that_drops_messages_is_told(vhost, channel, management):
    channel.queue_declare("celery", durable=True, auto_delete=False)
    name = urlsplit(vhost).path[1:]
    policy = {"pattern": "^celery$", "definition": {"message-ttl": 5}, "apply-to": "queues"}
    with stock_app(vhost) as app:
        assert not found(examined(app, management=management), "queue-drops")
        manage("PUT", f"policies/{name}/short", policy)
        (told,) = eventually(lambda: found(examined(app, management=management), "queue-drops"))
    assert "x-message-ttl=5" in told.seen


def eventually(look):
    """RabbitMQ's own numbers and policies come seconds late."""
    return wait_until(look, "RabbitMQ to tell it")


@pytest.mark.parametrize(
    ("arguments", "limited", "dropped"),
    [
        ({"x-queue-type": "quorum"}, True, True),
        ({"x-queue-type": "quorum"}, False, False),
        ({"x-queue-type": "quorum", "x-delivery-limit": 3}, False, True),
        ({"x-queue-type": "quorum", "x-delivery-limit": -1}, True, False),
        ({"x-queue-type": "quorum", "x-dead-letter-exchange": ""}, True, False),
        ({"x-max-length": 3, "x-overflow": "reject-publish"}, True, False),
        ({"x-message-ttl": 3, "x-dead-letter-exchange": ""}, True, False),
        ({"x-expires": 3, "x-dead-letter-exchange": ""}, True, True),
    ],
)
def test_a_delivery_limit_drops_where_nothing_takes_what_it_gives_up(arguments, limited, dropped):
    assert bool(drops(arguments, limited=limited)) is dropped


@pytest.mark.parametrize(
    ("policy", "given", "both"),
    [
        ({"x-delivery-limit": 5}, {"x-delivery-limit": -1}, {"x-delivery-limit": 5}),
        ({"x-delivery-limit": -1}, {"x-delivery-limit": 7}, {"x-delivery-limit": 7}),
        ({"x-delivery-limit": 5}, {"x-delivery-limit": 7}, {"x-delivery-limit": 5}),
        ({"x-dead-letter-exchange": "a"}, {"x-dead-letter-exchange": "b"}, None),
        ({"x-max-length": 3}, {}, {"x-max-length": 3}),
    ],
)
def test_what_holds_of_a_policy_and_arguments_is_as_rabbitmq_has_it(policy, given, both):
    assert in_force(policy, given) == (given if both is None else both)


def test_a_policy_may_have_a_quorum_queue_drop_what_its_arguments_would_refuse():
    given = {"x-queue-type": "quorum", "x-max-length": 9, "x-overflow": "reject-publish"}
    assert not drops(in_force({}, given), limited=False)
    assert drops(in_force({"x-overflow": "drop-head"}, given), limited=False)


def test_a_default_limit_is_critical_only_where_policies_are_known(
    vhost, channel, management, monkeypatch
):
    """The shared server has none by default, so it says here that it is a RabbitMQ 4."""
    monkeypatch.setattr("angzarr.adapters.rabbitmq.doctor.release_of", lambda _told: 4)
    quorum = {"x-queue-type": "quorum"}
    channel.queue_declare("celery", durable=True, auto_delete=False, arguments=quorum)
    with stock_app(vhost) as app:
        blind = examined(app, management="http://127.0.0.1:9")
        assert "queue-drops" in untold(blind)
        assert not found(blind, "queue-drops")
        (told,) = eventually(lambda: found(examined(app, management=management), "queue-drops"))
    assert "x-delivery-limit=20" in told.seen


def test_a_mirrored_queue_is_told_to_have_no_future(vhost, channel, management):
    channel.queue_declare("celery", durable=True, auto_delete=False)
    policy = {"pattern": ".*", "definition": {"ha-mode": "all"}, "apply-to": "queues"}
    manage("PUT", f"policies/{urlsplit(vhost).path[1:]}/mirrors", policy)

    def mirrored():
        told = found(examined(app, management=management), "queue-classic")
        return [one for one in told if "ha-mode" in one.seen]

    with stock_app(vhost) as app:
        assert eventually(mirrored)[0].severity == "warning"


def test_a_policy_that_deletes_letters_is_told(make_app, vhost, management):
    app = make_app()
    for finding in examined(app).findings:
        if finding.check.id == "dead-letter-queue-missing":
            apply_fix(DoctorTarget(app=app), finding.fix)
    assert not found(examined(app, management=management), "dead-letter-queue-loses")
    policy = {
        "pattern": "^angzarr-dlq-",
        "definition": {"message-ttl": 3_600_000},
        "apply-to": "queues",
    }
    manage("PUT", f"policies/{urlsplit(vhost).path[1:]}/short", policy)
    told = eventually(
        lambda: found(examined(app, management=management), "dead-letter-queue-loses")
    )
    assert all("x-message-ttl=3600000" in one.seen for one in told)


def test_messages_that_nobody_takes_are_told(vhost, channel):
    channel.queue_declare("celery", durable=True, auto_delete=False)
    with stock_app(vhost) as app:
        assert not found(examined(app), "queue-unread")
        channel.basic_publish(amqp.Message("{}"), exchange="", routing_key="celery")
        (told,) = eventually(lambda: found(examined(app), "queue-unread"))
    assert told.seen == "1 messages, no consumer"


def test_delays_without_an_end_are_told(make_app, channel, management):
    """What waits is for queues that nobody has bound yet, or any more."""
    app = make_app()
    declare(app)
    assert "delay-queues-orphaned" not in ids(examined(app, management=management))
    channel.basic_publish(amqp.Message("{}"), exchange="", routing_key="celery_delayed_20")
    report = eventually(
        lambda: (r := examined(app, management=management)) and found(r, "delay-queues-orphaned")
    )
    assert report[0].severity == "critical"
    channel.exchange_declare("shop", "topic", durable=True, auto_delete=False)
    channel.exchange_bind("shop", "celery_delayed_delivery", "#.shop")
    assert not found(examined(app, management=management), "delay-queues-orphaned")


def test_what_waits_there_and_nobody_can_say_for_whom_is_unknown(vhost, channel):
    with stock_app(vhost) as app:
        with app.connection_for_write() as connection:
            declare_delays(connection, "quorum")
        channel.basic_publish(amqp.Message("{}"), exchange="", routing_key="celery_delayed_20")
        dead = "http://127.0.0.1:9"
        eventually(lambda: "delay-queues-orphaned" in untold(examined(app, management=dead)))


def test_delay_queues_that_may_lose_messages_are_told(make_app, vhost):
    app = make_app()
    with app.connection_for_write() as connection:
        declare_delays(connection, "classic")
    assert "delay-queues-weak" in ids(examined(app), "critical")


def test_without_its_management_interface_alarms_are_unknown(make_app):
    report = examined(make_app(), management="http://guest:hunter2@127.0.0.1:9")
    assert "rabbitmq-alarm" in untold(report)
    assert "hunter2" not in repr(report)


def test_who_may_only_write_and_read_is_told_no_lies(
    amqp_url_to_use_only, redis_url, unique_name, monkeypatch
):
    monkeypatch.setenv("ANGZARR_PREFIX", unique_name)
    given = {"store": redis_url, "dlq": {"backend": "amqp"}}
    with apps(broker=amqp_url_to_use_only, **given) as make:
        report = examined(make())
    assert not {"queue-differs", "exchange-type", "server-away"} & ids(report)
    assert "not-looked-at" not in untold(report)


def test_a_server_that_is_away_or_refuses_is_one_finding(redis_url, make_app, unique_name):
    given = {"store": redis_url, "dlq": {"backend": "amqp"}}
    with apps(broker="amqp://jo:hunter2@127.0.0.1:9//", **given) as make:
        report = examined(make())
    (away,) = found(report, "server-away")
    assert away.at == "RabbitMQ at 127.0.0.1:9", "the broker has the dead letters, too"
    assert "hunter2" not in repr(report)


def test_an_alarm_and_a_lost_member_are_read_from_the_management_interface():
    """Neither can be had on the shared server: what the interface says is given as it says it."""
    told = Management("http://a:b@127.0.0.1:1", "/", timeout=1)
    told._get = {
        "nodes": [{"name": "rabbit@m", "mem_alarm": True, "disk_free_alarm": False}, 7],
        "queues/%2F": [{"name": "q", "members": ["a", "b"], "online": ["a"]}, None],
    }.get
    assert told.alarms() == {"rabbit@m": ["memory"]}
    assert told.queues()["q"]["online"] == ["a"]
    assert told.bound_to("x") is None
