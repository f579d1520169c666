from __future__ import annotations

import os
import threading

import pytest
from kombu import pools
from tests.unit.testing import shop
from tests.unit.testing.shop import Placed

from angzarr.clock import SystemClock
from angzarr.errors import ConfigurationError
from angzarr.runtime.processes import OncePerProcess
from angzarr.testing import FakeClock
from angzarr.testing.staging import overlaid, staged
from angzarr.testing.worker import open_in_process


def on_stage(tmp_path, **options):
    return staged(shop.app, tmp_path, FakeClock(), chance=lambda: 0.0, **options)


def test_the_app_is_afterwards_what_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://nowhere.invalid:1/3")
    app = shop.app
    app.finalize()
    before, changes, broker = dict(vars(app)), dict(app.conf.changes), app.ops.broker_url
    before.pop("_after_fork_registered", None)  # Celery notes by the way that it listens for forks
    clock = FakeClock(shop.START)
    with staged(app, tmp_path, clock, chance=lambda: 0.0), open_in_process(app, clock) as worker:
        assert app.ops.broker_url.startswith("memory://")
        worker.publish(Placed(order_id="o-1"))
    assert {name: vars(app)[name] for name in before} == before
    assert abs((app.now() - clock.now()).days) > 1
    assert (dict(app.conf.changes), app.ops.broker_url) == (changes, broker)
    assert os.environ["CELERY_BROKER_URL"] == "redis://nowhere.invalid:1/3"
    assert abs((SystemClock().now() - clock.now()).days) > 1


def test_nothing_is_left_behind(tmp_path):
    threads, kept = set(threading.enumerate()), set(pools.connections)
    clock = FakeClock()
    with (
        staged(shop.app, tmp_path, clock, chance=lambda: 0.0),
        open_in_process(shop.app, clock) as worker,
    ):
        worker.publish(Placed(order_id="o-1"))
    assert set(threading.enumerate()) - threads == set()
    assert set(pools.connections) - kept == set()


def test_one_app_is_not_staged_twice(tmp_path):
    with (
        on_stage(tmp_path),
        pytest.raises(ConfigurationError, match="is on the stage of another fixture already"),
        on_stage(tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dlqq": {}}, 'unknown setting "dlqq"; did you mean "dlq"'),
        ({"dlq": {"backends": "sqs"}}, "dlq.backends: Extra inputs are not permitted"),
        ({"most_starts": 0}, "most_starts: Input should be greater than or equal to 1"),
    ],
)
def test_a_setting_that_is_none_is_named(given, said, tmp_path):
    with pytest.raises(ConfigurationError) as raised, on_stage(tmp_path, settings=given):
        pass
    assert said in str(raised.value)


def test_settings_are_put_over_others_field_by_field():
    settings = overlaid(shop.app.settings, {"dlq": {"aws_fifo": True}, "prefix": "p"})
    assert (settings.dlq.aws_fifo, settings.prefix) == (True, "p")
    assert settings.dlq.kafka_brokers == shop.app.settings.dlq.kafka_brokers


def test_whoever_holds_what_opens_connections_has_those_of_the_stage(tmp_path):
    """Handlers are bound to it when they are registered: another object would not be theirs."""
    app = shop.app
    app.finalize()
    held = {name: one for name, one in vars(app._parts).items() if isinstance(one, OncePerProcess)}
    before = {name: one.made() for name, one in held.items()}
    assert len(held) > 5
    seen = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        with staged(app, folder, FakeClock(), chance=lambda: 0.0):
            assert {name: vars(app._parts)[name] for name in held} == held
            assert [name for name, one in held.items() if one.made() is not None] == []
            seen.append([app._parts.claims, app.facts, app._parts.flow, app._runtime.executor()])
    assert [one for one, other in zip(*seen, strict=True) if one is other] == []
    assert {name: one.made() for name, one in held.items()} == before
