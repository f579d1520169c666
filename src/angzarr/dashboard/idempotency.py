"""Idempotency: a write with an `Idempotency-Key` is done once and answered the same each time (A5).

The entries that it acts on are chosen once, too: a repeated request acts on the same ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.idempotent_requests import (
    WRITE_LEASE,
    Found,
    RecordedAnswer,
    RequestBegun,
    RequestDiffers,
    RequestRunning,
    WriteKey,
    Writes,
)
from angzarr.dashboard.problem import Problem, problem_of
from angzarr.errors import LedgerUnavailable


class ChosenEntry(NamedTuple):
    """An entry, and its revision when it was chosen."""

    entry_id: str
    revision: int


@dataclass(slots=True)
class Choice:
    """What a request acts on; `keep` remembers it before anything is done."""

    keep: Callable[[bytes], bool] = lambda _: True
    kept: tuple[ChosenEntry, ...] | None = None

    @classmethod
    def of(cls, writes: Writes, write: WriteKey, token: str, kept: bytes | None) -> Choice:
        """The choice of the request that *token* works on."""
        seen = None if kept is None else tuple(ChosenEntry(*one) for one in json.loads(kept))
        return cls(lambda choice: writes.choose(write, token, choice), seen)

    def make(self, entries: Sequence[Entry]) -> None:
        """Remember *entries*; raises Problem 409 where another one works on the request."""
        self.kept = tuple(ChosenEntry(one.id, one.revision) for one in entries)
        if not self.keep(json.dumps(self.kept).encode()):
            msg = "another one works on this request by now"
            raise Problem(409, "still-running", msg, headers={"Retry-After": "5"})


#: The longest key; a UUID has 36 characters.
LONGEST_KEY: Final = 200
_KEY: Final = re.compile(f"[!-~]{{1,{LONGEST_KEY}}}")
#: These say that nothing was begun: the key is free for the request put right.
_UNBEGUN: Final = frozenset({400, 401, 403, 415, 422, 428, 429})
_KEPT_HEADERS: Final = ("content-type", "location", "etag")

Handle = Callable[[Request], Awaitable[Response]]


async def once(request: Request, writes: Writes, caller: str, key: str, handle: Handle) -> Response:
    """Answer *request* by *handle*, or as it was answered before under *key*."""
    if not _KEY.fullmatch(key):
        msg = f"an Idempotency-Key has 1 to {LONGEST_KEY} characters of ASCII without spaces"
        raise Problem(400, "bad-idempotency-key", msg)
    write, token = WriteKey(caller, key), secrets.token_hex(16)
    fingerprint = await _fingerprint(request)
    found = await run_in_threadpool(writes.begin, write, fingerprint, token)
    if not isinstance(found, RequestBegun):
        return _standing(found)
    request.state.choice = Choice.of(writes, write, token, found.choice)
    try:
        async with _held(writes, write, fingerprint, token):
            response = await _answered(request, handle)
    except BaseException:
        await run_in_threadpool(writes.forget, write, token)
        raise
    if response.status_code in _UNBEGUN or response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        await run_in_threadpool(writes.forget, write, token)
    else:
        await run_in_threadpool(writes.finish, write, token, _answer(response))
    return response


@asynccontextmanager
async def _held(
    writes: Writes, write: WriteKey, fingerprint: str, token: str
) -> AsyncIterator[None]:
    """Renew the lease while it is worked on."""
    over = asyncio.Event()

    async def renew() -> None:
        while not over.is_set():
            try:
                await asyncio.wait_for(over.wait(), WRITE_LEASE.total_seconds() / 3)
            except TimeoutError:
                with suppress(LedgerUnavailable):
                    await run_in_threadpool(writes.begin, write, fingerprint, token)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        over.set()
        await renewing


async def _answered(request: Request, handle: Handle) -> Response:
    """The answer, also where it is a problem; a bug of ours stays an error."""
    try:
        return await handle(request)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        return problem.response()


def _standing(found: Found) -> Response:
    match found:
        case RecordedAnswer():
            headers = {**dict(found.headers), "Idempotency-Replayed": "true"}
            return Response(found.body, found.status, headers)
        case RequestRunning(retry_after):
            seconds = max(1, round(min(retry_after.total_seconds(), 5)))
            msg = "the first request with this Idempotency-Key is still worked on"
            raise Problem(409, "still-running", msg, headers={"Retry-After": str(seconds)})
        case RequestDiffers():
            msg = "this Idempotency-Key was used for another request"
            raise Problem(422, "key-used", msg)
        case RequestBegun():  # pragma: no cover - its caller works on it
            raise AssertionError


def _answer(response: Response) -> RecordedAnswer:
    headers = tuple(
        (name, response.headers[name]) for name in _KEPT_HEADERS if name in response.headers
    )
    return RecordedAnswer(status=response.status_code, body=bytes(response.body), headers=headers)


async def _fingerprint(request: Request) -> str:
    """The digest of all that makes this request another one."""
    asked = (request.method, request.url.path, request.url.query, request.headers.get("if-match"))
    digest = hashlib.sha256(repr(asked).encode("utf-8", "surrogatepass"))
    digest.update(await request.body())
    return digest.hexdigest()
