"""Status numbers and codes → category (spec D2). Tables and look-ups, no exceptions."""

from __future__ import annotations

import errno
import socket

from angzarr.resilience.category import Category

_T, _S, _E = Category.TRANSIENT, Category.SERVER, Category.EXTERNAL
_C, _I, _A = Category.CLIENT, Category.INTEGRITY, Category.AUTHORIZATION

_HTTP = {
    401: _A, 402: Category.BUDGET, 403: _A, 408: _T, 409: _I, 429: _T,
    500: _S, 502: _S, 503: _T, 504: _T,
}  # fmt: skip


def of_http(status: int) -> Category:
    """Return the category of an HTTP status; any other 4xx is CLIENT, all else UNKNOWN."""
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
    """Return the category of an SQLSTATE; one nobody listed (a wrong query) is UNKNOWN."""
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
    """Return the category of an SQLite result code, primary or extended."""
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
    """Return category and name of an errno; one that says nothing (EINVAL) is UNKNOWN."""
    name = errno.errorcode.get(number, f"ERRNO_{number}")
    return _BY_ERRNO.get(number, Category.UNKNOWN), name


_EAI = {getattr(socket, name): name for name in dir(socket) if name.startswith("EAI_")}


def of_resolution(number: int | None) -> tuple[Category, str]:
    """Return category and name of a failed name look-up.

    EAI_AGAIN passes by itself. A name nobody knows is EXTERNAL: retried with backoff, because
    names appear and vanish while a service is deployed; if it stays unknown, analysis calls it
    a configuration error.
    """
    name = _EAI.get(number, "EAI_FAIL") if number is not None else "EAI_FAIL"
    return (_T if name == "EAI_AGAIN" else _E), name


#: SMTP replies that say who may not log in (RFC 4954, 6).
_SMTP_LOGIN = frozenset({530, 534, 535, 538})


def of_smtp(code: int) -> Category:
    """Return the category of an SMTP reply: 4yz passes by itself, 5yz stays (RFC 5321, 4.2.1)."""
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
