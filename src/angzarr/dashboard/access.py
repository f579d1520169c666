"""Access: who a caller is, by token or session, and how often a caller may ask.

Where the settings list no tokens, one is made at each start, as Jupyter does: only a person who can
read what the process printed gets in. A session is a signed cookie that needs no store; each
purpose (session, visit, form) has its own key. The log has a line for each login, wrong token and
refusal, and for each time that encrypted data are shown; never a token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.types import Scope

from angzarr.adapters.memory.limits import InProcessLimits
from angzarr.analysis.replay.job_limits import LOCAL
from angzarr.clock import Clock
from angzarr.dashboard.problem import Problem
from angzarr.resilience.limit import Limit, LimitScope
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.text import printable
from angzarr.settings.dashboard import DashboardToken, Role

#: How long a login lasts.
SESSION_LIFE: Final = timedelta(hours=12)


class LoginSession(NamedTuple):
    """A session that was proved."""

    id: str
    known: DashboardToken
    #: Seconds since 1970.
    ends: int


@dataclass(frozen=True, slots=True)
class Sessions:
    """Makes and reads cookies. No signature of one purpose is worth anything for another.

    Ended sessions are remembered by this process alone, until they would be over anyhow.
    """

    key: bytes = field(repr=False)
    clock: Clock
    _ended: dict[str, int] = field(default_factory=dict, repr=False)

    def begin(self, known: DashboardToken) -> str:
        """The cookie that lets *known* in without showing the token again."""
        ends = str(self._now() + int(SESSION_LIFE.total_seconds()))
        parts = (known.name, ends, secrets.token_urlsafe(12))
        told = _text("|".join(parts).encode())
        return f"{told}.{self._signed(b'session', known.sha256, *parts)}"

    def read(self, cookie: str, tokens: Iterable[DashboardToken]) -> LoginSession | None:
        """The session of *cookie*; None: forged, over, ended, or its token was removed."""
        told, _, signature = cookie.partition(".")
        try:
            name, ends, id_ = base64.urlsafe_b64decode(told.encode()).decode().split("|")
            until = int(ends)
        except (ValueError, binascii.Error):
            return None
        known = next((one for one in tokens if one.name == name), None)
        if known is None or not self._is_time_left(until) or id_ in self._ended:
            return None
        right = self._signed(b"session", known.sha256, name, ends, id_)
        return LoginSession(id_, known, until) if _same(right, signature) else None

    def end(self, session: LoginSession) -> None:
        """Refuse *session* from now on, also to copies of its cookie."""
        now = self._now()
        for id_, ends in self._ended.copy().items():
            if ends <= now:
                self._ended.pop(id_, None)
        self._ended[session.id] = session.ends

    def new_visit(self) -> str:
        """The cookie of somebody who has no session yet: chance, and our signature."""
        chance = secrets.token_urlsafe(24)
        return f"{chance}.{self._signed(b'visit', chance)}"

    def is_visit(self, cookie: str) -> bool:
        """True if *cookie* is one of ours."""
        chance, _, signature = cookie.partition(".")
        return _same(self._signed(b"visit", chance), signature)

    def form_token(self, kind: str, whose: str) -> str:
        """The secret of a form, which no other site can know (CSRF).

        *whose* is something proved: the id of a session, or a visit's cookie.
        """
        return self._signed(b"form", kind, whose)

    def is_form_token(self, kind: str, whose: str, shown: str) -> bool:
        """True if *shown* came from a form of this session or visit."""
        return _same(self.form_token(kind, whose), shown)

    def _is_time_left(self, until: int) -> bool:
        return self._now() < until <= self._now() + SESSION_LIFE.total_seconds()

    def _now(self) -> int:
        return int(self.clock.now().timestamp())

    # Ours and not itsdangerous: its signers read the wall clock themselves and sign one text, while
    # these parts include the hash of a token that the cookie must not hold.
    def _signed(self, purpose: bytes, *parts: str) -> str:
        """Sign *parts*, each with its length before it, by the key of *purpose*."""
        key = hmac.digest(self.key, b"angzarr dashboard " + purpose, "sha256")
        signed = hmac.new(key, digestmod=hashlib.sha256)
        for part in parts:
            raw = part.encode("utf-8", "surrogatepass")
            signed.update(len(raw).to_bytes(8, "big") + raw)
        return _text(signed.digest())


def _same(right: str, shown: str) -> bool:
    return hmac.compare_digest(right.encode(), shown.encode("utf-8", "surrogatepass"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


class Caller(NamedTuple):
    """Who asks, as the audit names him, and what he may do."""

    name: str
    role: Role


def too_little(caller: Caller, needed: Role) -> Problem:
    """The problem that *caller* lacks the role *needed*, and what helps."""
    msg = f"this takes the role {needed}, and {caller.name} is {caller.role}"
    if caller.name == LOCAL:
        msg += ": who approves must be known by a name of his own, so set up dashboard.tokens"
    return Problem(403, "role", msg)


def new_token() -> tuple[str, str]:
    """A fresh token and the hash by which it is known."""
    token = secrets.token_urlsafe(32)
    return token, hash_of(token)


def start_token(*, has_approvals: bool) -> tuple[str, DashboardToken]:
    """A token for one run of an open dashboard, and its caller.

    Where anything waits for another person the caller is an operator: a person without a name
    approves nothing.
    """
    token, known = new_token()
    role = Role.OPERATOR if has_approvals else Role.APPROVER
    # not validated: settings may not name a caller `local`, so that no other caller is
    return token, DashboardToken.model_construct(name=LOCAL, role=role, sha256=known)


def hash_of(token: str) -> str:
    """The SHA-256 of *token* in hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_loopback(host: str) -> bool:
    """True if *host* is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Access:
    """Knows callers by what they show."""

    tokens: Sequence[DashboardToken]
    sessions: Sessions = field(repr=False)

    @property
    def is_open(self) -> bool:
        """Whether its token was made at the start: a person who reads that is `local`."""
        return [token.name for token in self.tokens] == [LOCAL]

    def by_token(self, headers: Mapping[str, str]) -> Caller:
        """The caller who shows a token in `X-API-Key` or as bearer; raises Problem 401."""
        shown = token_in(headers)
        known = self.known(shown) if shown else None
        if known is None:
            said = "that token is not known here" if shown else "show a token"
            msg = f"{said}: X-API-Key: TOKEN, or Authorization: Bearer TOKEN"
            raise Problem(401, "unauthorized", msg, headers={"WWW-Authenticate": "Bearer"})
        return Caller(known.name, known.role)

    def known(self, token: str) -> DashboardToken | None:
        """The owner of *token*, if there is one; compares every hash, in constant time."""
        shown = hash_of(token)
        found = None
        for one in self.tokens:
            if hmac.compare_digest(one.sha256, shown):
                found = one
        return found

    def session(self, cookie: str) -> LoginSession | None:
        """The session of *cookie*, if it is one that lasts."""
        return self.sessions.read(cookie, self.tokens)

    def by_session(self, cookie: str) -> Caller | None:
        """The caller of the session of *cookie*, if it is one that lasts."""
        session = self.session(cookie)
        return Caller(session.known.name, session.known.role) if session else None


def token_in(headers: Mapping[str, str]) -> str:
    """The token that a program shows, or an empty string."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else "")


#: Wrong tokens from one place, see `place_of`: a person mistypes, a program guesses.
_GUESSES: Final = Limit("wrong-tokens", rate=0.2, burst=10)


@dataclass(frozen=True, slots=True)
class Auth:
    """Says who a request is from, or refuses it with a Problem."""

    access: Access
    #: Of each caller.
    pace: Limit
    limits: InProcessLimits

    def admit(self, request: Request, needed: Role) -> Caller:
        """The caller of the API; raises Problem 401, 403 or 429."""
        try:
            caller = self.access.by_token(request.headers)
        except Problem:
            if token_in(request.headers):
                self._note_guess(request)
            raise
        request.state.caller = caller
        return self.pass_on(caller, needed)

    def pass_on(self, caller: Caller, needed: Role) -> Caller:
        """Lets *caller* pass; raises Problem 403 for its role, 429 for its pace."""
        self._slow_down(self.pace, caller.name)
        if not caller.role.covers(needed):
            raise too_little(caller, needed)
        return caller

    def login(self, request: Request, token: str) -> DashboardToken | None:
        """The owner of the *token* that a person typed, if there is one; raises Problem 429."""
        known = self.access.known(token)
        if known is None:
            self._note_guess(request)
        else:
            self._slow_down(self.pace, known.name)
            note("login", request.scope, known.name)
        return known

    def logout(self, request: Request, cookie: str) -> None:
        """End the session of *cookie*, if it is one."""
        session = self.access.session(cookie)
        if session is not None:
            self.access.sessions.end(session)
            note("logout", request.scope, session.known.name)

    def _note_guess(self, request: Request) -> None:
        self._slow_down(_GUESSES, place_of(request.scope))
        note("wrong-token", request.scope)

    def _slow_down(self, limit: Limit, whose: str) -> None:
        exceeded = self.limits.take([LimitScope(limit, whose)], "")
        if exceeded is not None:
            seconds = math.ceil(exceeded.wait.least.total_seconds())
            msg = f"too many requests: ask again in {seconds} s"
            raise Problem(429, "too-many", msg, headers={"Retry-After": str(seconds)})


_LONGEST: Final = 200
#: Places among which strangers are counted, however many addresses they have.
PLACES: Final = 4096
#: Bits of an address of IPv6 that are one customer's; he has all addresses behind them.
_NETWORK: Final = 64
#: That data which came encrypted were shown.
OPENED: Final = "opened"
_WELCOME: Final = frozenset({"login", "logout", OPENED})
#: A name of its own, so that people can keep these lines apart.
_log = logging.getLogger(f"{__name__}_log")


def note(outcome: str, scope: Scope, caller: str = "") -> None:
    """Write what became of a request: outcome, caller, address, method and path."""
    told = {
        "outcome": outcome,
        "caller": caller or "-",
        "address": address_of(scope) or "-",
        "method": scope["method"],
        "path": scope["path"],
    }
    fields = {name: _shown(value) for name, value in told.items()}
    level = logging.INFO if outcome in _WELCOME else logging.WARNING
    _log.log(
        level, "outcome=%s caller=%s address=%s method=%s path=%s", *fields.values(),
        extra={f"visit_{name}": value for name, value in fields.items()},
    )  # fmt: skip


class Refusals:
    """Notes answers that refuse. What a stranger can cause without end is told once a minute."""

    def __init__(self) -> None:
        self._throttle = LogThrottle()

    def note(self, status: int, name: str, scope: Scope) -> None:
        """Write a 403 or a 429; *name* says which, where it is known."""
        if status not in {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}:
            return
        caller = getattr(scope.get("state", {}).get("caller"), "name", "")
        outcome = name or HTTPStatus(status).phrase.lower().replace(" ", "-")
        bounded = caller and status == HTTPStatus.FORBIDDEN
        if bounded or self._throttle.now(f"{outcome} {caller} {place_of(scope)}"):
            note(outcome, scope, caller)


def address_of(scope: Scope) -> str:
    """The address that a request came from, or an empty string."""
    client = scope.get("client")
    return client[0] if client else ""


def place_of(scope: Scope) -> str:
    """The place by which a stranger is counted: one of a few, chosen by the network.

    Two that meet there share a count, by chance and another one in each process.
    """
    address = address_of(scope)
    with suppress(ValueError):
        ip = ipaddress.ip_address(address.partition("%")[0])
        if ip.version == 6:  # noqa: PLR2004 - the version
            mapped = ip.ipv4_mapped
            address = str(mapped or ipaddress.IPv6Network((ip, _NETWORK), strict=False))
    return str(hash(address) % PLACES)


def _shown(value: str) -> str:
    """*value* as one word of a line, which cannot begin a second line or field."""
    return printable(value)[:_LONGEST].replace(" ", "\ufffd").replace("=", "\ufffd")
