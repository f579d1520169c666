"""RoadConnection: the broker connection of an app, on our own transport where there is one."""

from __future__ import annotations

import ssl as tls
from typing import Any, Final

from kombu import Connection
from kombu.transport import get_transport_cls

#: Scheme of a broker URL → the transport it gets here. Named, not imported: its client is an extra.
TRANSPORTS: Final = {
    "redis": "angzarr.adapters.redis.transport:Transport",
    "rediss": "angzarr.adapters.redis.transport:TlsTransport",
    "sentinel": "angzarr.adapters.redis.transport:SentinelTransport",
    "sqs": "angzarr.adapters.sqs.transport:Transport",
}


class RoadConnection(Connection):
    """kombu's connection; URL, pools and what is shown of it stay as they are."""

    def get_transport_cls(self) -> Any:
        """Return our transport for a scheme that has one, also after a switch to another URL."""
        named = self.transport_cls
        if isinstance(named, str) and named in TRANSPORTS:
            return get_transport_cls(TRANSPORTS[named])
        return super().get_transport_cls()

    def info(self) -> Any:
        """Return what ``celery inspect stats`` tells; our own callables are no part of it."""
        told = super().info()
        options = told.get("transport_options") or {}
        shown = {name: value for name, value in options.items() if not callable(value)}
        return {**told, "transport_options": shown}

    def __eqhash__(self) -> Any:
        """Share no pool with connections to the same place on another transport."""
        return hash((super().__eqhash__(), RoadConnection))

    def _init_params(self, *args: Any, **given: Any) -> None:
        """Check the server's certificate where nothing is said; kombu would not."""
        if given.get("transport") == "rediss" and not given.get("ssl"):
            given["ssl"] = {"ssl_cert_reqs": tls.CERT_REQUIRED}
        super()._init_params(*args, **given)
