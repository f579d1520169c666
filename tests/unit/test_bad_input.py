"""Errors a user can make: each one clear sentence, as early as can be, and nothing sent or lost."""

from __future__ import annotations

import builtins
import pickle
import sys
import uuid
from dataclasses import dataclass
from datetime import timedelta

import pytest
from kombu import Producer
from pydantic import BaseModel

from angzarr import Policy
from angzarr.errors import (
    BrokerUnavailable,
    ConfigurationError,
    DuplicateHandler,
    EventDoesNotFit,
    InvalidDomainName,
    MissingExtra,
    NoSubscriber,
    PublishIncomplete,
    UnsafeSetting,
    UnserializableEvent,
)
from angzarr.events.event import task_id_for


class Placed(BaseModel):
    order_id: str


def nothing(event):
    pass


def no_arguments():
    pass


def other():
    pass


@pytest.fixture
def app(make_app):
    return make_app("shop")


def sent(app, queue=None):
    """Take what was published from the memory broker."""
    taken = []
    with app.connection_for_read() as connection:
        simple = connection.SimpleQueue(queue or app.conf.task_default_queue)
        while simple.qsize():
            message = simple.get_nowait()
            message.ack()
            taken.append(message)
        simple.close()
    return taken


@pytest.mark.parametrize("name", ["", "Order", "order_sync", "9to5", "ordér", "a" * 65, "a b"])
def test_a_domain_that_no_backend_carries_is_refused_when_the_handler_is_defined(app, name):
    with pytest.raises(InvalidDomainName, match="write it with a-z"):
        app.handler(Placed, domain=name)


def test_a_domain_is_checked_at_publish_too(app):
    app.handler(Placed)(nothing)
    with pytest.raises(InvalidDomainName):
        app.publish(Placed(order_id="1"), domain="No Such")
    assert sent(app) == []


def test_an_event_that_is_no_json_is_refused_before_anything_is_sent(app):
    @dataclass
    class Odd:
        thing: object

    app.handler("odd")(nothing)
    with pytest.raises(UnserializableEvent, match="cannot be written as JSON"):
        app.publish({"thing": object()}, type="odd")
    with pytest.raises(UnserializableEvent, match="Odd"):
        app.publish(Odd(object()), type="odd")
    assert sent(app) == []


def test_an_event_that_a_handler_here_could_never_read_is_refused_at_publish(app):
    app.handler(Placed)(nothing)
    with pytest.raises(EventDoesNotFit, match="order_id: Field required"):
        app.publish({"id": 7}, type="Placed")
    assert sent(app) == []
    app.publish({"id": 7}, type="Placed", check=False)
    assert len(sent(app)) == 1


def test_arguments_that_are_no_json_are_refused_when_the_task_is_sent(app):
    @app.task(name="t")
    def task(_thing):
        pass

    with pytest.raises(UnserializableEvent, match="t"):
        task.delay(object())


def test_a_handler_registered_twice_is_refused_at_once(app):
    def handle(event):
        pass

    app.handler(Placed)(handle)
    with pytest.raises(
        DuplicateHandler,
        match=r"name of two functions .*: rename one",
    ):
        app.handler(Placed)(handle)


def test_two_tasks_of_one_name_are_refused(app):
    app.task(name="same", lazy=False)(no_arguments)
    with pytest.raises(DuplicateHandler, match="same"):
        app.task(name="same", lazy=False)(other)


def test_a_handler_must_take_an_event(app):
    with pytest.raises(ConfigurationError, match=r"\(event, ctx\)"):
        app.handler(Placed)(no_arguments)
    with pytest.raises(ConfigurationError, match=r"\(event, ctx\)"):
        app.handler(Placed)(lambda a, b, c: None)


def test_a_plain_dict_needs_a_name(app):
    with pytest.raises(ConfigurationError, match="name it"):
        app.handler(dict)
    with pytest.raises(ConfigurationError, match="name it"):
        app.publish({"a": 1})


def test_an_event_nobody_takes_is_refused_unless_allowed(app):
    with pytest.raises(NoSubscriber, match="allow_no_subscriber"):
        app.publish(Placed(order_id="1"))
    assert app.publish(Placed(order_id="1"), allow_no_subscriber=True).type == "Placed"


def test_an_unknown_policy_is_refused_when_the_handler_is_defined(app):
    with pytest.raises(ConfigurationError, match="no backoff policy 'hourly'"):
        app.handler(Placed, policy="hourly")(nothing)


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("stoer: redis://x", 'unknown setting "stoer"; did you mean "store"'),
        ("dlq: {backend: carrier-pigeon}", "dlq.backend"),
        ("dlq: {backend: kafka}", "needs kafka_brokers"),
        ("dlq: {backend: pubsub}", "needs pubsub_project"),
        ("dlq: {pubsub_endpoint: 'https://pubsub.example'}", "host:port, without https://"),
        ("dlq: {backend: none}", "accept_loss: true"),
        ("dlq: {domains: [Bad_Name]}", "write it with a-z"),
        ("store: [", "not valid YAML in line"),
        ("- a list", "must hold keys and values"),
        ("store: a\nprefix: b\nstore: c", "has 'store' twice in one place in line 3: keep one"),
        ("dlq: {backend: amqp, backend: kafka}", "has 'backend' twice"),
        (
            "prefix: 2026-13-45",
            "holds a value that cannot be read: month must be in 1..12; quote it",
        ),
        ("most_starts: 0", "most_starts"),
    ],
)
def test_a_config_file_is_checked_when_the_app_is_made(make_app, tmp_path, yaml, said):
    path = tmp_path / "angzarr.yaml"
    path.write_text(yaml)
    with pytest.raises(ConfigurationError, match=said):
        make_app("shop", store=None, config=path)


def test_a_missing_config_file_is_named(make_app, tmp_path):
    with pytest.raises(ConfigurationError, match=r"gone\.yaml cannot be read"):
        make_app("shop", config=tmp_path / "gone.yaml")


def test_a_secret_in_a_bad_setting_is_not_printed(make_app, tmp_path):
    path = tmp_path / "angzarr.yaml"
    path.write_text("store: {url: 'redis://:hunter2@host'}")
    with pytest.raises(ConfigurationError) as caught:
        make_app("shop", store=None, config=path)
    assert "hunter2" not in str(caught.value)


def test_a_misspelt_environment_variable_is_refused(make_app, monkeypatch):
    monkeypatch.setenv("ANGZARR_STOER", "redis://x")
    with pytest.raises(ConfigurationError, match="ANGZARR_STOER"):
        make_app("shop")


def test_the_environment_wins_over_the_file_and_the_file_over_code(make_app, monkeypatch, tmp_path):
    path = tmp_path / "angzarr.yaml"
    path.write_text("store: redis://file\nprefix: file\ndlq: {domains: [file]}")
    monkeypatch.setenv("ANGZARR_STORE", "redis://environment")
    settings = make_app("shop", store="redis://code", dlq={"backend": "sqs"}, config=path).settings
    assert settings.store == "redis://environment"
    assert settings.prefix == "file"
    assert (settings.dlq.backend, settings.dlq.domains) == ("sqs", ("file",))


def test_a_missing_extra_says_what_to_install(make_app, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "confluent_kafka":
            raise ModuleNotFoundError(name=name)
        return real(name, *args, **kwargs)

    for module in [name for name in sys.modules if "kafka" in name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    app = make_app("shop", dlq={"backend": "kafka", "kafka_brokers": "127.0.0.1:1"})
    with pytest.raises(MissingExtra, match=r"pip install 'angzarr-workers\[kafka\]'"):
        app.ops.open_dead_letter_queue()


def test_a_missing_client_of_pubsub_says_what_to_install(make_app, monkeypatch):
    for module in [name for name in sys.modules if name.startswith("angzarr.adapters.pubsub")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "google.cloud.pubsub_v1", None)
    app = make_app("shop", dlq={"backend": "pubsub", "pubsub_project": "p"})
    with pytest.raises(MissingExtra, match=r"pip install 'angzarr-workers\[pubsub\]'"):
        app.ops.open_dead_letter_queue()


def test_a_broker_that_is_away_at_publish_is_one_sentence_without_the_password(make_app):
    app = make_app("shop", broker="amqp://guest:hunter2@127.0.0.1:1//", store="redis://127.0.0.1:1")
    app.conf.task_publish_retry_policy = {"max_retries": 0}
    app.handler(Placed)(nothing)
    with pytest.raises(BrokerUnavailable, match="Start it or set broker_url") as caught:
        app.publish(Placed(order_id="1"))
    assert "hunter2" not in str(caught.value)


def test_what_was_not_confirmed_is_published_again_with_the_id_of_the_error(app, monkeypatch):
    app.handler(Placed, name="one")(nothing)
    publish = Producer.publish

    def unheard(*args, **options):
        publish(*args, **options)
        raise ConnectionResetError("the confirm was lost")

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "publish", unheard)
        with pytest.raises(BrokerUnavailable, match="may have been sent") as caught:
            app.publish(Placed(order_id="1"))
    error = caught.value
    assert f"again with id={error.event_id!r}" in str(error)
    app.publish(Placed(order_id="1"), id=error.event_id)
    ids = [message.headers["id"] for message in sent(app)]
    assert ids == [task_id_for(error.event_id, "one")] * 2


def test_a_task_that_was_not_confirmed_is_sent_again_with_the_id_of_the_error(app, monkeypatch):
    task = app.handler(Placed, name="one")(nothing)

    def away(*_, **__):
        raise ConnectionResetError("away")

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "publish", away)
        for send in (
            lambda: task.apply_async(({},)),
            lambda: app.send_task("one", ({},)),
            lambda: app.send_task("one", ({},), {}, None, None),
        ):
            with pytest.raises(BrokerUnavailable, match="again with task_id=") as caught:
                send()
            assert f"task_id={caught.value.event_id!r}" in str(caught.value)
            uuid.UUID(caught.value.event_id)
        with pytest.raises(BrokerUnavailable) as caught:
            task.apply_async(({},), task_id="mine")
    assert caught.value.event_id == "mine"
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert (str(again), again.event_id) == (str(caught.value), "mine")


def test_a_partly_failed_publish_names_who_is_missing(app, monkeypatch):
    app.handler(Placed, name="one")(nothing)
    app.handler(Placed, name="two")(nothing)
    send = app.send_task

    def flaky(name, **options):
        if name == "two":
            raise BrokerUnavailable("away")
        return send(name, **options)

    monkeypatch.setattr(app, "send_task", flaky)
    with pytest.raises(PublishIncomplete, match="not sent to two") as caught:
        app.publish(Placed(order_id="1"), id="e-1")
    assert (caught.value.event_id, caught.value.missing) == ("e-1", ("two",))
    monkeypatch.setattr(app, "send_task", send)
    app.publish(Placed(order_id="1"), id="e-1")
    ids = [message.headers["id"] for message in sent(app)]
    assert len(ids) == 3
    assert len(set(ids)) == 2, "publishing again sends the same task ids"


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("task_acks_late", False, "task_acks_late is False: set it to True"),
        ("task_reject_on_worker_lost", False, "task_reject_on_worker_lost"),
        ("task_acks_on_timeout", True, "task_acks_on_timeout is True: set it to False"),
        ("task_acks_on_failure", False, "task_acks_on_failure"),
        ("task_serializer", "pickle", "can be made to run code"),
        ("accept_content", ["json", "pickle"], "accept_content takes pickle"),
        ("task_always_eager", True, "it is for tests"),
    ],
)
def test_a_worker_refuses_unsafe_settings_and_says_which(app, setting, value, said):
    app.conf[setting] = value
    with pytest.raises(UnsafeSetting, match=said):
        app._runtime.check_worker("threads")


def test_the_defaults_are_safe(app):
    app._runtime.check_worker("threads")


def test_a_worker_refuses_an_unsafe_task(app):
    app.task(name="early", acks_late=False, lazy=False)(no_arguments)
    with pytest.raises(UnsafeSetting, match="task early has acks_late=False"):
        app._runtime.check_worker("threads")


def test_rabbitmq_without_confirms_is_refused(make_app):
    app = make_app("shop", broker="amqp://127.0.0.1:1", store="redis://127.0.0.1:1")
    assert app.connection_for_write().transport_options["confirm_publish"] is True
    app.conf.broker_transport_options = {"confirm_publish": False}
    with pytest.raises(UnsafeSetting, match="confirm_publish"):
        app._runtime.check_worker("prefork")


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent"])
def test_a_time_limit_that_a_pool_ignores_is_refused(app, pool):
    app.task(name="limited", time_limit=5, lazy=False)(no_arguments)
    with pytest.raises(UnsafeSetting, match=f"the {pool} pool ignores"):
        app._runtime.check_worker(pool)


def test_an_async_handler_in_a_gevent_pool_is_refused(app):
    @app.handler(Placed)
    async def handle(event):
        pass

    with pytest.raises(UnsafeSetting, match="is async"):
        app._runtime.check_worker("gevent")


def test_a_memory_broker_with_processes_is_refused(app):
    with pytest.raises(UnsafeSetting, match="threads or solo"):
        app._runtime.check_worker("prefork")


@pytest.mark.parametrize("broker", ["redis://127.0.0.1:1", "sqs://", "amqp://127.0.0.1:1"])
def test_a_policy_may_wait_for_days_on_any_broker(make_app, monkeypatch, broker):
    monkeypatch.setenv("ANGZARR_REDIS_TRANSPORT", "kombu")
    app = make_app(
        "shop", broker=broker, store="redis://127.0.0.1:1",
        dlq={"backend": "sqs", "aws_region": "us-east-1"},
        broker_transport_options={"visibility_timeout": 60},
    )  # fmt: skip
    slow = Policy(name="slow", base=timedelta(hours=1), max_delay=timedelta(days=7), max_attempts=9)
    app.handler(Placed, policy=slow)(nothing)
    app._runtime.check_worker("prefork")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"broker": "amqp://h", "store": None}, "set store to a Redis or PostgreSQL"),
        ({"broker": "redis://h", "store": "sqlite:///x.db"}, "one host only"),
        ({"broker": "redis://h", "store": "mongodb://h"}, "mongodb:… is unknown"),
        ({"broker": "redis://h", "store": "redis://h"}, "set dlq.backend"),
        (
            {"broker": "redis://h", "store": "redis://h", "dlq": {"backend": "amqp"}},
            "needs dlq.amqp_url",
        ),
        (
            {"broker": "redis://h", "store": "redis://h", "dlq": {"backend": "channel"}},
            "dies with its process",
        ),
        ({"broker": "amqp://h", "store": "memory://"}, "not shared by workers"),
        (
            {"broker": "redis://h", "store": "redis://h", "dlq": {"targets": ["amqp"]}},
            "needs dlq.amqp_url",
        ),
    ],
)
def test_servers_that_cannot_serve_are_refused_at_start(make_app, options, said):
    app = make_app("shop", **options)
    with pytest.raises(ConfigurationError, match=said):
        app._runtime.check_worker("prefork")


def test_a_spool_that_takes_no_files_is_refused_at_start(make_app, tmp_path):
    (tmp_path / "file").write_text("")
    spool = {"path": str(tmp_path / "file" / "spool"), "durable": True}
    app = make_app(
        "shop", broker="amqp://h", store="redis://h",
        dlq={"targets": ["amqp", "spool"], "spool": spool},
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"cannot be used.*that this user may write to"):
        app._runtime.check_worker("prefork")


def test_a_harmless_base_class_is_mixed_with_the_road(app):
    from celery import Task

    from angzarr.adapters.celery.worker.task import AngzarrTask

    class Shared(Task):
        abstract = True
        connection = "shared"

    task = app.task(base=Shared, name="mixed", lazy=False)(no_arguments)
    assert isinstance(task, AngzarrTask)
    assert task.connection == "shared"


def test_the_worker_command_refuses_with_one_sentence(tmp_path):
    import os
    import subprocess

    (tmp_path / "unsafe.py").write_text(
        "from angzarr import Angzarr\napp = Angzarr('unsafe', broker='memory://')\n"
        "app.conf.task_acks_late = False\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "unsafe", "worker", "-P", "solo"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 1
    assert "angzarr refuses to start, messages would be lost: task_acks_late" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "broker": "redis://h",
            "store": "redis://h",
            "dlq": {"backend": "none", "accept_loss": True},
        },
    ],
)
def test_an_analysis_worker_that_could_read_nothing_is_refused(make_app, options):
    with pytest.raises(ConfigurationError, match="no letters that another process could read"):
        make_app("shop", **options).ops.check_analysis()
