"""Access: who a caller is, by his token or his session. Without tokens: this machine alone."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from angzarr.clock import Clock
from angzarr.dashboard.problem import Problem
from angzarr.dashboard_section import DashboardSettings, DashboardToken, Role

#: How long a login lasts.
SESSION_LIFE: Final = timedelta(hours=12)
#: Who acts where no tokens are configured.
LOCAL: Final = "local"
_BEARER: Final = "bearer "


class Caller(NamedTuple):
    """Who asks, as the audit names him, and what he may do."""

    name: str
    role: Role


def new_token() -> tuple[str, str]:
    """Return a fresh token and the hash by which it is known."""
    token = secrets.token_urlsafe(32)
    return token, hash_of(token)


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
    """Knows callers by what they show. `key` signs sessions."""

    settings: DashboardSettings
    clock: Clock
    key: bytes

    @property
    def is_open(self) -> bool:
        """Whether there are no tokens, so that whoever reaches it may do everything."""
        return not self.settings.tokens

    def by_token(self, headers: Mapping[str, str]) -> Caller:
        """Return who shows a token in `X-API-Key` or as bearer; raises Problem 401."""
        if self.is_open:
            return Caller(LOCAL, Role.APPROVER)
        shown = headers.get("x-api-key") or _bearer(headers.get("authorization", ""))
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
        for one in self.settings.tokens:
            if hmac.compare_digest(one.sha256, shown):
                found = one
        return found

    def session_for(self, known: DashboardToken) -> str:
        """Return the cookie that lets *known* in without showing the token again."""
        ends = int((self.clock.now() + SESSION_LIFE).timestamp())
        told = f"{known.name}|{ends}|{secrets.token_urlsafe(12)}"
        return f"{_text(told.encode())}.{self._signed(told, known.sha256)}"

    def by_session(self, cookie: str) -> Caller | None:
        """Return whose session it is; None where it is forged, over, or its token was removed."""
        if self.is_open:
            return Caller(LOCAL, Role.APPROVER)
        told, _, signature = cookie.partition(".")
        try:
            text = base64.urlsafe_b64decode(told.encode()).decode()
            name, ends, _ = text.split("|")
            over = int(ends) <= self.clock.now().timestamp()
        except (ValueError, binascii.Error):
            return None
        known = next((one for one in self.settings.tokens if one.name == name), None)
        if known is None or over:
            return None
        right = self._signed(text, known.sha256)
        return Caller(name, known.role) if _same(right, signature) else None

    def form_token(self, cookie: str) -> str:
        """Return what a form of this session carries, which no other site can know (CSRF)."""
        return self._signed("form", "" if self.is_open else cookie)

    def is_form_token(self, cookie: str, shown: str) -> bool:
        """Tell whether *shown* came from a form of this session."""
        return _same(self.form_token(cookie), shown)

    def _signed(self, text: str, whose: str) -> str:
        signed = hmac.new(self.key, f"{whose}|{text}".encode(), hashlib.sha256)
        return _text(signed.digest())


def _bearer(header: str) -> str:
    return header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else ""


def _same(right: str, shown: str) -> bool:
    return hmac.compare_digest(right.encode(), shown.encode("utf-8", "surrogatepass"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()
