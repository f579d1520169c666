"""A user's own task class: the body runs within its `__call__`, and takes the road."""

from __future__ import annotations

import sys
import types
import uuid
from contextlib import contextmanager

import celery
import pytest
from celery import Celery, Task, _state, shared_task
from celery.states import FAILURE, SUCCESS
from celery.states import RETRY as RETRIED
from tests.unit.adapters.celery import child

from angzarr import Angzarr
from angzarr.adapters.celery.worker import safety
from angzarr.adapters.celery.worker.request import AngzarrRequest
from angzarr.adapters.celery.worker.task import AngzarrTask
from angzarr.adapters.memory import dead_letters
from angzarr.errors import ConfigurationError, UnsafeSetting

bodies: list[object] = []
around: list[str] = []


@contextmanager
def within(name):
    around.append(name)
    try:
        yield
    finally:
        around.pop()


class FlaskTask(Task):
    """As Flask's guide has it, for `task_cls=`."""

    def __call__(self, *args, **kwargs):
        with within("context"):
            return self.run(*args, **kwargs)


class SuperTask(Task):
    def __call__(self, *args, **kwargs):
        with within("context"):
            return super().__call__(*args, **kwargs)


class Mixin:
    def __call__(self, *args, **kwargs):
        with within("context"):
            return super().__call__(*args, **kwargs)


class Mixed(Mixin, Task):
    pass


class Derived(FlaskTask):
    """Its `__call__` is not in its own namespace."""


class Plain(Task):
    """No `__call__`."""


CONTEXTS = {FlaskTask: 1, SuperTask: 1, Mixed: 1, Derived: 1, Plain: 0}


def remember(*args):
    bodies.append((args, list(around)))
    if args and isinstance(args[0], str):
        raise {"no": ValueError, "later": ConnectionResetError}[args[0]](args[0])
    return "done"


def by_argument(make_app, kind):
    return make_app(task_cls=kind).task(name="t", lazy=False)(remember)


def by_name(make_app, kind):
    module = sys.modules.setdefault("classes_of_a_user", types.ModuleType("classes_of_a_user"))
    setattr(module, kind.__name__, kind)
    app = make_app(task_cls=f"classes_of_a_user:{kind.__name__}")
    return app.task(name="t", lazy=False)(remember)


def by_assignment(make_app, kind):
    app = make_app()
    app.Task = kind
    return app.task(name="t", lazy=False)(remember)


def by_the_attribute(make_app, kind):
    app = make_app()
    app.task_cls = kind
    return app.task(name="t", lazy=False)(remember)


def by_base(make_app, kind):
    return make_app().task(name="t", base=kind, lazy=False)(remember)


def by_shared_task(make_app, kind):
    name = f"shared.{uuid.uuid4().hex}"
    shared_task(name=name, base=kind)(remember)
    return make_app().tasks[name]


def by_a_class_of_a_task(make_app, kind):
    own = type("Own", (kind,), {"name": "t", "run": staticmethod(remember)})
    return make_app().register_task(own)


def by_an_instance_of_a_task(make_app, kind):
    own = type("Own", (kind,), {"name": "t", "run": staticmethod(remember)})
    return make_app().register_task(own())


def by_a_handler(make_app, kind):
    def handle(event, _ctx):
        return remember(event)

    return make_app(task_cls=kind).handler("Placed", name="t", lazy=False)(handle)


def by_a_handlers_base(make_app, kind):
    def handle(event):
        return remember(event)

    return make_app().handler("Placed", name="t", base=kind, lazy=False)(handle)


WAYS = [
    by_argument, by_name, by_assignment, by_the_attribute, by_base, by_shared_task,
    by_a_class_of_a_task, by_an_instance_of_a_task, by_a_handler, by_a_handlers_base,
]  # fmt: skip


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    dead_letters.forget_channel("default")
    yield
    dead_letters.forget_channel("default")
    assert around == []
    bodies.clear()


def waiting_letters(app):
    return app.ops.open_dead_letter_queue().look()


def run(task, *args):
    """Run a message through Celery's own tracer, as a child would; return (state, value)."""
    task.app._runtime.begin_work()
    try:
        told = child.traced(task, *args)
    finally:
        task.app._runtime.end_work()
    return (told.info.state if told.info else SUCCESS), told.retval


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", CONTEXTS)
def test_the_body_takes_the_road_within_the_users_call(make_app, way, kind):
    task = way(make_app, kind)
    safety.check(task.app, "memory")
    contexts = ["context"] * CONTEXTS[kind]
    assert run(task, 1) == (SUCCESS, "done")
    assert bodies == [((1,), contexts)]
    state, _ = run(task, "no")
    assert state == FAILURE
    assert [one.letter.handler for one in waiting_letters(task.app)] == [task.name]
    state, _ = run(task, "later")
    assert state == RETRIED, "what may pass is tried again, as for any task"
    assert bodies[1:] == [(("no",), contexts), (("later",), contexts)]


@pytest.mark.parametrize("way", WAYS[:8])
@pytest.mark.parametrize("kind", CONTEXTS)
def test_called_directly_and_eagerly_it_is_in_its_context_too(make_app, way, kind):
    task = way(make_app, kind)
    contexts = ["context"] * CONTEXTS[kind]
    assert task(1) == "done"
    assert task.apply((2,)).get() == "done"
    assert bodies == [((1,), contexts), ((2,), contexts)]


def test_the_older_pattern_of_flasks_guide_works(make_app):
    app = make_app()
    task_base = app.Task

    class ContextTask(task_base):
        abstract = True

        def __call__(self, *args, **kwargs):
            with within("context"):
                return task_base.__call__(self, *args, **kwargs)

    app.Task = ContextTask
    task = app.task(name="t", lazy=False)(remember)
    assert isinstance(task, ContextTask)
    assert task(0) == "done"
    assert run(task, 1) == (SUCCESS, "done")
    assert bodies == [((0,), ["context"]), ((1,), ["context"])]


def test_each_call_of_a_chain_of_classes_is_made(make_app):
    class Outer(SuperTask):
        def __call__(self, *args, **kwargs):
            with within("outer"):
                return super().__call__(*args, 2, **kwargs)

    task = make_app().task(name="t", base=Outer, lazy=False)(remember)
    assert run(task, 1) == (SUCCESS, "done")
    assert bodies == [((1, 2), ["outer", "context"])]


def test_an_async_call_surrounds_an_async_task(make_app):
    class Async(Task):
        async def __call__(self, *args, **kwargs):
            with within("context"):
                return await super().__call__(*args, **kwargs)

    async def remember_it(*args):
        return remember(*args)

    task = make_app().task(name="t", base=Async, lazy=False)(remember_it)
    safety.check(task.app, "memory")
    assert run(task, 1) == (SUCCESS, "done")
    assert bodies == [((1,), ["context"])]


@pytest.mark.parametrize("kind", [None, FlaskTask])
def test_a_task_that_calls_itself_calls_a_function(make_app, kind):
    app = make_app(task_cls=kind)

    @app.task(name="t", bind=True, lazy=False)
    def factorial(self, n):
        return n * self(n - 1) if n > 1 else 1

    assert run(factorial, 5) == (SUCCESS, 120)


def test_a_handlers_call_sees_the_event_as_it_was_sent(make_app):
    class Told(Task):
        def __call__(self, *args, **kwargs):
            bodies.append((args, kwargs))
            return self.run("something else")

    app = make_app(task_cls=Told)

    def handle(event):
        return event

    task = app.handler("Placed", name="t", lazy=False)(handle)
    assert run(task, {"id": 1}) == (SUCCESS, {"id": 1}), "the body is the delivery's"
    assert bodies == [(({"id": 1},), {})]


class Collects(Task):
    """As celery-batches has it."""

    Strategy = "celery_batches.strategies:default"


class Batches(Task):
    def Strategy(self, task, app, consumer):  # noqa: N802 - that library's name
        pytest.fail("must not run")


class Started(Task):
    def start_strategy(self, app, consumer, **kwargs):
        pytest.fail("must not run")


class OwnRequest(celery.worker.request.Request):
    pass


class Requested(Task):
    Request = OwnRequest


class Traced(Task):
    __trace__ = None


OFF_THE_ROAD = [
    (Collects, "a Strategy of its own"),
    (Batches, r"a Strategy of its own \(Batches.Strategy\)"), (Started, "a Strategy of its own"),
    (Requested, "its own Request class"), (Traced, "was changed"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "why"), OFF_THE_ROAD)
@pytest.mark.parametrize("way", WAYS)
def test_a_class_that_leaves_the_road_is_refused_when_a_worker_starts(make_app, way, kind, why):
    app = way(make_app, kind).app
    with pytest.raises(UnsafeSetting, match=rf"task [\w.]+ .*{why}.*: \w+"):
        app._runtime.check_worker("threads")


def test_a_request_of_ours_is_taken(make_app):
    class Own(AngzarrRequest):
        pass

    task = make_app().task(name="t", lazy=False, Request=Own)(remember)
    safety.check(task.app, "memory")


def test_a_task_that_was_put_into_the_registry_is_refused(make_app):
    app = make_app()
    app.tasks["stray"] = type("Stray", (Task,), {"name": "stray", "run": staticmethod(remember)})()
    with pytest.raises(UnsafeSetting, match="task stray was put into the task registry directly"):
        safety.check(app, "memory")


def test_a_class_that_was_changed_later_is_refused(make_app):
    task = make_app().task(name="t", lazy=False)(remember)
    type(task).__call__ = lambda self: self.run()
    with pytest.raises(UnsafeSetting, match="was changed after it was registered"):
        safety.check(task.app, "memory")


def test_a_sync_call_around_an_async_task_is_refused(make_app):
    async def work():
        pass

    task = make_app(task_cls=FlaskTask).task(name="t", lazy=False)(work)
    with pytest.raises(UnsafeSetting, match="make the __call__ async too, or the task sync"):
        safety.check(task.app, "memory")


def test_all_tasks_that_celery_ships_are_on_the_road(make_app):
    app = make_app(task_cls=FlaskTask)
    safety.check(app, "memory")
    assert [name for name in app.tasks if name.startswith("celery.")]
    assert all(type(task).__call__ is AngzarrTask.__call__ for task in app.tasks.values())


def test_a_stock_app_is_not_asked_for_the_road():
    app = Celery("stock", broker="memory://", set_as_current=False)
    app.task(name="t", lazy=False, shared=False)(remember)
    assert "road" not in {one.setting for one in safety.unsafe(app, "memory")}
    app.close()


def test_what_is_no_task_class_is_refused(make_app):
    with pytest.raises(ConfigurationError, match=r"derive it from app\.Task"):
        make_app().register_task(Mixin)


def test_djangos_fixup_gives_its_own_class(make_app, monkeypatch):
    class DjangoTask(Task):
        def delay_on_commit(self):
            return "on commit"

    def fixup(app):
        if not app._custom_task_cls_used:  # as in celery.fixups.django
            app.task_cls = DjangoTask

    monkeypatch.setattr(Angzarr, "builtin_fixups", frozenset({fixup}))
    task = make_app().task(name="t", lazy=False)(remember)
    safety.check(task.app, "memory")
    assert task.delay_on_commit() == "on commit"
    assert isinstance(task, AngzarrTask)
    own = make_app(task_cls=FlaskTask).task(name="t", lazy=False)(remember)
    assert not hasattr(own, "delay_on_commit"), "as with Celery, the user's own class wins"
