"""Which handlers a queue serves, and when it is not consumed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kombu import Exchange, Queue

from angzarr.adapters.celery.worker.consumer import AngzarrConsumer
from angzarr.adapters.celery.worker.queue_pauser import handlers_of_queues


@pytest.fixture
def held():
    """Why handlers are held back, by name."""
    return {}


@pytest.fixture
def app(make_app, monkeypatch, held):
    app = make_app(facts={"log": False})
    app.conf.task_default_queue = "default"
    for name, queue in (("a", "orders"), ("b", "orders"), ("c", "others"), ("d", None)):
        app.handler(f"Of{name}", name=name, queue=queue)(_nothing)
    app.finalize(auto=True)
    monkeypatch.setattr(app._runtime, "holding", lambda: lambda handler: held.get(handler.name))
    return app


def _nothing(event: dict) -> None:
    """Do nothing."""


@pytest.fixture
def worker(app):
    """A worker's consumer that consumes from two queues."""
    app.amqp.queues.select(["orders", "default"])
    with app.connection_for_read() as connection:
        made = AngzarrConsumer(
            lambda _request: None, app=app, timer=None, hostname="h", hub=SimpleNamespace(),
            pool=SimpleNamespace(is_green=False),
            controller=SimpleNamespace(app=app, semaphore=None, use_eventloop=True),
        )  # fmt: skip
        made.connection = connection
        connect(made)
        yield made


def connect(worker):
    """Consume as Celery does with each new connection."""
    worker.task_consumer = worker.app.amqp.TaskConsumer(worker.connection)
    worker.task_consumer.consume()


def consumed(worker):
    tags = worker.task_consumer._active_tags
    return {queue for queue in ("orders", "others", "default", "more") if queue in tags}


def turn(worker):
    worker._queue_pauser.turn()


def test_a_queue_is_closed_while_all_it_serves_is_held_and_opened_afterwards(worker, held, caplog):
    held |= {"a": "breaker crm is open", "b": "domain order is held back", "c": "so"}
    turn(worker)
    assert consumed(worker) == {"default"}
    assert "breaker crm is open, domain order is held back" in caplog.text
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default", "orders"}, "and not one that it never consumed"


def test_a_queue_that_serves_another_too_is_consumed(worker, held):
    held["a"] = "breaker crm is open"
    turn(worker)
    assert consumed(worker) == {"default", "orders"}


def test_what_is_closed_stays_so_with_the_next_connection(worker, held):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    connect(worker)
    assert consumed(worker) == {"default"}
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default", "orders"}


def test_a_queue_that_an_operator_stopped_stays_stopped(worker, held):
    worker.cancel_task_queue("orders")
    held |= {"a": "so", "b": "so"}
    turn(worker)
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default"}


def test_a_queue_that_an_operator_stops_while_it_is_closed_stays_stopped(worker, held):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    worker.cancel_task_queue("orders")
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default"}


def test_a_queue_that_an_operator_resumes_is_closed_again_and_opened_when_it_is_time(worker, held):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    worker.add_task_queue("orders")
    assert consumed(worker) == {"default", "orders"}
    turn(worker)
    assert consumed(worker) == {"default"}
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default", "orders"}


def _lost(*_, **__):
    raise ConnectionResetError


def lose_broker(worker, monkeypatch, verb):
    """Turn the valve while the broker is lost, then connect anew."""
    with monkeypatch.context() as patch:
        patch.setattr(worker.task_consumer.channel, verb, _lost)
        with pytest.raises(ConnectionResetError):
            turn(worker)
    connect(worker)


def test_a_queue_is_opened_though_the_broker_was_lost_while_it_was_closed(
    worker, held, monkeypatch
):
    held |= {"a": "so", "b": "so"}
    lose_broker(worker, monkeypatch, "basic_cancel")
    assert consumed(worker) == {"default"}
    held.clear()
    turn(worker)
    assert consumed(worker) == {"default", "orders"}


def test_a_queue_is_closed_again_though_the_broker_was_lost_while_it_was_opened(
    worker, held, monkeypatch
):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    held.clear()
    lose_broker(worker, monkeypatch, "basic_consume")
    assert consumed(worker) == {"default", "orders"}
    held |= {"a": "so", "b": "so"}
    turn(worker)
    assert consumed(worker) == {"default"}


def test_a_worker_that_stops_consumes_nothing_anew(worker, held):
    held |= {"a": "so", "b": "so"}
    turn(worker)
    held.clear()
    worker.app._runtime.stopping.begin()
    turn(worker)
    assert consumed(worker) == {"default"}


#: It would rather be told by `task_routes`, but it obeys.
pytestmark = pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")

TOPIC = Exchange("all", "topic")


@pytest.fixture
def make(make_app):
    """Make an app with Celery's settings, whose default queue is `default`."""

    def make(*queues, routes=None, **conf):
        app = make_app(facts={"log": False}, routes=routes)
        app.conf.update(task_default_queue="default", **conf)
        app.amqp.queues.select(["default", "crm", *queues])
        return app

    return make


def _take(event: dict) -> None:
    """Do nothing."""


def _run() -> None:
    """Do nothing."""


def event(app, name, **options):
    app.handler(f"Of {name}", name=name, **options)(_take)


def task(app, name, **options):
    app.task(name=name, **options)(_run)


def served(app):
    app.finalize(auto=True)
    return {
        queue: {handler.name for handler in found}
        for queue, found in handlers_of_queues(app).items()
    }


def test_a_queue_serves_what_names_it_and_the_default_queue_the_rest(make):
    app = make()
    event(app, "a", queue="crm")
    event(app, "b")
    task(app, "c", queue="crm")
    task(app, "d", queue=Queue("crm"))
    task(app, "e")
    assert served(app) == {"crm": {"a", "c", "d"}, "default": {"b", "e"}}


def test_a_class_based_task_and_a_base_say_their_queue_as_well(make):
    app = make()

    class Base(app.Task):
        abstract = True
        queue = "crm"

    class Based(Base):
        name = "a"

        def run(self):
            """Do nothing."""

    app.register_task(Based())
    task(app, "b", base=Base)
    assert served(app) == {"crm": {"a", "b"}}


@pytest.mark.parametrize(
    "routes",
    [
        {"a": {"queue": "crm"}},
        {"a": "crm"},
        {"*": {"queue": "crm"}},
        [{"b": {"queue": "default"}}, [("a*", {"queue": "crm"})]],
        {"a": {"queue": "crm", "priority": 3}},
    ],
)
def test_a_route_of_celery_is_followed(make, routes):
    app = make(task_routes=routes)
    task(app, "a")
    assert served(app) == {"crm": {"a"}}


def test_its_own_queue_goes_before_a_route(make):
    app = make("own", task_routes={"*": {"queue": "crm"}})
    event(app, "a", queue="own")
    task(app, "b", queue="own")
    assert served(app) == {"own": {"a", "b"}}


def route_by_arguments(name, args, kwargs, options, task=None, **_):
    """Send by what is in the message."""
    return {"queue": "crm"} if args else None


@pytest.mark.parametrize(
    ("routes", "options"),
    [
        (route_by_arguments, {}),
        (f"{__name__}.route_by_arguments", {}),
        ([{"b": "crm"}, route_by_arguments], {}),
        ({"a": {"exchange": "all", "routing_key": "x"}}, {}),
        ({"a": {"queue": "crm", "routing_key": "x"}}, {"queue": "default"}),
        (None, {"exchange": "all", "routing_key": "x"}),
        (None, {"queue": "crm", "routing_key": "x"}),
    ],
)
def test_one_whose_queue_is_not_certain_counts_for_every_queue(make, routes, options):
    app = make(task_routes=routes)
    task(app, "a", **options)
    event(app, "b", queue="crm")
    found = served(app)
    assert "a" in found["crm"]
    assert "a" in found["default"]


def test_what_names_its_queue_goes_there_whatever_a_function_says(make):
    app = make(task_routes=route_by_arguments)
    event(app, "a", queue="crm")
    assert served(app) == {"crm": {"a"}}


def test_publishers_that_do_not_import_it_may_send_it_elsewhere(make):
    app = make("other", routes={"Of a": [{"handler": "a", "queue": "other"}, {"handler": "b"}]})
    event(app, "a", queue="crm")
    event(app, "b", queue="crm")
    assert served(app) == {"crm": {"a", "b"}, "other": {"a"}, "default": {"b"}}


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (("crm", "audit"), {"crm": {"a"}, "audit": {"b"}}),
        (("crm", "#"), {"crm": {"a"}, "audit": {"a", "b"}}),
        (("crm", "crm"), {"crm": {"a", "b"}, "audit": {"a", "b"}}),
    ],
)
def test_queues_that_share_an_exchange_serve_what_reaches_both(make, keys, found):
    queues = [
        Queue(name, TOPIC, routing_key=key)
        for name, key in zip(("crm", "audit"), keys, strict=True)
    ]
    app = make("audit", task_queues=[Queue("default"), *queues])
    event(app, "a", queue="crm")
    event(app, "b", queue="audit")
    assert served(app) == found


def test_an_alias_is_the_queue_that_it_means(make):
    app = make(task_queues=[Queue("crm", alias="c"), Queue("default")])
    event(app, "a", queue="c")
    assert served(app) == {"crm": {"a"}}
