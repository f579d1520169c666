"""Exception classes → (category, code), by the path of a class: no client library is imported.

Only classes that say enough by themselves stand here; those that carry a status, SQLSTATE or
errno are read by `taxonomy_evidence` first. A subclass of a listed class counts as that class.
"""

from __future__ import annotations

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
    # as gRPC's ABORTED: terminal, and whoever coordinates the merge has written its letter
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
    # unknown on purpose, so that no cause is asked
    (Category.UNKNOWN, "UNKNOWN"): """
        builtins.MemoryError angzarr.errors.PoisonError angzarr.errors.ConfigurationError""",
}

#: Path of a class → what its instances are.
SOURCES = {path: said for said, paths in _SOURCES.items() for path in paths.split()}


def class_paths(error: BaseException) -> list[str]:
    """Return ``module.Class`` of the error's class and its bases, nearest first."""
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
