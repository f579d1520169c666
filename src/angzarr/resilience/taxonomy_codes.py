"""Classes, status numbers and codes of errors → category (spec D2). Tables and look-ups. Pure.

A class is known by its path: no client library is imported. A subclass counts as its listed base.
Errors that carry a status, SQLSTATE or errno are read by `taxonomy_evidence` first.

A code is the protocol's own, never a word of the text that follows it: MySQL's error number, FTP's
three digits (RFC 959, 4.2), what POP and IMAP put in brackets (RFC 2449, 5530).
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Sequence
from typing import Any, Final

from angzarr.resilience.category import Category

_T, _C = Category.TRANSIENT, Category.CLIENT
_I, _A = Category.INTEGRITY, Category.AUTHORIZATION

#: The code of a lost or refused connection; the operating system's error beneath says it better.
CONNECTION = "CONNECTION"

_SOURCES: dict[tuple[Category, str], str] = {
    (_T, "TIMEOUT"): """
        builtins.TimeoutError concurrent.futures._base.CancelledError
        asyncio.exceptions.CancelledError subprocess.TimeoutExpired
        httpx.TimeoutException requests.exceptions.Timeout urllib3.exceptions.TimeoutError
        botocore.exceptions.ReadTimeoutError botocore.exceptions.ConnectTimeoutError
        grpc.FutureTimeoutError redis.exceptions.TimeoutError sqlalchemy.exc.TimeoutError
        aiohttp.client_exceptions.ServerTimeoutError
        celery.exceptions.TimeoutError pika.exceptions.ConnectionBlockedTimeout""",
    (_T, "TIME_LIMIT"): """
        billiard.exceptions.SoftTimeLimitExceeded billiard.exceptions.TimeLimitExceeded""",
    (_T, "POOL_EXHAUSTED"): """
        httpx.PoolTimeout urllib3.exceptions.EmptyPoolError urllib3.exceptions.FullPoolError
        redis.exceptions.MaxConnectionsError kombu.exceptions.LimitExceeded""",
    (_T, "WORKER_LOST"): """
        billiard.exceptions.WorkerLostError concurrent.futures._base.BrokenExecutor""",
    (_T, CONNECTION): """
        builtins.ConnectionError asyncio.exceptions.IncompleteReadError
        http.client.IncompleteRead http.client.BadStatusLine urllib.error.URLError
        httpx.NetworkError httpx.ProxyError httpx.RemoteProtocolError
        requests.exceptions.ConnectionError requests.exceptions.ChunkedEncodingError
        requests.exceptions.RetryError
        urllib3.exceptions.NewConnectionError urllib3.exceptions.ProtocolError
        urllib3.exceptions.ProxyError urllib3.exceptions.SSLError urllib3.exceptions.MaxRetryError
        urllib3.exceptions.IncompleteRead urllib3.exceptions.ClosedPoolError
        botocore.exceptions.ConnectionError botocore.exceptions.HTTPClientError
        botocore.exceptions.IncompleteReadError
        redis.exceptions.ConnectionError redis.exceptions.SlotNotCoveredError
        sqlalchemy.exc.DisconnectionError sqlalchemy.exc.OperationalError
        psycopg.OperationalError
        kombu.exceptions.OperationalError amqp.exceptions.RecoverableConnectionError
        amqp.exceptions.RecoverableChannelError pika.exceptions.AMQPConnectionError
        aiohttp.client_exceptions.ClientConnectionError
        aiohttp.client_exceptions.ClientPayloadError aiohttp.http_exceptions.TransferEncodingError
        google.auth.exceptions.TransportError
        smtplib.SMTPServerDisconnected""",
    (_T, "LOCK"): "redis.exceptions.LockError",
    (_T, "REDIS_UNAVAILABLE"): """
        redis.exceptions.BusyLoadingError redis.exceptions.ReadOnlyError
        redis.exceptions.ClusterError redis.exceptions.TryAgainError
        redis.exceptions.AskError redis.exceptions.OutOfMemoryError""",
    (_T, "UNAVAILABLE"): "angzarr.errors.Unavailable angzarr.errors.GivenBack",
    # publishing again with the id it names is safe
    (_T, "PUBLISH_INCOMPLETE"): "angzarr.errors.PublishIncomplete",
    (Category.CONFLICT, "CONFLICT"): """
        redis.exceptions.WatchError redis.exceptions.LockNotOwnedError
        sqlalchemy.orm.exc.StaleDataError""",
    (Category.CONFLICT, "SEQUENCE_CONFLICT"): "angzarr.errors.SequenceConflictError",
    (_C, "COMMAND"): "angzarr.errors.InvalidRoot angzarr.errors.UnknownCommand",
    # as gRPC's ABORTED: terminal, and the coordinator of the merge has written its letter
    (Category.UNKNOWN, "ABORTED"): "angzarr.errors.CommandAbortedError",
    # a handshake that failed for other reasons than the certificate
    (Category.EXTERNAL, "TLS"): "ssl.SSLError",
    (Category.EXTERNAL, "BAD_RESPONSE"): """
        requests.exceptions.JSONDecodeError requests.exceptions.ContentDecodingError
        requests.exceptions.TooManyRedirects httpx.DecodingError httpx.TooManyRedirects
        urllib3.exceptions.DecodeError aiohttp.client_exceptions.ContentTypeError
        aiohttp.client_exceptions.TooManyRedirects""",
    (_C, "VALIDATION"): """
        pydantic_core._pydantic_core.ValidationError
        botocore.exceptions.ParamValidationError botocore.exceptions.ValidationError
        requests.exceptions.InvalidURL requests.exceptions.MissingSchema
        requests.exceptions.InvalidSchema requests.exceptions.InvalidHeader
        httpx.UnsupportedProtocol httpx.InvalidURL httpx.LocalProtocolError
        urllib3.exceptions.LocationValueError aiohttp.client_exceptions.InvalidURL
        redis.exceptions.DataError sqlalchemy.exc.DataError psycopg.DataError""",
    (_C, "NOT_FOUND"): "sqlalchemy.exc.NoResultFound amqp.exceptions.NotFound",
    (_C, "DECODE"): """
        json.decoder.JSONDecodeError builtins.UnicodeError google.protobuf.message.DecodeError
        kombu.exceptions.SerializationError kombu.exceptions.ContentDisallowed
        angzarr.errors.DecodeError angzarr.errors.UnserializableEvent""",
    # what a reference names is gone or another: in vain however often it is fetched
    (_C, "PAYLOAD"): "angzarr.errors.PayloadGone angzarr.errors.PayloadCorrupt",
    # encrypted with a key that is not here: in vain until a person adds it
    (_C, "PAYLOAD_KEY"): "angzarr.errors.PayloadKeyMissing",
    # a version that an event is pinned to: in vain until a person puts it back
    (_C, "CONFIGURATION"): "angzarr.errors.ConfigurationVersionMissing",
    (_C, "REJECTED"): """
        xmlrpc.client.Fault
        angzarr.errors.CommandRejectedError angzarr.errors.GiveUp angzarr.errors.Skip""",
    (_I, "CONSTRAINT"): "sqlalchemy.exc.IntegrityError psycopg.IntegrityError",
    (_I, "IDEMPOTENCY_CONFLICT"): "angzarr.errors.IdempotencyConflictError",
    # the peer could not prove who it is: no retry changes that, and nothing should be sent to it
    (_A, "CERTIFICATE"): "ssl.SSLCertVerificationError",
    (_A, "CREDENTIALS"): """
        botocore.exceptions.NoCredentialsError botocore.exceptions.PartialCredentialsError
        botocore.exceptions.NoAuthTokenError botocore.exceptions.SSOError
        redis.exceptions.AuthenticationError redis.exceptions.AuthorizationError
        redis.exceptions.NoPermissionError
        amqp.exceptions.AccessRefused amqp.exceptions.NotAllowed
        pika.exceptions.AuthenticationError pika.exceptions.ProbableAuthenticationError
        pika.exceptions.ProbableAccessDeniedError
        google.auth.exceptions.DefaultCredentialsError google.auth.exceptions.RefreshError""",
    (Category.BUDGET, "COST_BUDGET_SPENT"): "angzarr.errors.CostBudgetSpentError",
    # unknown on purpose, so that no cause is asked
    (Category.UNKNOWN, "UNKNOWN"): """
        builtins.MemoryError angzarr.errors.PoisonError angzarr.errors.ConfigurationError
        angzarr.errors.InvalidCost""",
}

#: Path of a class → what its instances are.
SOURCES = {path: said for said, paths in _SOURCES.items() for path in paths.split()}


def class_paths(error: BaseException) -> list[str]:
    """``module.Class`` of the error's class and its bases, nearest first."""
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]


_T, _S, _E = Category.TRANSIENT, Category.SERVER, Category.EXTERNAL
_C, _I, _A = Category.CLIENT, Category.INTEGRITY, Category.AUTHORIZATION

_HTTP = {
    401: _A, 402: Category.BUDGET, 403: _A, 408: _T, 409: _I, 429: _T,
    500: _S, 502: _S, 503: _T, 504: _T,
}  # fmt: skip


def of_http(status: int) -> Category:
    """The category of an HTTP status; any other 4xx is CLIENT, all else UNKNOWN."""
    other = Category.CLIENT if status // 100 == 4 else Category.UNKNOWN  # noqa: PLR2004 - 4xx
    return _HTTP.get(status, other)


#: gRPC status names. INTERNAL and ABORTED are terminal by spec; CANCELLED is no word about the
#: request (the caller gave up, or the server is going down).
GRPC = {
    "CANCELLED": _T, "UNAVAILABLE": _T, "DEADLINE_EXCEEDED": _T, "RESOURCE_EXHAUSTED": _T,
    "FAILED_PRECONDITION": Category.CONFLICT,
    "UNKNOWN": _S, "DATA_LOSS": _S,
    "INVALID_ARGUMENT": _C, "NOT_FOUND": _C, "OUT_OF_RANGE": _C, "UNIMPLEMENTED": _C,
    "ALREADY_EXISTS": _I,
    "UNAUTHENTICATED": _A, "PERMISSION_DENIED": _A,
    "INTERNAL": Category.UNKNOWN, "ABORTED": Category.UNKNOWN,
}  # fmt: skip

#: PostgreSQL's SQLSTATE, longest prefix first: state, then class (Appendix A of its manual).
_SQLSTATE = {
    "57014": _T,  # query_canceled: a statement time-out
    "55P03": _T,  # lock_not_available
    "55006": _T,  # object_in_use
    "25P03": _T,  # idle_in_transaction_session_timeout
    "25006": _T,  # read_only_sql_transaction: a write met the standby during a failover
    "42501": _A,  # insufficient_privilege
    "57P": _T,  # admin_shutdown, crash_shutdown, cannot_connect_now
    "08": _T,  # connection exceptions
    "40": _T,  # rollbacks: deadlock, serialization failure
    "53": _T,  # insufficient resources: disk full, too many connections
    "58": _S,  # system errors: I/O
    "22": _C,  # data exceptions
    "23": _I,  # constraints
    "28": _A,  # invalid authorization
    "P0001": _C,  # RAISE EXCEPTION: a business rule in the database
}


def of_sqlstate(state: str) -> Category:
    """The category of an SQLSTATE; one that is not listed (a wrong query) is UNKNOWN."""
    prefixes = (state[:length] for length in (5, 3, 2))
    return next((_SQLSTATE[p] for p in prefixes if p in _SQLSTATE), Category.UNKNOWN)


#: SQLite's primary result codes (https://sqlite.org/rescode.html).
_SQLITE = {
    5: _T, 6: _T,  # BUSY, LOCKED
    9: _T,  # INTERRUPT: a time-out
    13: _T,  # FULL
    15: _T, 17: _T,  # PROTOCOL (lock race), SCHEMA (changed under us)
    10: _S,  # IOERR
    19: _I,  # CONSTRAINT
    18: _C, 20: _C, 25: _C,  # TOOBIG, MISMATCH, RANGE
    3: _A, 8: _A, 23: _A,  # PERM, READONLY, AUTH
}  # fmt: skip


def of_sqlite(code: int) -> Category:
    """The category of an SQLite result code, primary or extended."""
    return _SQLITE.get(code & 0xFF, Category.UNKNOWN)


_ERRNO = {
    _T: (
        "ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ETIMEDOUT EHOSTUNREACH EHOSTDOWN ENETUNREACH "
        "ENETDOWN ENETRESET ENOTCONN ESHUTDOWN EADDRNOTAVAIL EAGAIN EINTR EBUSY ENOBUFS "
        "EMFILE ENFILE ENOSPC EDQUOT ESTALE EDEADLK ENOLCK"
    ),
    _S: "EIO",
    _A: "EACCES EPERM EROFS",
    _I: "EEXIST",
    _C: "ENOENT ENOTDIR EISDIR ENAMETOOLONG EFBIG",
}
_BY_ERRNO = {
    getattr(errno, name): category for category, names in _ERRNO.items() for name in names.split()
}


def of_errno(number: int) -> tuple[Category, str]:
    """Category and name of an errno; one that says nothing (EINVAL) is UNKNOWN."""
    name = errno.errorcode.get(number, f"ERRNO_{number}")
    return _BY_ERRNO.get(number, Category.UNKNOWN), name


_EAI = {getattr(socket, name): name for name in dir(socket) if name.startswith("EAI_")}


def of_resolution(number: int | None) -> tuple[Category, str]:
    """Category and name of a failed name look-up.

    EAI_AGAIN passes by itself. An unknown name is EXTERNAL: retried with backoff, because
    names appear and vanish while a service is deployed; if it stays unknown, analysis calls it
    a configuration error.
    """
    name = _EAI.get(number, "EAI_FAIL") if number is not None else "EAI_FAIL"
    return (_T if name == "EAI_AGAIN" else _E), name


#: SMTP replies that say who may not log in (RFC 4954, 6).
_SMTP_LOGIN = frozenset({530, 534, 535, 538})


def of_smtp(code: int) -> Category:
    """The category of an SMTP reply: 4yz passes by itself, 5yz stays (RFC 5321, 4.2.1)."""
    if code in _SMTP_LOGIN:
        return _A
    return {4: _T, 5: _C}.get(code // 100, Category.UNKNOWN)


#: First word of a Redis error reply, which RESP defines as its code.
REDIS = {
    "BUSY": _T, "LOADING": _T, "TRYAGAIN": _T, "CLUSTERDOWN": _T, "MASTERDOWN": _T,
    "READONLY": _T, "NOREPLICAS": _T, "MISCONF": _T, "OOM": _T, "UNBLOCKED": _T,
    "WRONGTYPE": _C, "BUSYGROUP": _I,
    "NOAUTH": _A, "WRONGPASS": _A, "NOPERM": _A, "DENIED": _A,
}  # fmt: skip

#: Error codes of AWS services that say more than their HTTP status. The throttling codes are
#: those of botocore.retries.standard.
_AWS = {
    _T: (
        "Throttling ThrottlingException ThrottledException RequestThrottledException "
        "RequestThrottled TooManyRequestsException ProvisionedThroughputExceededException "
        "TransactionInProgressException RequestLimitExceeded BandwidthLimitExceeded "
        "LimitExceededException SlowDown PriorRequestNotComplete EC2ThrottledException "
        "RequestTimeout RequestTimeoutException OverLimit ServiceUnavailable "
        "IDPCommunicationError"
    ),
    _S: "InternalError InternalFailure InternalServerError",
    Category.CONFLICT: (
        "ConditionalCheckFailedException TransactionConflictException PreconditionFailed "
        "ConcurrentModificationException OptimisticLockException"
    ),
    _I: (
        "EntityAlreadyExists ResourceAlreadyExistsException QueueAlreadyExists QueueNameExists "
        "IdempotentParameterMismatch BucketAlreadyExists BucketAlreadyOwnedByYou"
    ),
    _A: (
        "AccessDenied AccessDeniedException UnauthorizedOperation AuthFailure ExpiredToken "
        "ExpiredTokenException RequestExpired InvalidAccessKeyId InvalidClientTokenId "
        "UnrecognizedClientException SignatureDoesNotMatch MissingAuthenticationToken"
    ),
}
AWS = {code: category for category, codes in _AWS.items() for code in codes.split()}

#: librdkafka's error names.
_KAFKA = {
    _T: (
        "_TRANSPORT _TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT _ALL_BROKERS_DOWN _QUEUE_FULL "
        "_RETRY _WAIT_COORD _RESOLVE REQUEST_TIMED_OUT LEADER_NOT_AVAILABLE BROKER_NOT_AVAILABLE "
        "NOT_LEADER_FOR_PARTITION NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND "
        "NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE "
        "NOT_COORDINATOR REBALANCE_IN_PROGRESS THROTTLING_QUOTA_EXCEEDED"
    ),
    _A: (
        "_AUTHENTICATION TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED "
        "CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED "
        "SASL_AUTHENTICATION_FAILED"
    ),
    _C: "MSG_SIZE_TOO_LARGE _INVALID_ARG INVALID_MSG INVALID_MSG_SIZE RECORD_LIST_TOO_LARGE",
}
KAFKA = {name: category for category, names in _KAFKA.items() for name in names.split()}

_T, _S, _C = Category.TRANSIENT, Category.SERVER, Category.CLIENT
_I, _A, _U = Category.INTEGRITY, Category.AUTHORIZATION, Category.UNKNOWN

#: MySQL's drivers, which all give the number as their first argument.
_MYSQL_DRIVERS: Final = frozenset(
    {"pymysql.err.MySQLError", "MySQLdb._exceptions.MySQLError", "mysql.connector.errors.Error"}
)
_MOST: Final = 0xFFFF
#: MySQL's error numbers (its manual, "Server Error Message Reference" and "Client …").
_MYSQL_NUMBERS: Final = {
    # too many connections, out of resources; shutting down; timed out, reset, gone, lost; lock
    # wait, deadlock; a replica or a server in a failover; the query's time is over; disk full
    _T: (
        "1040 1041 1203 1226 1053 1077 1129 1158 1159 1160 1161 1184 2002 2003 2006 2013 2055 "
        "1205 1213 1290 1836 1792 3024 1317 1969 1021 1114"
    ),
    _S: "1030 1033 1034 1105 1194",
    # a user, a password, a right, a TLS that is demanded
    _A: "1044 1045 1142 1143 1227 1370 1698 1820 1862 3118 3159",
    # duplicates, foreign keys, checks
    _I: "1022 1062 1169 1216 1217 1451 1452 1557 1586 3819 4025",
    # what a column cannot hold, or a packet
    _C: "1048 1153 1264 1265 1292 1364 1366 1406 1411 3140 3156",
}
_MYSQL: Final = {
    int(number): category
    for category, numbers in _MYSQL_NUMBERS.items()
    for number in numbers.split()
}

#: FTP's replies that say who may not log in.
_FTP_LOGIN: Final = frozenset({530, 532})

#: Codes in brackets: those of IMAP, then those of POP.
_BRACKETED: Final = {
    "UNAVAILABLE": _T, "INUSE": _T, "LIMIT": _T, "SERVERBUG": _S, "CORRUPTION": _S,
    "AUTHENTICATIONFAILED": _A, "AUTHORIZATIONFAILED": _A, "EXPIRED": _A, "PRIVACYREQUIRED": _A,
    "CONTACTADMIN": _A, "NOPERM": _A, "OVERQUOTA": Category.BUDGET, "ALREADYEXISTS": _I,
    "NONEXISTENT": _C, "CLIENTBUG": _C, "CANNOT": _C,
    "IN-USE": _T, "LOGIN-DELAY": _T, "SYS/TEMP": _T, "SYS/PERM": _S, "AUTH": _A,
}  # fmt: skip
_MAIL_BOXES: Final = frozenset({"poplib.error_proto", "imaplib.IMAP4.error"})
_IN_BRACKETS: Final = re.compile(r"\[([A-Z/-]{2,24})")


def of_reply(paths: Sequence[str], arguments: Sequence[Any]) -> tuple[Category, str] | None:
    """Category and code of what an exception of the classes *paths* was raised with."""
    first = arguments[0] if arguments else None
    if isinstance(first, int) and not _MYSQL_DRIVERS.isdisjoint(paths):
        return (_MYSQL.get(first, _U), f"MYSQL_{first}") if 0 < first <= _MOST else None
    if "ftplib.Error" in paths:
        return _of_ftp(str(first)[:3])
    if not _MAIL_BOXES.isdisjoint(paths):
        return _of_mail_box(first) or _of_lost_box(paths)
    return None


def _of_ftp(digits: str) -> tuple[Category, str] | None:
    """4yz passes by itself, 5yz stays."""
    if not (digits.isascii() and digits.isdigit()):
        return None
    category = {"4": _T, "5": _C}.get(digits[0], _U)
    return _A if int(digits) in _FTP_LOGIN else category, f"FTP_{digits}"


def _of_lost_box(paths: Sequence[str]) -> tuple[Category, str] | None:
    """`abort`: the line is gone or out of step, and a new one is to be opened."""
    return (_T, "CONNECTION") if "imaplib.IMAP4.abort" in paths else None


def _of_mail_box(said: Any) -> tuple[Category, str] | None:
    text = said.decode("ascii", "replace") if isinstance(said, bytes) else str(said)
    found = _IN_BRACKETS.search(text[:200])
    category = _BRACKETED.get(found[1]) if found else None
    return (category, f"MAILBOX_{found[1]}") if found and category else None
