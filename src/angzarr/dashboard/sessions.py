"""Sessions: signed cookies that need no store, and tokens of forms; a key for each purpose."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from angzarr.clock import Clock
from angzarr.settings.dashboard import DashboardToken

#: How long a login lasts.
SESSION_LIFE: Final = timedelta(hours=12)


class Session(NamedTuple):
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
        """Return the cookie that lets *known* in without showing the token again."""
        ends = str(self._now() + int(SESSION_LIFE.total_seconds()))
        parts = (known.name, ends, secrets.token_urlsafe(12))
        told = _text("|".join(parts).encode())
        return f"{told}.{self._signed(b'session', known.sha256, *parts)}"

    def read(self, cookie: str, tokens: Iterable[DashboardToken]) -> Session | None:
        """Return the session of *cookie*; None: forged, over, ended, or its token was removed."""
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
        return Session(id_, known, until) if _same(right, signature) else None

    def end(self, session: Session) -> None:
        """Take *session* no more, whoever kept a copy of its cookie."""
        now = self._now()
        for id_, ends in self._ended.copy().items():
            if ends <= now:
                self._ended.pop(id_, None)
        self._ended[session.id] = session.ends

    def new_visit(self) -> str:
        """Return the cookie of somebody who has no session yet: chance, and our signature."""
        chance = secrets.token_urlsafe(24)
        return f"{chance}.{self._signed(b'visit', chance)}"

    def is_visit(self, cookie: str) -> bool:
        """Tell whether *cookie* is one of ours."""
        chance, _, signature = cookie.partition(".")
        return _same(self._signed(b"visit", chance), signature)

    def form_token(self, kind: str, whose: str) -> str:
        """Return what a form carries that no other site can know (CSRF).

        *whose* is something proved: the id of a session, or a visit's cookie.
        """
        return self._signed(b"form", kind, whose)

    def is_form_token(self, kind: str, whose: str, shown: str) -> bool:
        """Tell whether *shown* came from a form of this session or visit."""
        return _same(self.form_token(kind, whose), shown)

    def _is_time_left(self, until: int) -> bool:
        return self._now() < until <= self._now() + SESSION_LIFE.total_seconds()

    def _now(self) -> int:
        return int(self.clock.now().timestamp())

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
