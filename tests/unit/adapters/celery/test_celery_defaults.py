"""Our defaults for Celery lie below whatever a user gives: each key, each way, at any time."""

from __future__ import annotations

import json
import sys
import types
import uuid

import pytest
from celery.app.defaults import _TO_OLD_KEY

from angzarr import Angzarr
from angzarr.adapters.celery.celery_defaults import AMQP_DEFAULTS, DEFAULTS
from angzarr.adapters.celery.worker import safety
from angzarr.errors import UnsafeSetting

ALL = {**DEFAULTS, **AMQP_DEFAULTS}
OTHER = {bool: lambda v: not v, int: lambda _: 42, float: lambda _: 42.5, type(None): lambda _: 7}


def other(name):
    """Return another value than ours, of its type."""
    value = ALL[name]
    kind = OTHER.get(type(value))
    if kind is not None:
        return kind(value)
    return ["other"] if isinstance(value, list) else "other"


def module(**content):
    made = types.ModuleType(f"settings_{uuid.uuid4().hex}")
    vars(made).update(content)
    sys.modules[made.__name__] = made
    return made


def read(app):
    return app.conf.task_protocol


def conf_class(name, value):
    return type("Conf", (), {name: value})


def conf_module(name, value):
    return module(**{name: value}).__name__


def in_namespace(name):
    return f"CELERY_{name.upper()}"


def at_once(given):
    """Give it to the constructor."""
    return lambda make, name, value: make(**given(name, value))


def later(give, *, is_read=False):
    """Give it to an app that is there, whose settings were read before or not."""

    def way(make, name, value):
        app = make()
        if is_read:
            read(app)
        give(app, name, value)
        return app

    return way


def from_object(source, **options):
    return lambda app, name, value: app.config_from_object(source(name, value), **options)


def by_dict_twice(app, name, value):
    app.config_from_object({"worker_hijack_root_logger": False}, force=True)
    app.config_from_object({name: value}, force=True)


def by_variable(app, name, value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONFIG_OF_A_TEST", conf_module(name, value))
        app.config_from_envvar("CONFIG_OF_A_TEST", force=True)


def by_celerys_variable(make, name, value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CELERY_CONFIG_MODULE", conf_module(name, value))
        app = make(loader="default")
        read(app)
    return app


def in_a_module_of_django(name, value):
    return module(**{in_namespace(name): value, "DEBUG": True, "SECRET_KEY": "x"}).__name__


def by_attribute(app, name, value):
    setattr(app.conf, name, value)


def by_command_line(app, name, value):
    app.config_from_cmdline([f"{name.replace('_', '.', 1)}=(json){json.dumps(value)}"])


WAYS = {
    "argument": at_once(lambda name, value: {name: value}),
    "argument of the old name": at_once(lambda name, value: {_TO_OLD_KEY[name]: value}),
    "changes": at_once(lambda name, value: {"changes": {name: value}}),
    "source": at_once(lambda name, value: {"config_source": {name: value}}),
    "class as source": at_once(lambda *given: {"config_source": conf_class(*given)}),
    "module as source": at_once(lambda *given: {"config_source": conf_module(*given)}),
    "namespace of the source": at_once(
        lambda name, value: {"config_source": {in_namespace(name): value}, "namespace": "CELERY"}
    ),
    "attribute": later(by_attribute),
    "attribute, later": later(by_attribute, is_read=True),
    "item": later(lambda app, name, value: app.conf.__setitem__(name, value)),
    "update": later(lambda app, name, value: app.conf.update({name: value})),
    "update, later": later(lambda app, name, value: app.conf.update(**{name: value}), is_read=True),
    "update of the old name": later(
        lambda app, name, value: app.conf.update({_TO_OLD_KEY[name]: value}), is_read=True
    ),
    "add_defaults": later(lambda app, name, value: app.add_defaults({name: value})),
    "add_defaults, later": later(
        lambda app, name, value: app.add_defaults(lambda: {name: value}), is_read=True
    ),
    "dict": later(from_object(lambda name, value: {name: value})),
    "dict, later": later(from_object(lambda name, value: {name: value}), is_read=True),
    "dict, twice": later(by_dict_twice),
    "class": later(from_object(conf_class)),
    "class, at once": later(from_object(conf_class, force=True)),
    "class of old names": later(
        from_object(lambda name, value: conf_class(_TO_OLD_KEY[name], value))
    ),
    "module": later(from_object(conf_module)),
    "attribute of a module": later(
        from_object(lambda *given: f"{module(Conf=conf_class(*given)).__name__}:Conf")
    ),
    "django": later(from_object(in_a_module_of_django, namespace="CELERY")),
    "django, later": later(
        from_object(lambda name, value: {in_namespace(name): value}, namespace="CELERY"),
        is_read=True,
    ),
    "variable": later(by_variable),
    "celery's variable": by_celerys_variable,
    "command line": later(by_command_line),
}


@pytest.fixture
def make(facts_elsewhere):
    """Make an app whose settings nobody has read or given but the test."""
    made = []

    def make(**given):
        made.append(Angzarr("m", broker="amqp://127.0.0.1:1", store="redis://127.0.0.1:1", **given))
        return made[-1]

    yield make
    for app in made:
        app.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ALL)
def test_what_a_user_gives_wins_and_all_else_stays_ours(make, way, name):
    value = other(name)
    app = WAYS[way](make, name, value)
    assert app.conf[name] == value
    assert getattr(app.conf, name) == value
    assert app.conf.get(name) == value
    rest = {one: app.conf[one] for one in ALL if one != name}
    assert rest == {one: ALL[one] for one in ALL if one != name}


#: What a worker cannot work with, and refuses on RabbitMQ.
REFUSED = {
    "task_acks_late", "task_reject_on_worker_lost", "task_acks_on_failure", "task_acks_on_timeout",
    "task_serializer", "result_serializer", "accept_content", "result_accept_content",
    "task_default_delivery_mode",
}  # fmt: skip


@pytest.mark.parametrize("way", ["django", "class of old names", "dict, later", "attribute"])
@pytest.mark.parametrize("name", sorted(set(ALL) - {"worker_consumer"}))
def test_a_value_that_cannot_work_is_refused_and_not_changed(make, way, name):
    value = other(name)
    if name in ("task_acks_on_failure", "accept_content") and way == "class of old names":
        value = False if name == "task_acks_on_failure" else ["pickle"]
    app = WAYS[way](make, name, value)
    if name not in REFUSED:
        safety.check(app, "amqp")
        return
    with pytest.raises(UnsafeSetting, match=name):
        safety.check(app, "amqp")


@pytest.mark.parametrize("both", [True, False])
def test_the_older_name_of_two_settings_is_heeded(make, both):
    app = make()
    app.conf.task_acks_on_failure_or_timeout = both
    wrong = "task_acks_on_timeout is True" if both else "task_acks_on_failure is False"
    with pytest.raises(UnsafeSetting, match=wrong):
        safety.check(app, "amqp")
    app.conf.update(task_acks_on_timeout=False, task_acks_on_failure=True)
    safety.check(app, "amqp")


def test_what_rabbitmq_needs_follows_the_broker(make_app):
    app = make_app()
    assert app.conf.task_default_queue_type == "classic"
    app.conf.broker_url = "amqp://127.0.0.1:1"
    assert [queue.queue_arguments["x-queue-type"] for queue in app.amqp.queues.values()] == [
        "quorum"
    ]
    assert {name: app.conf[name] for name in AMQP_DEFAULTS} == dict(AMQP_DEFAULTS)


@pytest.mark.parametrize("given", [{}, {"lease": 4}, {"confirm_publish": False}])
@pytest.mark.parametrize("later", [False, True])
def test_a_transport_has_what_it_needs_below_what_it_is_told(make, given, later):
    app = make()
    if later:
        read(app)
    app.conf.broker_transport_options = given
    options = app.connection_for_write().transport_options
    assert options["confirm_publish"] is given.get("confirm_publish", True)
    assert {**options, **given} == options


@pytest.mark.parametrize(
    "brokers", ["amqp://a;amqp://b", ["amqp://a", "amqp://b"], "pyamqp://a", "amqps://a"]
)
def test_each_name_of_a_rabbitmq_is_known(make_app, brokers):
    app = make_app(broker=brokers, store="redis://127.0.0.1:1")
    assert app.connection_for_write().transport_options["confirm_publish"] is True
    assert app.conf.task_default_queue_type == "quorum"


def test_two_apps_share_no_list(make_app):
    one, two = make_app(), make_app()
    one.conf.accept_content.append("yaml")
    assert two.conf.accept_content == ["json"] == DEFAULTS["accept_content"]


def test_classic_queues_can_be_had_by_settings(make):
    app = make()
    app.config_from_object(
        {
            "CELERY_TASK_DEFAULT_QUEUE_TYPE": "classic",
            "CELERY_TASK_DEFAULT_EXCHANGE_TYPE": "direct",
        },
        namespace="CELERY",
    )
    (queue,) = app.amqp.queues.values()
    assert (queue.queue_arguments or {}).get("x-queue-type", "classic") == "classic"
    assert queue.exchange.type == "direct"
    safety.check(app, "amqp")
