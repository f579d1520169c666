"""A pytest plugin under which kombu's Redis tests meet our transport instead of kombu's.

Tests that kombu_redis.toml lists must fail, and each line of it must name a test that is there.
With KOMBU_REDIS_TRANSPORT=kombu nothing is replaced: the listed tests pass, and so the run fails.
"""

from __future__ import annotations

import inspect
import os
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fake_server import FakeConnection
from kombu.transport import redis as stock
from kombu.utils import eventio

LIST = Path(__file__).with_name("kombu_redis.toml")

#: kombu's code that our classes inherit and have no use for: a test that gets there says nothing of
#: ours, even if it passes.
_UNUSED = {
    "Channel": ("_brpop_start", "_brpop_read", "_flush_brpop_reauth", "_poll_error", "_restore",
                "_restore_at_beginning"),
    "MultiChannelPoller": ("_register_BRPOP", "_pause_brpop", "_discard_paused_brpop",
                           "_update_brpop_polling", "on_poll_start", "maybe_check_brpop_health",
                           "handle_event", "_discard_paused_connection"),
}  # fmt: skip


def left_out() -> dict[str, str]:
    """Return why each test is left out, by its name within kombu's module."""
    groups = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return {test: group["why"] for group in groups.values() for test in group["tests"]}


def pytest_configure() -> None:
    # The tests replace eventio.poll before they import the transport; here it is imported already.
    stock.poll = lambda: eventio.poll()  # noqa: PLW0108 - looked up when it is called
    if os.environ.get("KOMBU_REDIS_TRANSPORT") != "kombu":
        _substitute()


@pytest.hookimpl(tryfirst=True)  # before any test is deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[0].module.Client.lock = _held  # another one looks for what stock workers left behind
    reasons, seen = left_out(), set()
    for item in items:
        name = item.nodeid.partition("::")[2]
        key = name if name in reasons else name.partition("[")[0]
        if key in reasons:
            seen.add(key)
            item.add_marker(pytest.mark.xfail(reason=reasons[key], strict=True))
    if gone := reasons.keys() - seen:
        msg = f"{LIST.name} names tests that are not there: {', '.join(sorted(gone))}"
        raise pytest.UsageError(msg)


def _substitute() -> None:
    from angzarr.adapters.redis import channel, poller, transport, unacked

    ours = {
        "Channel": channel.Channel,
        "QoS": unacked.Unacked,
        "MultiChannelPoller": poller.Poller,
        "Transport": transport.RedisTransport,
        "SentinelChannel": transport.SentinelChannel,
        "SentinelTransport": transport.SentinelTransport,
    }
    for name, replacement in ours.items():
        setattr(stock, name, replacement)
    for name, methods in _UNUSED.items():
        for method in methods:
            setattr(ours[name], method, _unused)
    channel.check_server = lambda _channel: None  # the fake client has no version
    channel.Channel._make_connection = property(_connection_maker(channel.Channel))


def _held(*_args: object, **_kwargs: object) -> Mock:
    return Mock(acquire=lambda **_: False)


def _unused(*_args: object, **_kwargs: object) -> None:
    pytest.fail("our transport has no use for this", pytrace=False)


def _connection_maker(ours: Any) -> Any:
    real = inspect.getattr_static(ours, "_make_connection").func

    def make(self: Any) -> Any:
        fake = isinstance(self.pool, Mock)
        return (lambda: FakeConnection(self)) if fake else real(self)

    return make
