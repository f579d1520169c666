"""Problem: an error as RFC 9457 says it. It tells what to do, never how the inside looks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from angzarr.analysis.ledger.export import json_text
from angzarr.errors import (
    AngzarrError,
    BrokerUnavailable,
    ConfigurationError,
    LedgerUnavailable,
    PayloadsBusy,
    PayloadStoreUnavailable,
    StoreUnavailable,
    Unavailable,
)
from angzarr.runtime.failures import LogThrottle
from angzarr.runtime.text import printable

MEDIA_TYPE: Final = "application/problem+json"
_URN: Final = "urn:angzarr:problem:"
#: Seconds after which a server that is away may be back.
_AWAY: Final = "5"
_UNPROCESSABLE: Final = 422
#: Faults of one request that are told, and characters of a name that its sender made up.
_TOLD: Final = 20
_LONGEST: Final = 200
#: What people call the server that does not answer.
_SERVERS: Final[tuple[tuple[type[Unavailable], str], ...]] = (
    (LedgerUnavailable, "the ledger"),
    (BrokerUnavailable, "the broker"),
    (StoreUnavailable, "the flow store"),
    (PayloadStoreUnavailable, "the store of payloads"),
)
_log = logging.getLogger(__name__)
_throttle = LogThrottle()


class Problem(Exception):
    """Why a request was refused: a status, a name for programs and a sentence for people."""

    def __init__(
        self, status: int, name: str, detail: str, *, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.name = name
        self.detail = detail
        self.headers = headers or {}
        #: What is wrong with which part of the request.
        self.errors: list[dict[str, Any]] = []

    def json(self) -> dict[str, Any]:
        """The problem as a JSON object."""
        told: dict[str, Any] = {
            "type": f"{_URN}{self.name}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return told | ({"errors": self.errors} if self.errors else {})

    def response(self) -> Response:
        """The problem as the answer to a request."""
        return Response(json_text(self.json()), self.status, self.headers, MEDIA_TYPE)


def not_found(what: str) -> Problem:
    """The problem that there is no such thing."""
    return Problem(404, "not-found", f"there is no such {what}")


def crash() -> Problem:
    """The problem that callers see of a bug of ours."""
    return Problem(500, "internal", "this is a fault of the dashboard; its log says more")


def problem_of(error: Exception) -> Problem | None:
    """The problem that *error* is for its caller, or None where it is a bug of ours."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _of_http(error)
        case AngzarrError():
            return _of_ours(error)
    return None


def away(error: Unavailable, what: str) -> Problem:
    """The problem that *what* does not answer; the log says why, once a minute."""
    _tell_once(error, what)
    msg = f"{what} is away; the log of the dashboard says why"
    return Problem(503, "unavailable", msg, headers={"Retry-After": _AWAY})


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Ask *what* in a block: where it does not answer, Problem 503 names it."""
    try:
        yield
    except Unavailable as error:
        raise away(error, what) from error


def _of_ours(error: AngzarrError) -> Problem:
    if isinstance(error, PayloadsBusy):
        return Problem(503, "busy", str(error), headers={"Retry-After": _AWAY})
    if isinstance(error, Unavailable):
        what = next((name for kind, name in _SERVERS if isinstance(error, kind)), "a server")
        return away(error, what)
    name = "not-set-up" if isinstance(error, ConfigurationError) else "refused"
    return Problem(409, name, str(error))


def _tell_once(error: Unavailable, what: str) -> None:
    """Write why a server is away, once a minute for each kind of cause."""
    if _throttle.now(f"{type(error).__name__} {type(error.__cause__).__name__}"):
        cause = type(error.__cause__).__name__ if error.__cause__ else "no cause named"
        _log.error("server_away: %s is away: %s (%s)", what, printable(error), cause)


def _of_http(error: HTTPException) -> Problem:
    name = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    return Problem(error.status_code, name, str(error.detail), headers=dict(error.headers or {}))


def _invalid(error: RequestValidationError) -> Problem:
    """Say what is wrong and where, without repeating what was sent."""
    problem = Problem(_UNPROCESSABLE, "invalid", "the request does not fit its description")
    problem.errors = [
        {
            "where": [str(part)[:_LONGEST] for part in one["loc"]],
            "what": one["msg"].removeprefix("Value error, "),
        }
        for one in error.errors()[:_TOLD]
    ]
    return problem
