"""Commands to aggregates behind a gRPC server (spec C3), with a client that is awaited, too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import grpc
import grpc.aio

from angzarr.adapters.grpc.exchange import (
    book_of,
    book_request,
    command_metadata,
    command_request,
    decision_of,
)
from angzarr.adapters.grpc.server import CommandServer
from angzarr.adapters.grpc.status import Trying, refusal, told
from angzarr.aggregates.book import Address, Book, Decision
from angzarr.aggregates.command import Command
from angzarr.aggregates.execute import AsyncCommandClient, CommandClient
from angzarr.clock import Clock, SystemClock
from angzarr.runtime.per_process import OncePerProcess


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
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._server = server
        self._clock = clock or SystemClock()
        self._chance = chance
        self._channel = OncePerProcess(self._open)

    def book(self, address: Address, /) -> Book:
        """Return the whole book at *address*.

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
        trying = Trying(self._server.policy, self._clock.now() + self._server.deadline)
        while True:
            method = self._channel.get().unary_unary(path)
            left = trying.left(self._clock.now())
            try:
                answered: bytes = method(request, timeout=left, metadata=metadata)
            except grpc.RpcError as error:
                pause = trying.after(told(error), self._clock.now(), self._chance())
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
        chance: Callable[[], float] = random.random,
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
        trying = Trying(self._server.policy, self._clock.now() + self._server.deadline)
        while True:
            method = self._channel().unary_unary(path)
            left = trying.left(self._clock.now())
            try:
                answered: bytes = await method(request, timeout=left, metadata=metadata)
            except grpc.RpcError as error:
                pause = trying.after(told(error), self._clock.now(), self._chance())
                if pause is None:
                    raise
            else:
                return answered
            await self._clock.asleep(pause)

    def _channel(self) -> grpc.aio.Channel:
        """Return the channel of the running loop: in another one gRPC would not answer."""
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
