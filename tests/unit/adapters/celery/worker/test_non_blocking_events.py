"""An event that cannot be sent is put aside within moments, and few are kept."""

from __future__ import annotations

from types import SimpleNamespace

from angzarr.adapters.celery.worker.broadcasts import MOST_WAITING, ONCE


class Away:
    """A producer whose broker is away, which notes how often it would be tried."""

    def __init__(self) -> None:
        self.asked = []

    def publish(self, _event, *, retry, retry_policy, **_more):
        self.asked.append((retry, retry_policy))
        raise ConnectionResetError


def test_a_heartbeat_is_tried_once_more_and_put_aside(app):
    connection = SimpleNamespace(transport=SimpleNamespace(driver_type="redis"))
    dispatcher = app.events.Dispatcher(connection, enabled=False)
    away = Away()
    for _ in range(MOST_WAITING + 5):
        dispatcher.publish("worker-heartbeat", {}, away, retry=True)
    assert away.asked[0] == (True, dict(ONCE))
    assert len(dispatcher._outbound_buffer) == MOST_WAITING
