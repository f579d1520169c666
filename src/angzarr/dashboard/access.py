"""Access: who a caller is, by his token or his session.

Where the settings list no tokens there is one that is made at each start, as Jupyter makes one:
whoever may read what the process printed is let in, and nobody else on this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from angzarr.analysis.replay.job_limits import LOCAL
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.sessions import Session, Sessions
from angzarr.settings.dashboard import DashboardToken, Role

_BEARER: Final = "bearer "


class Caller(NamedTuple):
    """Who asks, as the audit names him, and what he may do."""

    name: str
    role: Role


def too_little(caller: Caller, needed: Role) -> Problem:
    """Return that *caller* may not do what takes the role *needed*, and what helps."""
    msg = f"this takes the role {needed}, and {caller.name} is {caller.role}"
    if caller.name == LOCAL:
        msg += ": who approves must be known by a name of his own, so set up dashboard.tokens"
    return Problem(403, "role", msg)


def new_token() -> tuple[str, str]:
    """Return a fresh token and the hash by which it is known."""
    token = secrets.token_urlsafe(32)
    return token, hash_of(token)


def start_token(*, has_approvals: bool) -> tuple[str, DashboardToken]:
    """Return a token for one run of an open dashboard, and its caller.

    Where anything waits for another person the caller is an operator: one whom nobody knows by
    name approves nothing.
    """
    token, known = new_token()
    role = Role.OPERATOR if has_approvals else Role.APPROVER
    # not validated: settings may not name a caller `local`, so that this one is nobody else
    return token, DashboardToken.model_construct(name=LOCAL, role=role, sha256=known)


def hash_of(token: str) -> str:
    """Return the SHA-256 of *token* in hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_loopback(host: str) -> bool:
    """Tell whether *host* is this machine and nobody else's."""
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
        """Whether its token was made at the start: whoever reads that is `local`."""
        return [token.name for token in self.tokens] == [LOCAL]

    def by_token(self, headers: Mapping[str, str]) -> Caller:
        """Return who shows a token in `X-API-Key` or as bearer; raises Problem 401."""
        shown = token_in(headers)
        known = self.known(shown) if shown else None
        if known is None:
            said = "that token is not known here" if shown else "show a token"
            msg = f"{said}: X-API-Key: TOKEN, or Authorization: Bearer TOKEN"
            raise Problem(401, "unauthorized", msg, headers={"WWW-Authenticate": "Bearer"})
        return Caller(known.name, known.role)

    def known(self, token: str) -> DashboardToken | None:
        """Return whose *token* it is; every hash is compared, in constant time."""
        shown = hash_of(token)
        found = None
        for one in self.tokens:
            if hmac.compare_digest(one.sha256, shown):
                found = one
        return found

    def session(self, cookie: str) -> Session | None:
        """Return the session of *cookie*, if it is one that lasts."""
        return self.sessions.read(cookie, self.tokens)

    def by_session(self, cookie: str) -> Caller | None:
        """Return whose session it is; None where it is nobody's."""
        session = self.session(cookie)
        return Caller(session.known.name, session.known.role) if session else None


def token_in(headers: Mapping[str, str]) -> str:
    """Return the token that a program shows, or an empty string."""
    return headers.get("x-api-key") or _bearer(headers.get("authorization", ""))


def _bearer(header: str) -> str:
    return header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else ""
