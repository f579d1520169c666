"""CommandServer: where commands are carried out, and the bounds of a call to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import grpc

from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Policy
from angzarr.resilience.policies import POLICIES

#: The methods of our own service.
EXECUTE: Final = "/angzarr.Commands/Execute"
GET_EVENT_BOOK: Final = "/angzarr.Commands/GetEventBook"

_URL: Final = re.compile(
    r"grpc(?P<tls>s?)://(?P<target>([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5}))"
)
_MAX_PORT: Final = 2**16 - 1
_PATH: Final = re.compile(r"/[\w.]+/\w+")

#: Bytes of a message: books grow, and gRPC's own bound is 4 MiB.
MAX_MESSAGE: Final = 16 * 2**20
#: Bytes of an answer's metadata. Beyond gRPC's own bound of 16 KiB a conflict that brings its book
#: would arrive as RESOURCE_EXHAUSTED.
MAX_METADATA: Final = 2**20

_FIXED: Final = (
    ("grpc.enable_retries", 0),  # this client tries again itself
    # Asks a mute server, amid a call only, whether it is there; no more often than servers bear.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # gRPC would let up to two minutes go by before it connects again, whatever the policy says.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # what one attempt to connect may take
    ("grpc.max_reconnect_backoff_ms", 5_000),
)


@dataclass(frozen=True, slots=True)
class CommandServer:
    """A server at ``grpc://host:port``, or ``grpcs://host:port`` over TLS.

    *credentials* are for TLS; None: the system's authorities. *execute* and *get_event_book* are
    the paths of its methods. *deadline* bounds a call with all its tries; a server that is away is
    tried again by *policy*. Raises ConfigurationError for what cannot work.
    """

    url: str
    credentials: grpc.ChannelCredentials | None = None
    execute: str = EXECUTE
    get_event_book: str = GET_EVENT_BOOK
    deadline: timedelta = timedelta(seconds=30)
    policy: Policy = POLICIES["grpc_connection"]
    max_message: int = MAX_MESSAGE
    max_metadata: int = MAX_METADATA

    def __post_init__(self) -> None:
        encrypted, _ = _read(self.url)
        if not encrypted and self.credentials is not None:
            msg = "credentials are for TLS: write grpcs:// and not grpc://"
            raise ConfigurationError(msg)
        for path in (self.execute, self.get_event_book):
            if not _PATH.fullmatch(path):
                msg = f"{path[:100]!r} is not a method of gRPC: write /package.Service/Method"
                raise ConfigurationError(msg)
        for name, bound in (("max_message", self.max_message), ("max_metadata", self.max_metadata)):
            if not 0 < bound < 2**31:
                msg = f"{name} is a number of bytes from 1 to 2 GiB, not {bound}"
                raise ConfigurationError(msg)
        if self.deadline <= timedelta(0):
            msg = f"a deadline is more than 0 s, not {self.deadline}"
            raise ConfigurationError(msg)

    @property
    def target(self) -> str:
        """Host and port, as gRPC names them."""
        return _read(self.url)[1]

    def tls(self) -> grpc.ChannelCredentials | None:
        """Return what its certificate is checked by; None: nothing is encrypted."""
        encrypted, _ = _read(self.url)
        return (self.credentials or grpc.ssl_channel_credentials()) if encrypted else None

    def options(self) -> tuple[tuple[str, int], ...]:
        """Return the options of a channel to it."""
        return (
            *_FIXED,
            ("grpc.max_send_message_length", self.max_message),
            ("grpc.max_receive_message_length", self.max_message),
            ("grpc.max_metadata_size", self.max_metadata),
            ("grpc.absolute_max_metadata_size", self.max_metadata),
        )


def _read(url: str) -> tuple[bool, str]:
    """Return whether *url* is encrypted, and its target; a wrong one may hold a password.

    Raises ConfigurationError.
    """
    read = _URL.fullmatch(url)
    if read is None or not 0 < int(read["port"]) <= _MAX_PORT:
        msg = "the url of a command server is grpc://host:port, or grpcs://host:port over TLS"
        raise ConfigurationError(msg)
    return bool(read["tls"]), read["target"]
