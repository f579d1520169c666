"""Poster: posts to one address, signed, within a bound, and reads nothing of the answer.

Neither its secrets nor its address, which may be one, are in anything that it says. `Webhook`
posts alerts through it.

Signatures follow the Standard Webhooks specification (standardwebhooks.com), v1: signed is
``id.timestamp.body``, and the header holds one signature for each secret, so that a receiver may
know the old one or the new one while they are changed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from angzarr.analysis.alerts.alert import Alert, body_of
from angzarr.analysis.alerts.alert_form import BodyFormat
from angzarr.clock import Clock, SystemClock
from angzarr.resilience.retry_after import from_header
from angzarr.webhooks import PostResult


def signed_headers(
    message_id: str, at: datetime, body: bytes, keys: Sequence[bytes]
) -> dict[str, str]:
    """The headers that identify and sign *body*; without keys there is no signature."""
    timestamp = str(int(at.timestamp()))
    headers = {"webhook-id": message_id, "webhook-timestamp": timestamp}
    if keys:
        content = b".".join((message_id.encode(), timestamp.encode(), body))
        headers["webhook-signature"] = " ".join(_signature(content, key) for key in keys)
    return headers


def _signature(content: bytes, key: bytes) -> str:
    digest = hmac.new(key, content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


#: To connect, and between two pieces of what is sent and read.
TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0)
#: A request in all: an answer that trickles in must not hold up what comes after it.
WHOLE: Final = timedelta(seconds=20)

#: Loggers that write down addresses: of each request, and of a redirect.
_TELLTALES: Final = ("httpx", "httpcore.http11")
#: Whether this thread, or task, is posting.
_POSTING: Final = ContextVar("angzarr_posting", default=False)

_GONE: Final = 410
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = 500


class Poster:
    """Safe to use from many threads. Redirects are not followed, certificates are verified.

    *keys* sign; *ca_certs* is a file of authorities besides those of the system. Raises OSError
    where that cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        keys: Sequence[bytes] = (),
        ca_certs: str | None = None,
        clock: Clock | None = None,
        whole: timedelta = WHOLE,
    ) -> None:
        self._url = url
        self._keys = tuple(keys)
        self._clock = clock or SystemClock()
        self._whole = whole
        _silence()
        self._client = httpx.Client(
            timeout=TIMEOUT,
            follow_redirects=False,
            verify=_context(ca_certs),
            limits=httpx.Limits(max_keepalive_connections=0),  # messages are rare
            headers={"user-agent": "angzarr", "accept": "*/*"},
        )

    @property
    def place(self) -> str:
        """Scheme, host and port; path and query of an address are often its secret."""
        parts = urlsplit(self._url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"

    def post(self, message_id: str, body: bytes) -> PostResult:
        """Post *body*, JSON, once under *message_id*; it raises nothing."""
        began = time.monotonic()
        try:
            answer = self._answer(self._send(message_id, body))
        except httpx.HTTPError as error:
            answer = PostResult(problem=_problem(error), ill=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the message is kept
            answer = PostResult(problem=f"{type(error).__name__} while sending", ill=True)
        took = timedelta(seconds=time.monotonic() - began)
        return _timed(answer, took, self._whole)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _send(self, message_id: str, body: bytes) -> httpx.Response:
        headers = signed_headers(message_id, self._clock.now(), body, self._keys)
        headers["content-type"] = "application/json"
        with (
            _silently(),
            _bounded(self._whole) as trace,
            self._client.stream(
                "POST", self._url, content=body, headers=headers, extensions={"trace": trace}
            ) as response,
        ):
            return response  # its body is not read: the connection is closed instead

    def _answer(self, response: httpx.Response) -> PostResult:
        code = response.status_code
        if response.is_success:
            return PostResult(arrived=True, status=code)
        problem = f"it answered {code}"
        if response.is_redirect:
            problem += ", a redirect, which is not followed: set the address it leads to"
        return PostResult(
            problem=problem,
            ill=code >= _SERVER_ERRORS or code == _TOO_MANY,
            gone=code == _GONE,
            retry_after=from_header(response.headers.get("retry-after"), self._clock.now()),
            status=code,
        )


@cache
def _context(ca_certs: str | None) -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    if ca_certs:
        context.load_verify_locations(cafile=ca_certs)
    return context


def _is_spoken(_record: logging.LogRecord) -> bool:
    return not _POSTING.get()


def _silence() -> None:
    """Let the client's loggers say nothing of what is posted here; a filter is added but once."""
    for name in _TELLTALES:
        logging.getLogger(name).addFilter(_is_spoken)


@contextmanager
def _silently() -> Iterator[None]:
    posting = _POSTING.set(True)
    try:
        yield
    finally:
        _POSTING.reset(posting)


def _problem(error: httpx.HTTPError) -> str:
    """What went wrong, by its kind and cause; httpx's own texts may show the address."""
    cause: BaseException = error
    while cause.__cause__ is not None or cause.__context__ is not None:
        cause = cause.__cause__ or cause.__context__ or cause
    reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else ""
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = f"its certificate is not trusted: {cause.verify_message}"
    return f"{type(error).__name__}{': ' if reason else ''}{reason}"


def _timed(answer: PostResult, took: timedelta, whole: timedelta) -> PostResult:
    if took >= whole and not answer.arrived:
        problem = f"no whole answer within {whole.total_seconds():g} s"
        return replace(answer, problem=problem, took=took)
    return replace(answer, took=took)


@contextmanager
def _bounded(whole: timedelta) -> Iterator[Callable[[str, dict[str, Any]], None]]:
    """Give a tracer by which a connection is known, and shut it down once *whole* is over.

    httpx bounds each step, not all of them together.
    """
    streams: list[Any] = []
    over = threading.Event()

    def trace(event: str, info: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            streams.append(info["return_value"])
            if over.is_set():
                shut()

    def shut() -> None:
        over.set()
        for stream in streams[-1:]:
            _shut(stream.get_extra_info("socket"))

    timer = threading.Timer(whole.total_seconds(), shut)
    timer.daemon = True
    timer.start()
    try:
        yield trace
    finally:
        timer.cancel()


def _shut(sock: socket.socket | None) -> None:
    try:
        if sock is not None:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:  # it was closed meanwhile
        return


class Webhook:
    """Fulfils `Sink`; *options* are those of its `Poster`."""

    def __init__(
        self, name: str, url: str, *, form: BodyFormat = BodyFormat.GENERIC, **options: Any
    ) -> None:
        self.name = name
        self._form = form
        self._poster = Poster(url, **options)

    @property
    def place(self) -> str:
        """Scheme, host and port; path and query of an address are often its secret."""
        return self._poster.place

    def send(self, alert: Alert) -> PostResult:
        """Post *alert* once."""
        try:
            body = body_of(alert, self._form)
        except Exception as error:  # noqa: BLE001 - one odd alert must not hold up the others
            return PostResult(problem=f"{type(error).__name__} while writing it", ill=True)
        return self._poster.post(alert.id, body)

    def close(self) -> None:
        """Close the connections."""
        self._poster.close()
