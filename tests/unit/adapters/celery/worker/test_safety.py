"""Safety: the defaults lose nothing, and every setting that would is named with its cure."""

from __future__ import annotations

import pytest
from celery import Celery

from angzarr.adapters.celery.celery_defaults import DEFAULTS
from angzarr.adapters.celery.worker import safety
from angzarr.errors import UnsafeSetting


def nothing():
    pass


def limited(app, **options):
    return app.task(name="limited", lazy=False, **options)(nothing)


def check_pool(app, pool, asynchronous=lambda _task: False, limits=(), undos=()):
    app.finalize(auto=True)
    safety.check_pool(app, pool, asynchronous, limits, undos)


def test_the_defaults_are_safe_on_every_transport(app):
    for transport in ("memory", "redis", "SQS"):
        safety.check(app, transport)
    assert {name: app.conf[name] for name in DEFAULTS} == dict(DEFAULTS)


def test_a_worker_never_gives_its_broker_up(app):
    assert app.conf.broker_connection_retry
    assert app.conf.broker_connection_max_retries is None


def test_all_problems_are_told_at_once(app):
    app.conf.task_acks_late = False
    app.conf.task_serializer = "pickle"
    with pytest.raises(UnsafeSetting) as caught:
        safety.check(app, "redis")
    assert "task_acks_late is False: set it to True" in str(caught.value)
    assert "task_serializer is 'pickle'" in str(caught.value)


@pytest.mark.parametrize("accepted", [["json"], ["application/json"], ("json",), []])
def test_json_may_be_accepted_by_any_of_its_names(app, accepted):
    app.conf.accept_content = accepted
    safety.check(app, "redis")


@pytest.mark.parametrize("transport", ["kafka", "confluentkafka"])
def test_a_broker_that_commits_whole_partitions_is_refused(app, transport):
    with pytest.raises(UnsafeSetting, match="whole partitions"):
        safety.check(app, transport)


@pytest.mark.parametrize("options", [{}, None, {"lease": 4}])
def test_rabbitmq_confirms_unless_it_is_told_not_to(app, options):
    app.conf.broker_transport_options = options
    safety.check(app, "amqp")
    app.conf.broker_transport_options = {**(options or {}), "confirm_publish": False}
    with pytest.raises(UnsafeSetting, match="confirm_publish"):
        safety.check(app, "amqp")


@pytest.mark.parametrize("options", [{}, None, {"confirm_publish": False}])
def test_an_app_that_is_not_ours_must_say_that_rabbitmq_confirms(options):
    app = Celery("stock", broker="memory://", set_as_current=False)
    app.conf.broker_transport_options = options
    found = {one.setting for one in safety.unsafe(app, "amqp")}
    app.close()
    assert "broker_transport_options" in found


@pytest.mark.parametrize("option", ["acks_late", "reject_on_worker_lost"])
def test_a_tasks_own_unsafe_option_is_found(app, option):
    limited(app, **{option: False})
    with pytest.raises(UnsafeSetting, match=f"task limited has {option}=False"):
        safety.check(app, "redis")


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent", "eventlet"])
@pytest.mark.parametrize("option", ["time_limit", "soft_time_limit"])
def test_a_time_limit_is_refused_where_a_pool_ignores_it(app, pool, option):
    limited(app, **{option: 5})
    with pytest.raises(UnsafeSetting, match=f"the {pool} pool ignores"):
        check_pool(app, pool)


@pytest.mark.parametrize("option", ["task_time_limit", "task_soft_time_limit"])
def test_a_time_limit_for_all_tasks_is_refused_too(app, option):
    limited(app)
    app.conf[option] = 5
    with pytest.raises(UnsafeSetting, match="ignores"):
        check_pool(app, "threads")


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent", "eventlet"])
@pytest.mark.parametrize("limits", [(5, None), (None, 5.0)])
def test_a_time_limit_of_the_command_line_is_refused_too(app, pool, limits):
    with pytest.raises(UnsafeSetting, match=f"--time-limit.* the {pool} pool ignores"):
        check_pool(app, pool, limits=limits)


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_an_async_undo_is_refused_where_a_pool_runs_no_coroutine(app, pool):
    with pytest.raises(UnsafeSetting, match=r"undo shop\.recall is async"):
        check_pool(app, pool, undos=["shop.recall"])
    check_pool(app, "threads", undos=["shop.recall"])


@pytest.mark.parametrize("limits", [(None, None), (0, 0)])
def test_no_time_limit_is_none(app, limits):
    limited(app, time_limit=limits[0])
    check_pool(app, "threads", limits=limits)


def test_prefork_keeps_time_limits(make_app):
    app = make_app(broker="redis://127.0.0.1:1", store="redis://127.0.0.1:1")
    limited(app, time_limit=5, soft_time_limit=4)
    check_pool(app, "prefork", limits=(5, 4))


@pytest.mark.parametrize("kind", ["classic", None, "stream"])
def test_delays_that_rabbitmq_may_lose_between_two_levels_are_refused(app, kind):
    app.conf.broker_transport_options = {"confirm_publish": True}
    safety.check(app, "amqp")
    app.conf.broker_native_delayed_delivery_queue_type = kind
    with pytest.raises(UnsafeSetting, match=r"delivery_queue_type is .* set it to 'quorum'"):
        safety.check(app, "amqp")
    safety.check(app, "redis")


@pytest.mark.parametrize(
    ("pool", "refused"), [("gevent", True), ("threads", False), ("solo", False)]
)
def test_a_coroutine_is_refused_only_where_it_cannot_run(app, pool, refused):
    limited(app)
    if refused:
        with pytest.raises(UnsafeSetting, match="is async"):
            check_pool(app, pool, lambda _task: True)
    else:
        check_pool(app, pool, lambda _task: True)


def test_a_broker_in_memory_has_one_process(app):
    with pytest.raises(UnsafeSetting, match="threads or solo"):
        check_pool(app, "prefork")


def test_celerys_own_tasks_are_not_judged(app):
    app.finalize(auto=True)
    assert any(name.startswith("celery.") for name in app.tasks)
    check_pool(app, "threads", lambda task: task.name.startswith("celery."))


@pytest.mark.parametrize("asked", ["should_stop", "should_terminate"])
def test_a_worker_whose_only_thread_holds_hears_that_it_shall_stop(app, monkeypatch, asked):
    from celery.worker import state

    assert not app._runtime.stopping()
    monkeypatch.setattr(state, asked, 0)  # the exit code, which is false
    assert app._runtime.stopping()
