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


def by_argument(make, name, value):
    return make(**{name: value})


def by_an_argument_of_the_old_name(make, name, value):
    return make(**{_TO_OLD_KEY[name]: value})


def by_changes(make, name, value):
    return make(changes={name: value})


def by_a_source_of_the_constructor(make, name, value):
    return make(config_source={name: value})


def by_a_class_of_the_constructor(make, name, value):
    return make(config_source=type("Conf", (), {name: value}))


def by_a_module_of_the_constructor(make, name, value):
    return make(config_source=module(**{name: value}).__name__)


def by_a_namespace_of_the_constructor(make, name, value):
    return make(config_source={f"CELERY_{name.upper()}": value}, namespace="CELERY")


def by_attribute(make, name, value):
    app = make()
    setattr(app.conf, name, value)
    return app


def by_attribute_later(make, name, value):
    app = make()
    read(app)
    setattr(app.conf, name, value)
    return app


def by_item(make, name, value):
    app = make()
    app.conf[name] = value
    return app


def by_update(make, name, value):
    app = make()
    app.conf.update({name: value})
    return app


def by_update_later(make, name, value):
    app = make()
    read(app)
    app.conf.update(**{name: value})
    return app


def by_update_of_the_old_name(make, name, value):
    app = make()
    read(app)
    app.conf.update({_TO_OLD_KEY[name]: value})
    return app


def by_add_defaults(make, name, value):
    app = make()
    app.add_defaults({name: value})
    return app


def by_add_defaults_later(make, name, value):
    app = make()
    read(app)
    app.add_defaults(lambda: {name: value})
    return app


def by_dict(make, name, value):
    app = make()
    app.config_from_object({name: value})
    return app


def by_dict_later(make, name, value):
    app = make()
    read(app)
    app.config_from_object({name: value})
    return app


def by_dict_twice(make, name, value):
    app = make()
    app.config_from_object({"worker_hijack_root_logger": False}, force=True)
    app.config_from_object({name: value}, force=True)
    return app


def by_class(make, name, value):
    app = make()
    app.config_from_object(type("Conf", (), {name: value}))
    return app


def by_class_at_once(make, name, value):
    app = make()
    app.config_from_object(type("Conf", (), {name: value}), force=True)
    return app


def by_class_of_old_names(make, name, value):
    app = make()
    app.config_from_object(type("Conf", (), {_TO_OLD_KEY[name]: value}))
    return app


def by_module(make, name, value):
    app = make()
    app.config_from_object(module(**{name: value}).__name__)
    return app


def by_attribute_of_a_module(make, name, value):
    app = make()
    app.config_from_object(f"{module(Conf=type('Conf', (), {name: value})).__name__}:Conf")
    return app


def as_django(make, name, value):
    app = make()
    made = module(**{f"CELERY_{name.upper()}": value, "DEBUG": True, "SECRET_KEY": "x"})
    app.config_from_object(made.__name__, namespace="CELERY")
    return app


def as_django_later(make, name, value):
    app = make()
    read(app)
    app.config_from_object({f"CELERY_{name.upper()}": value}, namespace="CELERY")
    return app


def by_variable(make, name, value):
    app = make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONFIG_OF_A_TEST", module(**{name: value}).__name__)
        app.config_from_envvar("CONFIG_OF_A_TEST", force=True)
    return app


def by_celerys_variable(make, name, value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CELERY_CONFIG_MODULE", module(**{name: value}).__name__)
        app = make(loader="default")
        read(app)
    return app


def by_command_line(make, name, value):
    app = make()
    app.config_from_cmdline([f"{name.replace('_', '.', 1)}=(json){json.dumps(value)}"])
    return app


WAYS = [
    way for name, way in list(globals().items()) if name.startswith(("by_", "as_django"))
]  # fmt: skip


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
    app = way(make, name, value)
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


@pytest.mark.parametrize("way", [as_django, by_class_of_old_names, by_dict_later, by_attribute])
@pytest.mark.parametrize("name", sorted(set(ALL) - {"worker_consumer"}))
def test_a_value_that_cannot_work_is_refused_and_not_changed(make, way, name):
    value = other(name)
    if name in ("task_acks_on_failure", "accept_content") and way is by_class_of_old_names:
        value = False if name == "task_acks_on_failure" else ["pickle"]
    app = way(make, name, value)
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
