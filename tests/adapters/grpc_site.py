"""A gRPC server over books of this process, as another team might write it."""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Self
from urllib.parse import unquote

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from angzarr.aggregates.book import Book
from angzarr.aggregates.command import Command, CommandClient
from angzarr.aggregates.wire_form import address_of, book_to_wire, command_from_wire
from angzarr.errors import CommandAbortedError, CommandRejectedError, SequenceConflictError
from angzarr.wire import book_pb2, dead_letter_pb2, identity_pb2

DETAILS = "grpc-status-details-bin"
EXECUTE = "/players.v1.Players/Execute"
GET_EVENT_BOOK = "/players.v1.Players/EventBook"


class Encoding(Enum):
    """How a conflict brings its book."""

    STATUS = "status"
    BARE = "bare"
    NONE = "none"


def packed(message) -> AnyMessage:
    found = AnyMessage()
    found.Pack(message)
    return found


def status(code: grpc.StatusCode, *details: object) -> bytes:
    said = Status(code=code.value[0], message="said", details=[packed(one) for one in details])
    return said.SerializeToString()


class CommandSite(grpc.GenericRpcHandler):
    """Serves *client* until it is left; `before` is called with each command at first."""

    def __init__(self, client: CommandClient, encoding: Encoding = Encoding.STATUS) -> None:
        self.client = client
        self.encoding = encoding
        self.calls: Tally[str] = Tally()
        self.metadata: dict[str, str] = {}
        self.before: Callable[[Command, grpc.ServicerContext], None] = lambda command, context: None
        self.credentials: grpc.ServerCredentials | None = None
        self.port = 0
        self._server: grpc.Server | None = None

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, where it listened before."""
        options = [("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(20), handlers=[self], options=options)
        where = f"127.0.0.1:{self.port}"
        self.port = (
            self._server.add_secure_port(where, self.credentials)
            if self.credentials
            else self._server.add_insecure_port(where)
        )
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        methods = {EXECUTE: self._execute, GET_EVENT_BOOK: self._book}
        method = methods.get(call.method)
        return method and grpc.unary_unary_rpc_method_handler(method)

    def _book(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls["book"] += 1
        address = address_of(identity_pb2.Cover.FromString(raw))
        return book_to_wire(self.client.book(address)).SerializeToString()

    def _execute(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls["execute"] += 1
        self.metadata = {
            key: unquote(value)
            for key, value in context.invocation_metadata()
            if isinstance(value, str)
        }
        told = self.metadata
        written = book_pb2.CommandBook.FromString(raw)
        command = command_from_wire(
            written, id=told["angzarr-event-id"], saga=told.get("angzarr-saga", "")
        )
        self.before(command, context)
        try:
            decision = self.client.execute(command)
        except SequenceConflictError as conflict:
            self._fail(context, grpc.StatusCode.FAILED_PRECONDITION, conflict, self._told(conflict))
        except CommandAbortedError as aborted:
            strategy = book_pb2.MERGE_MANUAL if aborted.review else book_pb2.MERGE_STRICT
            mismatch = dead_letter_pb2.SequenceMismatchDetails(
                expected_sequence=aborted.expected,
                actual_sequence=aborted.actual,
                merge_strategy=strategy,
            )
            code = grpc.StatusCode.ABORTED
            self._fail(context, code, aborted, status(code, mismatch))
        except CommandRejectedError as rejected:
            code = grpc.StatusCode.FAILED_PRECONDITION
            info = ErrorInfo(reason="COMMAND_REJECTED", domain="players.example")
            self._fail(context, code, rejected, status(code, info))
        appended = Book(
            address=command.address,
            events=decision.events,
            next_sequence=(decision.events[-1].sequence + 1) if decision.events else 0,
        )
        return book_to_wire(appended).SerializeToString()

    def _told(self, conflict: SequenceConflictError) -> bytes | None:
        if self.encoding is Encoding.NONE or conflict.book is None:
            return None
        written = book_to_wire(conflict.book)
        if self.encoding is Encoding.BARE:
            return written.SerializeToString()
        return status(grpc.StatusCode.FAILED_PRECONDITION, written)

    @staticmethod
    def _fail(
        context: grpc.ServicerContext, code: grpc.StatusCode, error: Exception, raw: bytes | None
    ) -> None:
        if raw is not None:
            context.set_trailing_metadata(((DETAILS, raw),))
        context.abort(code, str(error))


class Gate:
    """Holds a handler until the test has seen that it runs."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self, *_: object) -> None:
        self.entered.set()
        self.open.wait(60)
