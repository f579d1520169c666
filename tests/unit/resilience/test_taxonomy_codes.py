"""Failures of gRPC, databases, Redis, brokers, the system and Python as they are really raised."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import json
import os
import smtplib
import socket
import sqlite3
import ssl
import subprocess
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import amqp.exceptions
import billiard.exceptions
import celery.exceptions
import confluent_kafka
import google.protobuf.message
import grpc
import kombu
import kombu.exceptions
import pika.exceptions
import psycopg
import pydantic
import pytest
import redis
import redis.exceptions
import sqlalchemy as sa
import sqlalchemy.exc
import sqlalchemy.orm.exc
import sqlalchemy.pool
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from hypothesis import given
from hypothesis import strategies as st

from angzarr import errors
from angzarr.resilience import retry_after
from angzarr.resilience.category import Category, Classification
from angzarr.resilience.taxonomy import classify

NOW = datetime(2026, 1, 1, tzinfo=UTC)
T, S, C = Category.TRANSIENT, Category.SERVER, Category.CLIENT
A, I, U = Category.AUTHORIZATION, Category.INTEGRITY, Category.UNKNOWN  # noqa: E741 - a table's head


def raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    pytest.fail("nothing was raised")


def seen(error: BaseException) -> tuple[Category, str]:
    found = classify(error, now=NOW)
    return found.category, found.code


# ---------------------------------------------------------------------------------------- gRPC

GRPC = {
    **dict.fromkeys(("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED"), T),
    "FAILED_PRECONDITION": Category.CONFLICT,
    **dict.fromkeys(("UNKNOWN", "DATA_LOSS"), S),
    **dict.fromkeys(("INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "UNIMPLEMENTED"), C),
    "ALREADY_EXISTS": I,
    **dict.fromkeys(("UNAUTHENTICATED", "PERMISSION_DENIED"), A),
    **dict.fromkeys(("INTERNAL", "ABORTED"), U),
}


class Failing(grpc.GenericRpcHandler):
    """Fails as the method's name says: ``/f/NOT_FOUND``, ``/f/wait``."""

    def service(self, call: Any) -> grpc.RpcMethodHandler:
        what = call.method.rpartition("/")[2]
        return grpc.unary_unary_rpc_method_handler(lambda _, context: self.fail(what, context))

    def fail(self, what: str, context: grpc.ServicerContext) -> bytes:
        if what == "wait":
            context.abort_with_status(rpc_status.to_status(busy(seconds=3, nanos=500_000_000)))
        context.abort(grpc.StatusCode[what], "as asked")
        return b""


def busy(**wait: int) -> status_pb2.Status:
    """Return a status that says when to come back, among other details."""
    status = status_pb2.Status(code=code_pb2.UNAVAILABLE, message="busy")
    hint = error_details_pb2.RetryInfo(retry_delay=Duration(**wait))
    for detail in (error_details_pb2.DebugInfo(detail="retryDelay"), hint):
        status.details.add().Pack(detail)
    return status


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Failing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None).wait()


def test_every_grpc_status_has_its_row() -> None:
    assert set(GRPC) == {code.name for code in grpc.StatusCode} - {"OK"}


@pytest.mark.parametrize("name", GRPC)
def test_grpc_status_decides(channel: grpc.Channel, name: str) -> None:
    error = raised(lambda: channel.unary_unary(f"/f/{name}")(b"", timeout=60))
    assert isinstance(error, grpc.RpcError)
    assert seen(error) == (GRPC[name], f"GRPC_{name}")
    assert classify(error, now=NOW).retry_after is None


def test_grpc_retry_info_is_read_from_the_trailing_metadata(channel: grpc.Channel) -> None:
    found = classify(raised(lambda: channel.unary_unary("/f/wait")(b"", timeout=60)), now=NOW)
    assert (found.category, found.code) == (T, "GRPC_UNAVAILABLE")
    assert found.retry_after == timedelta(seconds=3.5)


def test_async_grpc_errors_are_read_alike() -> None:
    metadata = grpc.aio.Metadata(("grpc-status-details-bin", busy(seconds=4).SerializeToString()))
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), metadata)
    found = classify(error, now=NOW)
    assert (found.category, found.retry_after) == (T, timedelta(seconds=4))


@given(st.integers(0, 86_400), st.integers(0, 999_999_999))
def test_any_retry_info_is_read_as_protobuf_reads_it(seconds: int, nanos: int) -> None:
    found = retry_after.from_grpc_status(busy(seconds=seconds, nanos=nanos).SerializeToString())
    wanted = min(timedelta(seconds=seconds, microseconds=nanos / 1000), retry_after.LONGEST)
    assert found is not None
    assert abs(found - wanted) <= timedelta(microseconds=1)


def test_retry_info_of_the_past_or_far_future_is_bounded() -> None:
    assert retry_after.from_grpc_status(busy(seconds=-7).SerializeToString()) == timedelta(0)
    forever = busy(seconds=10**11).SerializeToString()
    assert retry_after.from_grpc_status(forever) == retry_after.LONGEST


@given(st.binary(max_size=200) | st.binary(max_size=20).map(lambda b: b"\x1a\x30\x0a" + b))
def test_damaged_status_details_are_no_wish(raw: bytes) -> None:
    assert retry_after.from_grpc_status(raw) is None


@given(st.integers(0, 80))
def test_truncated_status_details_raise_nothing(cut: int) -> None:
    retry_after.from_grpc_status(busy(seconds=3).SerializeToString()[:cut])


@given(st.binary(max_size=40))
def test_damaged_retry_info_raises_nothing(raw: bytes) -> None:
    found = retry_after.from_grpc_metadata([("google.rpc.retryinfo-bin", raw)])
    assert found is None or timedelta(0) <= found <= retry_after.LONGEST


def test_of_two_wishes_the_longer_holds() -> None:
    short = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=1)).SerializeToString()
    metadata = [
        ("grpc-status-details-bin", busy(seconds=9).SerializeToString()),
        ("google.rpc.retryinfo-bin", short),
        ("retry-after", "77"),
    ]
    assert retry_after.from_grpc_metadata(metadata) == timedelta(seconds=9)
    assert retry_after.from_grpc_metadata(metadata[1:]) == timedelta(seconds=1)


def test_foreign_retry_info_type_is_no_wish() -> None:
    status = status_pb2.Status()
    duration = duration_pb2.Duration(seconds=3)
    hint = any_pb2.Any(type_url="type.test/Other", value=duration.SerializeToString())
    status.details.append(hint)
    assert retry_after.from_grpc_status(status.SerializeToString()) is None


# ----------------------------------------------------------------------------------- databases

SQLSTATES = {
    "08006": T, "40001": T, "40P01": T, "53100": T, "53300": T, "57P01": T, "57P03": T,
    "57014": T, "55P03": T, "25006": T,
    "22001": C, "22P02": C, "P0001": C,
    "23505": I, "23503": I, "23502": I,
    "28P01": A, "28000": A, "42501": A,
    "58030": S,
    "42601": U, "42P01": U, "XX000": U, "57000": U,
}  # fmt: skip


@pytest.mark.parametrize(("state", "category"), SQLSTATES.items())
def test_sqlstate_decides_with_and_without_sqlalchemy(state: str, category: Category) -> None:
    error = psycopg.errors.lookup(state)("as the server says")
    assert seen(error) == (category, f"SQLSTATE_{state}")
    wrapped = sqlalchemy.exc.DBAPIError.instance("select 1", {}, error, psycopg.Error)
    assert isinstance(wrapped, sqlalchemy.exc.DBAPIError)
    assert seen(wrapped) == (category, f"SQLSTATE_{state}")


def test_postgresql_that_is_away_is_transient() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    error = raised(lambda: psycopg.connect(host="127.0.0.1", port=port, dbname="x"))
    assert seen(error) == (T, "CONNECTION")
    engine = sa.create_engine(f"postgresql+psycopg://127.0.0.1:{port}/x")
    assert seen(raised(engine.connect)) == (T, "CONNECTION")


def busy_sqlite(path: Path) -> BaseException:
    with closing(sqlite3.connect(path, isolation_level=None)) as first:
        first.execute("create table t (id integer)")
        first.execute("begin exclusive")
        with closing(sqlite3.connect(path, timeout=0)) as second:
            return raised(lambda: second.execute("insert into t values (1)"))


def sqlite_error(*statements: str) -> BaseException:
    engine = sa.create_engine("sqlite://")
    try:
        with engine.connect() as connection:
            return raised(lambda: [connection.exec_driver_sql(each) for each in statements])
    finally:
        engine.dispose()


def test_locked_sqlite_is_transient(tmp_path: Path) -> None:
    assert seen(busy_sqlite(tmp_path / "a.db")) == (T, "SQLITE_BUSY")


@pytest.mark.parametrize(
    ("statements", "category"),
    [
        (("create table t (id int primary key)", *["insert into t values (1)"] * 2), I),
        (("create table t (id int not null)", "insert into t values (null)"), I),
        (("create table t (id integer primary key)", "insert into t values ('x')"), C),
        (("pragma query_only = on", "create table t (id int)"), A),
        (("pragma max_page_count = 1", "create table t (id int)"), T),
        (("select * from nothing",), U),
        (("selct 1",), U),
    ],
    ids=["unique", "not null", "mismatch", "read only", "full", "no table", "syntax"],
)
def test_sqlite_result_code_decides_inside_sqlalchemy(
    statements: tuple[str, ...], category: Category
) -> None:
    error = sqlite_error(*statements)
    assert isinstance(error, sqlalchemy.exc.DBAPIError)
    assert seen(error)[0] is category


def test_exhausted_sqlalchemy_pool_is_transient() -> None:
    engine = sa.create_engine(
        "sqlite://",
        poolclass=sqlalchemy.pool.QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=0,
    )
    with engine.connect():
        error = raised(engine.connect)
    engine.dispose()
    assert seen(error) == (T, "TIMEOUT")


def test_missing_row_is_the_clients_fault() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        error = raised(lambda: connection.execute(sa.text("select 1 where 0")).one())
    engine.dispose()
    assert seen(error) == (C, "NOT_FOUND")


def test_stale_row_is_a_conflict() -> None:
    assert seen(sqlalchemy.orm.exc.StaleDataError("1 expected, 0 matched"))[0] is Category.CONFLICT


# --------------------------------------------------------------------------------------- Redis


def redis_reply(line: str) -> BaseException:
    """Let redis-py read an error reply, as it does from a server."""
    from redis._parsers.resp2 import _RESP2Parser

    return _RESP2Parser(1).parse_error(line)  # type: ignore[no-untyped-call, no-any-return]


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("LOADING Redis is loading the dataset in memory", T),
        ("BUSY Redis is busy running a script.", T),
        ("READONLY You can't write against a read only replica.", T),
        ("OOM command not allowed when used memory > 'maxmemory'.", T),
        ("CLUSTERDOWN The cluster is down", T),
        ("TRYAGAIN Multiple keys request during rehashing of slot", T),
        ("MISCONF Redis is configured to save RDB snapshots", T),
        ("NOREPLICAS Not enough good replicas to write.", T),
        ("MOVED 3999 127.0.0.1:6381", T),
        ("ERR max number of clients reached", T),
        ("NOPERM this user has no permissions to run the 'get' command", A),
        ("NOAUTH Authentication required.", A),
        ("WRONGPASS invalid username-password pair or user is disabled.", A),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", C),
        ("BUSYGROUP Consumer Group name already exists", I),
        ("ERR unknown command 'clock'", U),
        ("ERR syntax error", U),
    ],
)
def test_redis_reply_is_told_by_its_first_word(line: str, category: Category) -> None:
    assert seen(redis_reply(line))[0] is category


def test_redis_that_is_away_is_transient() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    client = redis.Redis(port=port, retry=None)
    assert seen(raised(client.ping)) == (T, "ECONNREFUSED")
    client.close()


def test_silent_redis_is_transient() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = redis.Redis(port=silent.getsockname()[1], retry=None, socket_timeout=0.05)
        assert seen(raised(client.ping)) == (T, "TIMEOUT")
        client.close()


# ------------------------------------------------------------------------------------- brokers


def test_broker_that_is_away_is_transient_with_kombu() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with kombu.Connection(f"amqp://127.0.0.1:{port}//") as connection:
        error = raised(lambda: connection.ensure_connection(max_retries=1, interval_start=0))
    assert isinstance(error, kombu.exceptions.OperationalError)
    assert seen(error) == (T, "ECONNREFUSED")


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("_TRANSPORT", T),
        ("_MSG_TIMED_OUT", T),
        ("_QUEUE_FULL", T),
        ("NOT_ENOUGH_REPLICAS", T),
        ("TOPIC_AUTHORIZATION_FAILED", A),
        ("_AUTHENTICATION", A),
        ("MSG_SIZE_TOO_LARGE", C),
        ("_FATAL", U),
    ],
)
def test_kafka_error_is_told_by_its_name(name: str, category: Category) -> None:
    kafka_error = confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, name))
    error = confluent_kafka.KafkaException(kafka_error)
    assert seen(error) == (category, f"KAFKA_{name.lstrip('_')}")


def test_kafka_error_that_says_retriable_is_transient() -> None:
    kafka_error = confluent_kafka.KafkaError(
        confluent_kafka.KafkaError._STATE, "for now", retriable=True
    )
    assert seen(confluent_kafka.KafkaException(kafka_error))[0] is T


# ---------------------------------------------------------------------------------------- mail


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (smtplib.SMTPDataError(452, b"no room"), (T, "SMTP_452")),
        (smtplib.SMTPConnectError(421, b"too many"), (T, "SMTP_421")),
        (smtplib.SMTPAuthenticationError(535, b"no"), (A, "SMTP_535")),
        (smtplib.SMTPSenderRefused(550, b"no", "a@b.c"), (C, "SMTP_550")),
        (smtplib.SMTPRecipientsRefused({"a": (550, b"no")}), (C, "SMTP_550")),
        (smtplib.SMTPRecipientsRefused({"a": (550, b"no"), "b": (451, b"soon")}), (T, "SMTP_451")),
        (smtplib.SMTPResponseException(250, b"ok?"), (U, "SMTP_250")),
        (smtplib.SMTPServerDisconnected("gone"), (T, "CONNECTION")),
        (smtplib.SMTPNotSupportedError("no AUTH"), (U, "UNKNOWN")),
        (smtplib.SMTPRecipientsRefused({}), (U, "UNKNOWN")),
    ],
)
def test_smtp_reply_decides(error: BaseException, wanted: tuple[Category, str]) -> None:
    assert seen(error) == wanted


# -------------------------------------------------------------------------- system and language


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("ECONNREFUSED", T),
        ("ECONNRESET", T),
        ("EPIPE", T),
        ("ETIMEDOUT", T),
        ("EHOSTUNREACH", T),
        ("ENETUNREACH", T),
        ("ENOSPC", T),
        ("EMFILE", T),
        ("EIO", S),
        ("EACCES", A),
        ("EPERM", A),
        ("EROFS", A),
        ("EEXIST", I),
        ("ENOENT", C),
        ("EISDIR", C),
    ],
)
def test_errno_decides(name: str, category: Category) -> None:
    assert seen(OSError(getattr(errno, name), os.strerror(getattr(errno, name)))) == (
        category,
        name,
    )


def test_full_disk_is_transient() -> None:
    def write() -> None:
        with Path("/dev/full").open("w") as full:
            full.write("no room")

    assert seen(raised(write)) == (T, "ENOSPC")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.EINVAL, "?"), "EINVAL"),
        (OSError(errno.EADDRINUSE, "?"), "EADDRINUSE"),
        (OSError(99_999, "?"), "UNKNOWN"),
        (OSError(), "UNKNOWN"),
    ],
)
def test_system_error_that_says_nothing_of_retries_is_unknown_by_its_name(
    error: OSError, code: str
) -> None:
    assert seen(error) == (U, code)


def test_failed_future_pool_is_transient() -> None:
    with concurrent.futures.ThreadPoolExecutor(1, initializer=lambda: 1 / 0) as pool:
        error = raised(pool.submit(int).result)
    assert isinstance(error, concurrent.futures.BrokenExecutor)
    assert seen(error) == (T, "WORKER_LOST")


def test_asyncio_time_out_is_transient() -> None:
    async def late() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(5)

    assert seen(raised(lambda: asyncio.run(late()))) == (T, "TIMEOUT")


class Model(pydantic.BaseModel):
    count: int


def decoded_badly() -> object:
    return duration_pb2.Duration.FromString(b"\xff")


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda: Model.model_validate({"count": "many"}), (C, "VALIDATION")),
        (lambda: json.loads("{"), (C, "DECODE")),
        (b"\xff".decode, (C, "DECODE")),
        (decoded_badly, (C, "DECODE")),
        (lambda: futures.Future().result(timeout=0), (T, "TIMEOUT")),
        (lambda: subprocess.run(["sleep", "5"], timeout=0.01, check=True), (T, "TIMEOUT")),
        (lambda: kombu.serialization.loads(b"{", "application/json", "utf-8"), (C, "DECODE")),
        (lambda: kombu.serialization.loads(b"", "application/x-python-serialize", "binary"),
         (C, "DECODE")),
    ],
    ids=["pydantic", "json", "unicode", "protobuf", "future", "subprocess", "kombu", "refused"],
)  # fmt: skip
def test_what_libraries_raise_is_known(
    call: Callable[[], object], wanted: tuple[Category, str]
) -> None:
    assert seen(raised(call)) == wanted


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (TimeoutError(), (T, "TIMEOUT")),
        (ConnectionResetError(), (T, "CONNECTION")),
        (asyncio.IncompleteReadError(b"", 3), (T, "CONNECTION")),
        (asyncio.CancelledError(), (T, "TIMEOUT")),
        (concurrent.futures.CancelledError(), (T, "TIMEOUT")),
        (ssl.SSLEOFError(8, "eof"), (Category.EXTERNAL, "TLS")),
        (celery.exceptions.SoftTimeLimitExceeded(), (T, "TIME_LIMIT")),
        (celery.exceptions.TimeLimitExceeded(1), (T, "TIME_LIMIT")),
        (celery.exceptions.TimeoutError(), (T, "TIMEOUT")),
        (billiard.exceptions.WorkerLostError("9"), (T, "WORKER_LOST")),
        (kombu.exceptions.ConnectionLimitExceeded(1), (T, "POOL_EXHAUSTED")),
        (amqp.exceptions.ConnectionForced("shutdown"), (T, "CONNECTION")),
        (amqp.exceptions.AccessRefused("no"), (A, "CREDENTIALS")),
        (amqp.exceptions.NotFound("no queue"), (C, "NOT_FOUND")),
        (pika.exceptions.StreamLostError("gone"), (T, "CONNECTION")),
        (pika.exceptions.ProbableAuthenticationError(403, "no"), (A, "CREDENTIALS")),
        (redis.exceptions.WatchError(), (Category.CONFLICT, "CONFLICT")),
        (redis.exceptions.LockError("not within the time given"), (T, "LOCK")),
        (redis.exceptions.LockNotOwnedError("lost"), (Category.CONFLICT, "CONFLICT")),
        (redis.exceptions.MaxConnectionsError(), (T, "POOL_EXHAUSTED")),
        (redis.exceptions.DataError("None is no key"), (C, "VALIDATION")),
        (google.protobuf.message.DecodeError(), (C, "DECODE")),
        (MemoryError(), (U, "UNKNOWN")),
        (KeyError("x"), (U, "UNKNOWN")),
        (RuntimeError("deadlock, time-out, 503, blocked by the clock"), (U, "UNKNOWN")),
        # ours
        (errors.StoreUnavailable(), (T, "UNAVAILABLE")),
        (errors.BrokerUnavailable(), (T, "UNAVAILABLE")),
        (errors.PublishIncomplete("e", ["h"]), (T, "PUBLISH_INCOMPLETE")),
        (errors.DecodeError(), (C, "DECODE")),
        (errors.UnserializableEvent(), (C, "DECODE")),
        (errors.PayloadCorrupt(), (C, "PAYLOAD")),
        (errors.CommandRejectedError(), (C, "REJECTED")),
        (errors.GiveUp("no"), (C, "REJECTED")),
        (errors.IdempotencyConflictError(), (I, "IDEMPOTENCY_CONFLICT")),
        (errors.PoisonError(), (U, "UNKNOWN")),
        (errors.MissingExtra("x", "y"), (U, "UNKNOWN")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_class_decides_where_nothing_else_does(
    error: BaseException, wanted: tuple[Category, str]
) -> None:
    assert seen(error) == wanted


def test_open_circuit_is_external_and_says_when_to_come_back() -> None:
    found = classify(errors.CircuitOpenError("crm", timedelta(seconds=9)), now=NOW)
    assert found == Classification(
        category=Category.EXTERNAL,
        code="CIRCUIT_OPEN",
        reason="angzarr.errors.CircuitOpenError: CIRCUIT_OPEN",
        retry_after=timedelta(seconds=9),
    )


def test_a_payload_that_is_gone_is_not_a_path_that_is_wrong() -> None:
    error = raised(_fetch_of_nothing)
    assert isinstance(error.__cause__, FileNotFoundError)
    assert seen(error) == (C, "PAYLOAD")


def _fetch_of_nothing() -> None:
    try:
        Path("/nowhere/at-all").read_bytes()
    except FileNotFoundError as error:
        raise errors.PayloadGone("it is not in the store") from error


def test_every_listed_class_exists() -> None:
    import importlib

    from angzarr.resilience.taxonomy_codes import SOURCES

    for path in SOURCES:
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        assert f"{kind.__module__}.{kind.__qualname__}" == path


@pytest.mark.parametrize(
    ("ill", "status", "category", "code"),
    [
        (True, None, Category.EXTERNAL, "NO_ANSWER"),
        (True, 429, Category.EXTERNAL, "HTTP_429"),
        (True, 500, Category.EXTERNAL, "HTTP_500"),
        (False, 410, Category.CLIENT, "HTTP_410"),
        (False, 409, Category.CLIENT, "HTTP_409"),
    ],
)
def test_an_ill_receiver_passes_and_one_that_refuses_does_not(ill, status, category, code):
    wish = timedelta(seconds=9)
    found = classify(errors.WebhookError("no", ill, status, wish), now=NOW)
    assert (found.category, found.code, found.retry_after) == (category, code, wish)
