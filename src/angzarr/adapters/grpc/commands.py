"""Commands to aggregates behind a gRPC server (spec C3): the server, a client, and an async one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import grpc
import grpc.aio

from angzarr.adapters.grpc.exchange import (
    CallAttempts,
    book_of,
    book_request,
    command_metadata,
    command_request,
    decision_of,
    refusal,
    told,
)
from angzarr.aggregates.book import Address, Book, Decision
from angzarr.aggregates.command import AsyncCommandClient, Command, CommandClient
from angzarr.clock import Clock, SystemClock
from angzarr.errors import ConfigurationError
from angzarr.resilience.backoff import Policy
from angzarr.resilience.policies import POLICIES
from angzarr.runtime.chance import chance
from angzarr.runtime.processes import OncePerProcess

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
        """What its certificate is checked by; None: nothing is encrypted."""
        encrypted, _ = _read(self.url)
        return (self.credentials or grpc.ssl_channel_credentials()) if encrypted else None

    def options(self) -> tuple[tuple[str, int], ...]:
        """The options of a channel to it."""
        return (
            *_FIXED,
            ("grpc.max_send_message_length", self.max_message),
            ("grpc.max_receive_message_length", self.max_message),
            ("grpc.max_metadata_size", self.max_metadata),
            ("grpc.absolute_max_metadata_size", self.max_metadata),
        )


def _read(url: str) -> tuple[bool, str]:
    """Whether *url* is encrypted, and its target; a wrong one may hold a password.

    Raises ConfigurationError.
    """
    read = _URL.fullmatch(url)
    if read is None or not 0 < int(read["port"]) <= _MAX_PORT:
        msg = "the url of a command server is grpc://host:port, or grpcs://host:port over TLS"
        raise ConfigurationError(msg)
    return bool(read["tls"]), read["target"]


class GrpcCommandClient(CommandClient):
    """Executes commands on *server*. Safe to use from threads.

    A call whose server is away (UNAVAILABLE) is made again, by the server's policy and within its
    deadline, though it may have been carried out: a command's id makes that safe, the same id gets
    the same decision. The channel is opened when it is first used, in each process anew; no
    process may fork while one of its threads waits for an answer.
    """

    def __init__(
        self,
        server: CommandServer,
        *,
        clock: Clock | None = None,
        chance: Callable[[], float] = chance,
    ) -> None:
        self._server = server
        self._clock = clock or SystemClock()
        self._chance = chance
        self._channel = OncePerProcess(self._open)

    def book(self, address: Address, /) -> Book:
        """The whole book at *address*.

        Raises DecodeError for an answer that is not that, UnserializableEvent, grpc.RpcError.
        """
        return book_of(self._call(self._server.get_event_book, book_request(address)), address)

    def execute(self, command: Command, /) -> Decision:
        """Carry out *command*; the decision has what was appended.

        Raises SequenceConflictError, CommandAbortedError, CommandRejectedError; UnserializableEvent
        before anything is sent; DecodeError for an answer of another aggregate, and grpc.RpcError
        for any other failure: whether the command was carried out is not known then, and the same
        command may be executed again.
        """
        request, metadata = command_request(command), command_metadata(command)
        try:
            answered = self._call(self._server.execute, request, metadata)
        except grpc.RpcError as error:
            if (refused := refusal(told(error), command.address)) is None:
                raise
            raise refused from error
        return decision_of(answered, command)

    def close(self) -> None:
        """Close the channel; safe to call twice. A later call opens another."""
        channel = self._channel.forget()
        if channel is not None:
            channel.close()

    def _call(self, path: str, request: bytes, metadata: Any = ()) -> bytes:
        attempts = CallAttempts(self._server.policy, self._clock.now() + self._server.deadline)
        while True:
            method = self._channel.get().unary_unary(path)
            left = attempts.left(self._clock.now())
            try:
                answered: bytes = method(request, timeout=left, metadata=metadata)
            except grpc.RpcError as error:
                pause = attempts.after(told(error), self._clock.now(), self._chance())
                if pause is None:
                    raise
            else:
                return answered
            self._clock.sleep(pause)

    def _open(self) -> grpc.Channel:
        target, options, tls = self._server.target, self._server.options(), self._server.tls()
        if tls is None:
            return grpc.insecure_channel(target, options)
        return grpc.secure_channel(target, tls, options)


_Channels: TypeAlias = WeakKeyDictionary[asyncio.AbstractEventLoop, grpc.aio.Channel]


class AsyncGrpcCommandClient(AsyncCommandClient):
    """Does as `GrpcCommandClient`. Each event loop has a channel of its own."""

    def __init__(
        self,
        server: CommandServer,
        *,
        clock: Clock | None = None,
        chance: Callable[[], float] = chance,
    ) -> None:
        self._server = server
        self._clock = clock or SystemClock()
        self._chance = chance
        self._channels: OncePerProcess[_Channels] = OncePerProcess(WeakKeyDictionary)

    async def book(self, address: Address, /) -> Book:
        """See `GrpcCommandClient.book`."""
        answered = await self._call(self._server.get_event_book, book_request(address))
        return book_of(answered, address)

    async def execute(self, command: Command, /) -> Decision:
        """See `GrpcCommandClient.execute`."""
        request, metadata = command_request(command), command_metadata(command)
        try:
            answered = await self._call(self._server.execute, request, metadata)
        except grpc.RpcError as error:
            if (refused := refusal(told(error), command.address)) is None:
                raise
            raise refused from error
        return decision_of(answered, command)

    async def close(self) -> None:
        """Close the channel of the running loop; safe to call twice. A later call opens another."""
        channel = self._channels.get().pop(asyncio.get_running_loop(), None)
        if channel is not None:
            await channel.close()

    async def _call(self, path: str, request: bytes, metadata: Any = ()) -> bytes:
        attempts = CallAttempts(self._server.policy, self._clock.now() + self._server.deadline)
        while True:
            method = self._channel().unary_unary(path)
            left = attempts.left(self._clock.now())
            try:
                answered: bytes = await method(request, timeout=left, metadata=metadata)
            except grpc.RpcError as error:
                pause = attempts.after(told(error), self._clock.now(), self._chance())
                if pause is None:
                    raise
            else:
                return answered
            await self._clock.asleep(pause)

    def _channel(self) -> grpc.aio.Channel:
        """The channel of the running loop: in another one gRPC would not answer."""
        channels, loop = self._channels.get(), asyncio.get_running_loop()
        found = channels.get(loop)
        if found is None:
            found = channels[loop] = self._open()
        return found

    def _open(self) -> grpc.aio.Channel:
        target, options, tls = self._server.target, self._server.options(), self._server.tls()
        if tls is None:
            return grpc.aio.insecure_channel(target, options)
        return grpc.aio.secure_channel(target, tls, options)
