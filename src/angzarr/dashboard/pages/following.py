"""Following: a page is told each change of a part of it, as long as it is looked at."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Final, NamedTuple

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from angzarr.clock import Clock
from angzarr.dashboard.pages.route import caller_of
from angzarr.dashboard.streams import Streams

#: Then a stream ends; the browser comes back, and is let in anew or not at all.
LONGEST_STREAM: Final = timedelta(minutes=15)


class Step(NamedTuple):
    """How a part of a page looks now."""

    html: str
    #: After that it is looked at again.
    pause: timedelta
    #: Why there is nothing more to follow, so that the page is loaded anew; empty: there is.
    over: str = ""


def followed(request: Request, clock: Clock, look: Callable[[], Step]) -> Response:
    """Tell each step that *look* returns, in a thread, if it differs from the one before.

    Raises Problem 429.
    """
    streams: Streams = request.app.state.streams
    steps = _steps(request, clock, look, streams)
    return streams.held(caller_of(request).name, steps, media_type="text/event-stream")


async def _steps(
    request: Request, clock: Clock, look: Callable[[], Step], streams: Streams
) -> AsyncIterator[str]:
    told, ends = "", clock.now() + LONGEST_STREAM
    while not streams.ending and not await request.is_disconnected() and clock.now() < ends:
        step = await run_in_threadpool(look)
        if step.html != told:
            told = step.html
            yield _event("progress", step.html)
        else:
            yield ": still here\n\n"
        if step.over:
            yield _event("over", step.over)
            return
        await streams.rest(step.pause)


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
