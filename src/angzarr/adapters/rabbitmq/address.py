"""Where the brokers of a cluster are, read from URLs, and what secures the way to them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from angzarr.errors import ConfigurationError

_PORTS: Final = {"amqp": 5672, "pyamqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where one broker is; `str` shows host and port only, the rest may be secret."""

    host: str
    port: int
    virtual_host: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    tls: Mapping[str, Any] | None = field(repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Cluster(tuple[Address, ...]):
    """The brokers of one cluster, tried in turn."""

    __slots__ = ()

    def __str__(self) -> str:
        return " or ".join(map(str, self))


def read_cluster(urls: str, tls: Mapping[str, Any] | None = None) -> Cluster:
    """Read amqp:// or amqps:// URLs, split by ';'; raises ConfigurationError, repeating none.

    Over amqps the broker's certificate and name are checked; *tls* holds py-amqp's ssl options.
    """
    _check_files(tls or {})
    return Cluster(_read_address(url.strip(), tls) for url in urls.split(";"))


def _read_address(url: str, tls: Mapping[str, Any] | None) -> Address:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError) as error:
        msg = "the address of RabbitMQ must read amqp://user:password@host:port/virtual-host"
        raise ConfigurationError(msg) from error
    host = parts.hostname or "localhost"
    return Address(
        host=host,
        port=port,
        virtual_host=unquote(parts.path.removeprefix("/")) or "/",
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        tls={"server_hostname": host, **(tls or {})} if tls or parts.scheme == "amqps" else None,
    )


def _check_files(tls: Mapping[str, Any]) -> None:
    """Refuse at start what would otherwise look like a broker that is away for ever."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    certificate, key = tls.get("certfile"), tls.get("keyfile")
    if key and not certificate:
        msg = "RabbitMQ's TLS options name a keyfile without its certfile"
        raise ConfigurationError(msg)
    try:
        what = "ca_certs"
        if tls.get(what):
            context.load_verify_locations(tls[what])
        what = "certfile or keyfile"
        if certificate:
            context.load_cert_chain(certificate, key, password=_ask_nobody)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        msg = f"RabbitMQ's TLS option {what} cannot be used: {reason}"
        raise ConfigurationError(msg) from error


def _ask_nobody() -> str:
    """Answer openssl, which would ask a terminal for the passphrase of an encrypted key."""
    msg = "the key is encrypted, give one without a passphrase"
    raise ValueError(msg)
