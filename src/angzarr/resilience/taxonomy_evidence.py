"""What one exception says about itself: status, code, SQLSTATE, errno, then its class.

Pure reading of a foreign object: `evidence` never raises, does no I/O and never looks
at the words of a text, but for one fixed sentence of urllib3, the only place a status is kept.
"""

from __future__ import annotations

import errno
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from angzarr.errors import CircuitOpenError, RetryLater, WebhookError
from angzarr.resilience import retry_after, taxonomy_codes
from angzarr.resilience.category import Category, Classification
from angzarr.resilience.taxonomy_codes import CONNECTION, SOURCES, class_paths, of_reply

#: A 409 of this problem type means: again after this span, with the same key (spec D2).
IDEMPOTENCY_CONFLICT = "idempotency-conflict"
IDEMPOTENCY_WAIT = timedelta(seconds=2)

_Reader: TypeAlias = Callable[[BaseException], Classification | None]

_NETWORK = (socket.gaierror, ssl.SSLError, ConnectionError, TimeoutError)

#: How far wrapped errors are followed.
DEPTH = 8

_TOO_MANY = re.compile(r"too many (\d{3}) error responses")  # urllib3 ResponseError.SPECIFIC_ERROR


def evidence(error: BaseException, now: datetime) -> Classification | None:
    """What *error* alone says, or None; *now* turns a date to wait for into a span."""
    dated: tuple[_Reader, ...] = (partial(_aws, now=now), partial(_http, now=now))
    readers = (*_BY_CODE, *dated, *_BY_CLASS)
    return next(filter(None, (_read(reader, error) for reader in readers)), None)


def _read(reader: _Reader, error: BaseException) -> Classification | None:
    try:
        return reader(error)
    except Exception:  # noqa: BLE001 - an odd foreign object must not fail the delivery
        return None


def wrapped(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that *error* reports: kept in an attribute, or named by ``from``."""
    kwargs = _attribute(error, "kwargs")
    args = _attribute(error, "args") or (None,)
    candidates = (
        _attribute(error, "orig"),  # SQLAlchemy
        _attribute(error, "reason"),  # urllib, urllib3
        kwargs.get("error") if isinstance(kwargs, dict) else None,  # botocore
        args[0],  # requests
        error.__cause__,
    )
    return (inner for inner in candidates if isinstance(inner, BaseException))


def _ours(error: BaseException) -> Classification | None:
    match error:
        case CircuitOpenError():
            return _said(error, Category.EXTERNAL, "CIRCUIT_OPEN", error.retry_after)
        case RetryLater():
            return _said(error, Category.TRANSIENT, "RETRY_LATER", error.delay)
        case WebhookError():
            category = Category.EXTERNAL if error.ill else Category.CLIENT
            code = f"HTTP_{error.status}" if error.status else "NO_ANSWER"
            return _said(error, category, code, error.retry_after)
        case _:
            return None


def _http(error: BaseException, now: datetime) -> Classification | None:
    response = _attribute(error, "response")
    status = _attribute(error if response is None else response, "status_code")
    if "urllib.error.HTTPError" in class_paths(error):
        response, status = error, _attribute(error, "code")
    if not isinstance(status, int):
        response, status = error, _status_elsewhere(error)
    if not isinstance(status, int) or not 100 <= status <= 599:  # noqa: PLR2004 - RFC 9110, 15
        return None
    return _status(error, status, response, now)


def _status_elsewhere(error: BaseException) -> int | None:
    """The status of an error that keeps it under another name, if it tells of a failure.

    `status`: aiohttp, whose own parser says 400 of invalid HTTP; `http_status`: clients of
    payment services; `errcode`: xmlrpc.
    """
    status = _attribute(error, "http_status")
    paths = class_paths(error)
    if "aiohttp.client_exceptions.ClientResponseError" in paths and not error.__cause__:
        status = _attribute(error, "status")
    if "xmlrpc.client.ProtocolError" in paths:
        status = _attribute(error, "errcode")
    failed = isinstance(status, int) and 400 <= status <= 599  # noqa: PLR2004 - RFC 9110, 15
    return status if failed else None


def _status(error: BaseException, status: int, response: Any, now: datetime) -> Classification:
    wish = retry_after.from_header(_header(response, "retry-after"), now)
    if status == 409 and _problem_type(response) == IDEMPOTENCY_CONFLICT:  # noqa: PLR2004
        least = max(wish or IDEMPOTENCY_WAIT, IDEMPOTENCY_WAIT)
        return _said(error, Category.TRANSIENT, "IDEMPOTENCY_CONFLICT", least)
    return _said(error, taxonomy_codes.of_http(status), f"HTTP_{status}", wish)


def _header(response: Any, name: str) -> Any:
    get = _attribute(_attribute(response, "headers"), "get")
    return get(name) if callable(get) else None


def _problem_type(response: Any) -> str:
    """The last part of an RFC 9457 problem's ``type``; a body not yet read stays unread.

    `_content` is where httpx and requests both keep a body they have read; their public
    properties would fetch it from the network.
    """
    body = _attribute(response, "_content")
    try:
        problem = json.loads(body) if isinstance(body, bytes) else None
    except ValueError:
        return ""
    kind = problem.get("type") if isinstance(problem, dict) else None
    return re.split(r"[/:#]", kind.rstrip("/"))[-1] if isinstance(kind, str) else ""


def _retries_used_up(error: BaseException) -> Classification | None:
    """Read the status from urllib3's ``MaxRetryError``, which requests wraps once more."""
    for inner in _chain(error):
        if "urllib3.exceptions.ResponseError" in class_paths(inner):
            found = _TOO_MANY.fullmatch(str(inner))
            status = int(found[1]) if found else 0
            return _said(error, taxonomy_codes.of_http(status), f"HTTP_{status}") if found else None
    return None


def _aws(error: BaseException, now: datetime) -> Classification | None:
    if "botocore.exceptions.ClientError" not in class_paths(error):
        return None
    response = _attribute(error, "response") or {}
    code = str(response.get("Error", {}).get("Code", ""))
    metadata = response.get("ResponseMetadata", {})
    status = metadata.get("HTTPStatusCode", 0)
    wish = retry_after.from_header(metadata.get("HTTPHeaders", {}).get("retry-after"), now)
    category = taxonomy_codes.AWS.get(code) or taxonomy_codes.of_http(status)
    return _said(error, category, code or f"HTTP_{status}", wish)


def _grpc(error: BaseException) -> Classification | None:
    if "grpc.RpcError" not in class_paths(error):
        return None
    name = str(_attribute(_called(error, "code"), "name"))
    category = taxonomy_codes.GRPC.get(name, Category.UNKNOWN)
    wish = retry_after.from_grpc_metadata(_called(error, "trailing_metadata"))
    return _said(error, category, f"GRPC_{name}", wish)


def _reply(error: BaseException) -> Classification | None:
    """Read the code of a reply that is kept in the error's arguments: MySQL, FTP, mail boxes."""
    for face in _faces(error):
        if found := of_reply(class_paths(face), _attribute(face, "args") or ()):
            return _said(face, *found)
    return None


def _sqlstate(error: BaseException) -> Classification | None:
    """Read PostgreSQL's state: ``sqlstate`` (psycopg, asyncpg) or ``pgcode`` (psycopg2)."""
    for face in _faces(error):
        state = _attribute(face, "sqlstate") or _attribute(face, "pgcode")
        if isinstance(state, str) and len(state) == 5:  # noqa: PLR2004 - by the SQL standard
            return _said(face, taxonomy_codes.of_sqlstate(state), f"SQLSTATE_{state}")
    return None


def _sqlite(error: BaseException) -> Classification | None:
    for face in _faces(error):
        code = _attribute(face, "sqlite_errorcode")
        if isinstance(code, int):
            name = str(_attribute(face, "sqlite_errorname") or f"SQLITE_{code}")
            return _said(face, taxonomy_codes.of_sqlite(code), name)
    return None


def _redis(error: BaseException) -> Classification | None:
    if "redis.exceptions.ResponseError" not in class_paths(error):
        return None
    code = _attribute(error, "status_code")  # redis-py 8 keeps the reply's code here
    word = code if isinstance(code, str) and code else str(error).partition(" ")[0]
    category = taxonomy_codes.REDIS.get(word)
    return _said(error, category, f"REDIS_{word}") if category else None


def _kafka(error: BaseException) -> Classification | None:
    if "cimpl.KafkaException" not in class_paths(error):
        return None
    inner = (_attribute(error, "args") or (None,))[0]
    name = str(_called(inner, "name") or "UNKNOWN")
    passes = Category.TRANSIENT if _called(inner, "retriable") else Category.UNKNOWN
    category = taxonomy_codes.KAFKA.get(name, passes)
    return _said(error, category, f"KAFKA_{name.lstrip('_')}")


def _smtp(error: BaseException) -> Classification | None:
    """Read the reply's code; of refused recipients the one that may be taken later."""
    if "smtplib.SMTPException" not in class_paths(error):
        return None
    refused = _attribute(error, "recipients") or {}
    codes = [reply[0] for reply in refused.values()] or [_attribute(error, "smtp_code")]
    known = [code for code in codes if isinstance(code, int)]
    return _said(error, taxonomy_codes.of_smtp(min(known)), f"SMTP_{min(known)}") if known else None


def _system(error: BaseException) -> Classification | None:
    """Read errno; `ssl` and name look-ups number their errors by other tables."""
    if isinstance(error, socket.gaierror):
        return _said(error, *taxonomy_codes.of_resolution(error.errno))
    if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
        return None
    category, name = taxonomy_codes.of_errno(error.errno or 0)
    return None if category is Category.UNKNOWN else _said(error, category, name)


def _unjudged(error: BaseException) -> Classification | None:
    """Name an errno that says nothing of retries: the reader of the letter may know better."""
    if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
        return None
    number = error.errno or 0
    return _said(error, *taxonomy_codes.of_errno(number)) if number in errno.errorcode else None


def _class(error: BaseException) -> Classification | None:
    """Read the class; a lost connection is as precise as the error it was made from."""
    known = _listed(error)
    if known is None or known.code != CONNECTION:
        return known
    return next(filter(None, (_precise(inner) for inner in _chain(error))), known)


def _precise(error: BaseException) -> Classification | None:
    found = _system(error) or _listed(error)
    return found if found and found.code != CONNECTION else None


def _listed(error: BaseException) -> Classification | None:
    said = next((SOURCES[path] for path in class_paths(error) if path in SOURCES), None)
    return _said(error, *said) if said else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield *error* and what it wraps, outermost first, first branch only."""
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and len(seen) < DEPTH and not any(at is one for one in seen):
        yield at
        seen.append(at)
        at = next(wrapped(at), None) or _network_context(at)


def _network_context(error: BaseException) -> BaseException | None:
    """The network error that a library was handling when it raised its own (redis-py).

    Only such: any other may be older than the call and have nothing to do with it.
    """
    context = None if error.__suppress_context__ else error.__context__
    return context if isinstance(context, _NETWORK) else None


def _faces(error: BaseException) -> Iterator[BaseException]:
    """Yield the database driver's error that SQLAlchemy wraps, then *error* itself."""
    orig = _attribute(error, "orig")
    if isinstance(orig, BaseException):
        yield orig
    yield error


def _said(
    error: BaseException, category: Category, code: str, wish: timedelta | None = None
) -> Classification:
    reason = f"{class_paths(error)[0]}: {code}"
    return Classification(category=category, code=code, reason=reason, retry_after=wish)


def _attribute(thing: Any, name: str) -> Any:
    """An attribute or None: properties of foreign errors may raise anything."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - the other attributes may still say something
        return None


def _called(thing: Any, name: str) -> Any:
    method = _attribute(thing, name)
    return method() if callable(method) else None


_BY_CODE: tuple[_Reader, ...] = (_ours, _grpc, _redis, _kafka, _reply, _sqlstate, _sqlite, _smtp)
_BY_CLASS: tuple[_Reader, ...] = (_retries_used_up, _system, _class, _unjudged)
