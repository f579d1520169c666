"""Shell: what every request must pass before it is looked at, and what every answer carries.

It refuses unknown host names (DNS rebinding) and changes that another site's page asks for. Without
tokens it refuses requests that show a proxy; proxies need not show themselves, so only a token lets
other machines in. It reads a body whole, within a size and a time. No traceback leaves.
A caller holds few `Streams` open at a time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import timedelta
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from angzarr.dashboard.access import Refusals, address_of, is_loopback
from angzarr.dashboard.problem import Problem, crash
from angzarr.runtime.json_bounds import Bounds, TooMuch, check_json
from angzarr.runtime.text import printable

#: Headers that proxies, load balancers and content delivery networks add, for whom they speak or
#: on what way. Browsers and programs send none of them. Matched against the whole name.
_ADDED: Final = re.compile(
    r"""
      .*forwarded.*                                  # RFC 7239, X-Forwarded-For
    | via | max-forwards | cdn-loop                  # RFC 9110, RFC 8586
    | .*(client|real|remote|originating|connecting|cluster|user|proxyuser|external)[-_]?
      (ip|addr|addrs|address|host|port)              # X-Real-IP, True-Client-IP, CF-Connecting-IP
    | x-(host|scheme|proto|original-.*|rewrite-url|url-scheme|request-start|queue-start)
    | (x-)?prox(y|ied)-.*                            # httpoxy's Proxy is not one: no proxy adds it
    | (x-envoy|x-amzn|x-amz-cf|x-azure|x-appengine|x-vercel|x-varnish|x-arr|x-sigsci)-.*
    | (cf|fly|fastly|tailscale|true|x-nginx|x-haproxy|x-traefik|x-kong|x-cdn|x-akamai)-.*
    | (x-)?ssl-.* | front-end-https | surrogate-capability
    | x-varnish | x-cloud-trace-context | x-iisnode-.*
    """,
    re.VERBOSE,
)
_ONE_HOP: Final = frozenset({"1.0", "0.9"})


def is_proxied(http_version: str, headers: Iterable[str]) -> bool:
    """True if the version or the names of *headers* are those of a proxy.

    HTTP/1.0 is what nginx speaks behind a bare `proxy_pass`, and it adds no header; no browser has
    spoken it for twenty years.
    """
    return http_version in _ONE_HOP or any(_ADDED.fullmatch(name.lower()) for name in headers)


#: The largest body taken, in bytes; edited payloads are the largest.
LARGEST_BODY: Final = 1024 * 1024
#: What the JSON of a body parses to at most; each value has a byte at least.
_BODY: Final = Bounds(nodes=LARGEST_BODY, depth=100)
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
#: How long a body may take to arrive.
BODY_TIME: Final = timedelta(seconds=20)
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE: Final = frozenset({"same-origin", "none"})
#: Asked by probes under whatever address they know; tells nothing.
_ANY_HOST: Final = frozenset({"/healthz"})
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer our own forms have the origin null
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
#: An address of IPv6 in brackets, or a name; a port.
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9a-z._-]+))(?::(\d{1,5}))?")
_LAST_PORT: Final = 65_535
_log = logging.getLogger(__name__)


class _Gone(Exception):
    """Who asked is gone before the whole body came."""


class Shell:
    """Stands around the whole application. *hosts* are further names it is known by.

    With *local_only* no request is served that came through a proxy or from another machine.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str] = (),
        body_time: timedelta = BODY_TIME,
        *,
        local_only: bool = False,
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._body_time = body_time
        self._local_only = local_only
        self._refusals = Refusals()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        answer = _Answer(scope, send)
        try:
            self._check(scope, Headers(scope=scope))
            body = await self._body(receive)
            _check_levels(scope, body)
            await self._app(scope, _again(body, receive), answer.send)
        except _Gone:
            return
        except Problem as problem:
            answer.name = problem.name
            await problem.response()(scope, receive, answer.send)
        except Exception:
            _log.exception("request_failed: %s %s", scope["method"], printable(scope["path"]))
            if not answer.begun:
                await crash().response()(scope, receive, answer.send)
            elif not answer.ended:
                raise
        finally:
            self._refusals.note(answer.status, answer.name, scope)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if scope["path"] not in _ANY_HOST:
            self._check_road(scope, headers)
        if scope["method"] in _SAFE:
            return
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        foreign = origin is not None and _netloc(origin) != headers.get("host")
        if foreign or (site is not None and site not in _OWN_SITE):
            raise Problem(403, "foreign-origin", "another site's page may not change anything here")
        if (size := headers.get("content-length", "0")).isdigit() and int(size) > LARGEST_BODY:
            raise _too_large()

    def _check_road(self, scope: Scope, headers: Headers) -> None:
        """Refuse a name that is not ours, and without tokens a caller from another machine."""
        if not self._is_ours(headers.get("host", "")):
            msg = "the dashboard does not serve this host name: add it to dashboard.hosts"
            raise Problem(421, "unknown-host", msg)
        if self._local_only and (
            not is_loopback(address_of(scope)) or is_proxied(scope["http_version"], headers)
        ):
            msg = (
                "without tokens this serves its own machine alone, by HTTP/1.1 and through no"
                " proxy: configure tokens, see `angzarr dashboard token`"
            )
            raise Problem(403, "tokens-missing", msg)

    def _is_ours(self, host: str) -> bool:
        said = _HOST.fullmatch(host.lower())
        name = (said[1] or said[2]) if said else ""
        if not said or not name or int(said[3] or 0) > _LAST_PORT:
            return False
        return is_loopback(name) or name in self._hosts

    async def _body(self, receive: Receive) -> bytes:
        body = b""
        try:
            async with asyncio.timeout(self._body_time.total_seconds()):
                more = True
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _Gone
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > LARGEST_BODY:
                        raise _too_large()
        except TimeoutError:
            raise Problem(408, "slow-body", "the body took too long to arrive") from None
        return body


class _Answer:
    """The answer under way, with the headers that all of them have."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._keep = scope["path"].startswith("/static/")
        self.begun = False
        self.status = 0
        #: Which problem it is, where the shell itself refuses.
        self.name = ""
        self.ended = False

    async def send(self, message: Message) -> None:
        """Send a part of it."""
        if message["type"] == "http.response.start":
            self.begun = True
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-cache" if self._keep else "no-store")
        await self._send(message)
        self.ended = message["type"] == "http.response.body" and not message.get("more_body")


def _check_levels(scope: Scope, body: bytes) -> None:
    """Refuse JSON that is nested deeper than any request is, before a parser fills its stack."""
    if not Headers(scope=scope).get("content-type", "").lower().startswith(_FORMS):
        try:
            check_json(body, _BODY)
        except TooMuch:
            msg = f"the body is nested deeper than {_BODY.depth} levels"
            raise Problem(422, "invalid", msg) from None


def _netloc(origin: str) -> str:
    """The host and port of *origin*; empty where it cannot be read."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _too_large() -> Problem:
    msg = f"a body has at most {LARGEST_BODY} bytes"
    return Problem(413, "too-large", msg, headers={"Connection": "close"})


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read, then all that comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


#: A browser opens no more than six to one server by itself.
MOST_EACH: Final = 20

#: Of all callers: a quarter of the connections that the server takes.
MOST_OPEN: Final = 50
#: Events as they happen, or what is read as fast as it is taken.
Told: TypeAlias = AsyncIterator[str] | Iterator[bytes]
_BREATH: Final = timedelta(seconds=1)


class Stream(StreamingResponse):
    """A stream that is counted from when it is granted until it ends."""

    def __init__(
        self, told: Told, streams: Streams, caller: str, counts: int, **options: Any
    ) -> None:
        super().__init__(told, **options)
        self._streams, self._caller, self._counts = streams, caller, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the stream, then releases its place."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release(self._caller, self._counts)


class Streams:
    """Counts the open streams of each caller; all end when the server does."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.ending = False

    def held(self, caller: str, told: Told, *, counts: int = 1, **options: Any) -> Stream:
        """One more stream of *caller*, of *told*; raises Problem 429.

        It *counts* as so many streams. *options* are those of starlette's StreamingResponse.
        """
        with self._lock:
            each, all_ = self._open[caller] + counts, self._open.total() + counts
            if each > MOST_EACH or all_ > MOST_OPEN:
                msg = "too many pages are followed, or exports written, at once: end some"
                raise Problem(429, "too-many", msg, headers={"Retry-After": "30"})
            self._open[caller] = each
        return Stream(told, self, caller, counts, **options)

    def release(self, caller: str, counts: int) -> None:
        """Let one stream of *caller* go."""
        with self._lock:
            self._open[caller] -= counts
            if not self._open[caller]:
                del self._open[caller]

    async def rest(self, pause: timedelta) -> None:
        """Wait for *pause*, or until all streams end."""
        while pause > timedelta(0) and not self.ending:
            await asyncio.sleep(min(pause, _BREATH).total_seconds())
            pause -= _BREATH
