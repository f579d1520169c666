"""Door: lets callers in, each as often as he may; one for the API and for the pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from angzarr.adapters.memory.limit import InProcessLimits
from angzarr.dashboard.access import Access, Caller, token_in, too_little
from angzarr.dashboard.problem import Problem
from angzarr.dashboard.visits import note, place_of
from angzarr.resilience.limit import Limit, LimitScope
from angzarr.settings.dashboard import DashboardToken, Role

#: Wrong tokens from one place, see `visits.place_of`: a person mistypes, a program guesses.
_GUESSES: Final = Limit("wrong-tokens", rate=0.2, burst=10)


@dataclass(frozen=True, slots=True)
class Door:
    """Says who a request is from, or refuses it with a Problem."""

    access: Access
    #: Of each caller.
    pace: Limit
    limits: InProcessLimits

    def admit(self, request: Request, needed: Role) -> Caller:
        """Return the caller of the API; raises Problem 401, 403 or 429."""
        try:
            caller = self.access.by_token(request.headers)
        except Problem:
            if token_in(request.headers):
                self._note_guess(request)
            raise
        request.state.caller = caller
        return self.pass_on(caller, needed)

    def pass_on(self, caller: Caller, needed: Role) -> Caller:
        """Return *caller* if he may do what *needed* may, and has not come too often."""
        self._slow_down(self.pace, caller.name)
        if not caller.role.covers(needed):
            raise too_little(caller, needed)
        return caller

    def login(self, request: Request, token: str) -> DashboardToken | None:
        """Return whose *token* a person typed; None: nobody's. Raises Problem 429."""
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
