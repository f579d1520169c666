"""A kombu transport for Redis that loses nothing: wire-compatible with kombu's own.

Plain Celery uses it by ``broker_transport = "angzarr.adapters.redis.transport:RedisTransport"`` or,
once this module is imported, by URLs like ``angzarr-redis://localhost``. `Angzarr` apps use it for
``redis://``, ``rediss://`` and ``sentinel://``.
"""

from __future__ import annotations

import ssl
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as stock

from angzarr.adapters.redis.channel import Channel
from angzarr.adapters.redis.poller import STRAYS_EVERY, Poller

#: Seconds between two looks for overdue replies.
HEALTH_LOOK = 1.0
#: kombu's name of what it calls in a loop now and then → how often, in seconds.
_KEPT_FROM_STOCK = {
    "maybe_restore_messages": ("unacked_restore_interval", Channel.unacked_restore_interval),
    "maybe_check_subclient_health": (
        "health_check_interval",
        stock.DEFAULT_HEALTH_CHECK_INTERVAL,
    ),
    "give_back_strays": ("", STRAYS_EVERY),
    "ping_listeners": ("health_check_interval", stock.DEFAULT_HEALTH_CHECK_INTERVAL),
    "maybe_reauth": ("reauth_check_interval", stock.DEFAULT_REAUTH_CHECK_INTERVAL),
    "maybe_refresh_binding_expiry": ("", 1),
    "check_health": ("", HEALTH_LOOK),
}


class SentinelChannel(Channel, stock.SentinelChannel):
    """The same behind Sentinel: every new connection asks where the master is."""

    from_transport_options = (
        *stock.SentinelChannel.from_transport_options,
        *Channel.from_transport_options,
    )


class RedisTransport(stock.Transport):
    """Redis as a broker: fetched in one atomic step, kept under a lease, acknowledged in batches.

    Options besides kombu's: see `Channel`.
    """

    Channel = Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = Poller()
        self._timers: list[Any] = []

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let *loop* turn the channels from now on."""
        poller: Poller = self.cycle
        self._leave_loop()
        poller.enter(loop)
        options = connection.client.transport_options
        for name, (option, usual) in _KEPT_FROM_STOCK.items():
            given = options.get(option) or 0
            seconds = given if given > 0 else usual
            self._timers.append(loop.call_repeatedly(seconds, getattr(poller, name)))

    def close_connection(self, connection: Any) -> None:
        """Leave the loop and close the channels."""
        self._leave_loop()
        super().close_connection(connection)

    def _leave_loop(self) -> None:
        while self._timers:
            self._timers.pop().cancel()
        self.cycle.leave()


class RedisTlsTransport(RedisTransport):
    """The same over TLS; the server's certificate is checked unless ``broker_use_ssl`` says not."""

    def __init__(self, client: Any, *args: Any, **kwargs: Any) -> None:
        if not client.ssl or client.ssl is True:
            client.ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
        super().__init__(client, *args, **kwargs)


class SentinelTransport(RedisTransport):
    """The same behind Sentinel; ``master_name`` is a transport option, as with kombu's own."""

    default_port = 26379
    Channel = SentinelChannel


TRANSPORT_ALIASES.update(
    {
        "angzarr-redis": f"{__name__}:RedisTransport",
        "angzarr-rediss": f"{__name__}:RedisTlsTransport",
        "angzarr-sentinel": f"{__name__}:SentinelTransport",
    }
)
