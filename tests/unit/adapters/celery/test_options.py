"""No keyword is swallowed: each is known, or refused with the nearest that is."""

from __future__ import annotations

import inspect
import math
import weakref
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from celery import Task, shared_task
from celery import _state as state
from hypothesis import example, given, settings
from hypothesis import strategies as st

from angzarr import Angzarr
from angzarr.adapters.celery import options
from angzarr.delivery import Batch
from angzarr.errors import AngzarrError, ConfigurationError
from angzarr.events.publication import Publication
from angzarr.projections.projection import Projection
from angzarr.runtime.text import unknown
from angzarr.settings.settings import SETTINGS, Settings

#: Public attributes of Celery's task class that a decorator has no business with.
NO_OPTIONS = {
    "AsyncResult", "MaxRetriesExceededError", "OperationalError", "add_around", "add_to_chord",
    "add_trail", "annotate", "app", "apply", "apply_async", "chunks", "delay", "from_config", "map",
    "pop_request", "push_request", "replace", "request", "request_stack", "retry", "run", "s",
    "send_event", "si", "signature", "signature_from_request", "starmap", "start_strategy",
    "subtask", "subtask_from_request", "update_state",
}  # fmt: skip


def task(_n=None):
    pass


def refuses(said, call):
    with pytest.raises(ConfigurationError) as caught:
        call()
    assert said in str(caught.value)


def test_each_attribute_of_a_task_is_an_option_or_is_none():
    public = {name for name in dir(Task) if not name.startswith("_")} - {"bind", "name"}
    assert public == (options.TASK & public) | NO_OPTIONS
    assert not options.TASK & NO_OPTIONS


# -- an app's arguments ------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_each_setting_is_an_argument(make_app, name):
    value = getattr(Settings(), name)
    app = make_app(**({name: value} if name not in ("store", "facts") else {}))
    assert name in ("store", "facts") or getattr(app.settings, name) == value


def test_a_section_is_given_as_a_mapping(make_app):
    app = make_app(dashboard={"burst": 7}, prefix="mine", most_starts=5, logs="celery")
    assert (app.settings.prefix, app.settings.most_starts) == ("mine", 5)
    assert (app.settings.dashboard.burst, app.settings.logs) == (7, "celery")


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_misspelt_setting_is_told_the_right_one(make_app, name):
    wrong = name[:-1] + "x" + name[-1]
    refuses(f'unknown setting "{wrong}"; did you mean "', lambda: make_app(**{wrong: 1}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dashbord": 5}, 'unknown setting "dashbord"; did you mean "dashboard"?'),
        ({"worker_prefech_multiplier": 5}, 'did you mean "worker_prefetch_multiplier"?'),
        ({"hook": ()}, 'did you mean "hooks"?'),
        ({"zzz": 5}, 'unknown setting "zzz": remove it'),
        ({"CELERY_TASK_ACKS_LATTE": True, "namespace": "CELERY"}, "CELERY_TASK_ACKS_LATTE"),
        ({"dlq": {"backed": "amqp"}}, 'unknown setting "dlq.backed"; did you mean "dlq.backend"?'),
        ({"flow": {"breakers": {"x": {"windw": 5}}}}, 'did you mean "flow.breakers.x.window"?'),
        ({"routes": {"E": [{"handlr": "h"}]}}, 'did you mean "routes.E.0.handler"?'),
        ({"retry": {"rules": [{"policie": "h"}]}}, 'did you mean "retry.rules.0.policy"?'),
    ],
)
def test_what_no_one_knows_is_refused_when_the_app_is_made(make_app, given, said):
    refuses(said, lambda: make_app(**given))


@pytest.mark.parametrize("name", ["task_track_started", "CELERY_TRACK_STARTED"])
def test_settings_of_celery_are_arguments_under_both_names(make_app, name):
    assert make_app(**{name: True}).conf.task_track_started is True


def test_settings_of_celery_may_have_the_namespace(make_app):
    app = make_app(namespace="CELERY", CELERY_TASK_TRACK_STARTED=True)
    assert app.conf.task_track_started is True


# -- options of handlers and tasks -------------------------------------------------------------


def by_handler(app, **given):
    app.handler("Placed", **given)(lambda _event: None)


def by_task(app, **given):
    app.task(**given)(task)


def by_saga(app, **given):
    from angzarr import Saga, reacts_to

    @app.saga("s", **given)
    class S(Saga):
        @reacts_to("Placed")
        def placed(self, event, ctx):
            pass


def by_process_manager(app, **given):
    from angzarr import ProcessManager, reacts_to

    @app.process_manager("p", **given)
    class P(ProcessManager[dict]):
        @reacts_to("Placed")
        def placed(self, event, ctx):
            pass


def by_aggregate(app, **given):
    from angzarr import Aggregate, handles

    @app.aggregate("orders", **given)
    class A(Aggregate[dict]):
        @handles("Place")
        def place(self, command, ctx):
            pass


def by_projection(app, **given):
    from angzarr import handles

    @app.projection("view", domains="orders", **given)
    class V(Projection):
        @handles("Placed")
        def placed(self, event):
            pass


DOORS = [by_handler, by_task, by_saga, by_process_manager, by_aggregate, by_projection]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("option", ["breakers", "batches", "unique", "key", "max_retrys"])
def test_an_option_that_nothing_takes_is_refused_at_once(make_app, door, option):
    app = make_app(books="memory://", ordering={"url": "memory://"})
    refuses(f'unknown option "{option}"', lambda: door(app, **{option: "x"}))


@pytest.mark.parametrize("door", DOORS[1:])
def test_only_a_handler_takes_batches(make_app, door):
    app = make_app(books="memory://", ordering={"url": "memory://"})
    refuses('unknown option "batch"', lambda: door(app, batch=Batch(size=2, wait=0.1)))


def test_the_nearest_option_is_named(make_app):
    app = make_app()
    refuses('"orderd_by"; did you mean "ordered_by"?', lambda: by_handler(app, orderd_by="root"))
    refuses('"breakers"; did you mean "breaker"?', lambda: by_task(app, breakers="x"))
    refuses('"max_retrys"; did you mean "max_retries"?', lambda: by_task(app, max_retrys=3))


def test_a_shared_task_is_asked_when_the_app_is_complete(make_app, monkeypatch):
    monkeypatch.setattr(state, "_on_app_finalizers", set(state._on_app_finalizers))
    monkeypatch.setattr(state, "_apps", weakref.WeakSet())  # those of other tests may live still
    shared_task(name="shared", breakers="x")(task)
    refuses('did you mean "breaker"?', lambda: make_app().finalize())


def test_an_attribute_of_ones_own_is_taken_where_a_class_has_it(make_app):
    class Batch(Task):
        flush_every = 10

    app = make_app()
    assert app.task(name="t", base=Batch, flush_every=5, lazy=False)(task).flush_every == 5
    refuses('unknown option "owner": remove it, or give it', lambda: app.task(owner="a")(task))
    app.Task.owner = None
    assert app.task(name="o", owner="a", lazy=False)(task).owner == "a"


@pytest.mark.parametrize("door", [by_handler, by_task])
def test_each_option_of_celery_is_taken(make_app, door):
    values = {"rate_limit": "5/m", "time_limit": 5, "max_retries": 3, "queue": "q", "priority": 3}
    door(make_app(), **values, autoretry_for=(OSError,), track_started=True, throws=(KeyError,))


# -- what is published ---------------------------------------------------------------------------


@pytest.fixture
def app(make_app):
    app = make_app()
    app.handler("Placed", name="h")(lambda _event: None)
    return app


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(), st.floats(), st.text(max_size=5),
    st.binary(max_size=3), st.lists(st.integers(), max_size=2), st.just({}), st.just({1: 2}),
    st.just(object()),
)  # fmt: skip
FIELDS = sorted(set(inspect.signature(Publication).parameters) - {"event", "type"})
SENT = [
    "countdown", "eta", "expires", "queue", "exchange", "routing_key", "serializer", "compression",
    "time_limit", "soft_time_limit", "headers", "task_id", "prioritty",
]  # fmt: skip


@pytest.mark.parametrize("name", [*FIELDS, *SENT])
@settings(max_examples=25)
@example(value=-(2**31) - 1)
@example(value=2**40)
@given(value=ANYTHING)
def test_no_value_of_a_publish_is_an_error_without_a_sentence(name, value):
    app = _app()
    with suppress(AngzarrError):
        app.publish({"a": 1}, type="Placed", **{name: value})


def _app(made=[]):  # noqa: B006 - one for all examples
    if not made:
        made.append(Angzarr("options", broker="memory://", store="memory://"))
        made[0].handler("Placed", name="h")(lambda _event: None)
    return made[0]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"priority": "high"}, "priority must be one of "),
        ({"tenant_id": 5}, "tenant_id must be a string; got 5"),
        ({"occurred_at": "x"}, "occurred_at must be a datetime; got 'x'"),
        ({"config_pins": {1: 2}}, "config_pins must be a mapping of strings to strings"),
        ({"domain": 5}, "domain 5 cannot be used"),
        ({"countdown": math.nan}, "countdown must be a number of seconds; got nan"),
        ({"expires": "soon"}, "expires must be a datetime or a number of seconds; got 'soon'"),
        ({"queue": 5}, "queue must be a name; got 5"),
        ({"serializer": "pickle"}, "serializer must be 'json', as events are JSON; got 'pickle'"),
        ({"compression": "rar"}, "compression must be a compression of kombu; got 'rar'"),
        ({"headers": {}}, "publish does not take headers"),
        ({"task_id": "x"}, "pass id=…"),
        ({"tenantid": "x"}, 'unknown option "tenantid"; did you mean "tenant_id"?'),
    ],
)
def test_a_wrong_value_is_one_sentence_with_a_cure(app, said, why):
    for send in (app.publish, lambda event, **given: app.publish_many([event], **given)):
        with pytest.raises(AngzarrError) as caught:
            send({"a": 1}, type="Placed", **said)
        assert why in str(caught.value)


@pytest.mark.parametrize(
    "said",
    [
        {"countdown": 0.5}, {"eta": datetime(2030, 1, 1, tzinfo=UTC)}, {"expires": 5},
        {"expires": "2030-01-01T00:00:00+00:00"}, {"queue": "of-options"}, {"compression": "gzip"},
        {"stamped_headers": ["who"], "who": "me"}, {"retry": False}, {"link": None},
    ],
)  # fmt: skip
def test_what_celery_takes_is_sent(app, said):
    assert app.publish({"a": 1}, type="Placed", **said).type == "Placed"


def test_a_name_like_no_other_gets_the_cure():
    assert unknown("option", "zzz", ["breaker"], "remove it") == 'unknown option "zzz": remove it'
