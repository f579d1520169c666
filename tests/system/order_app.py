"""An app whose handlers take events in order: a plain one, projections, and one that takes them
as they come.

It may be told to die at named points (`ORDER_POINTS`), once for an event, so that no event is
started too often, and so many times in all (`ORDER_DEATHS`).
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Column, Integer, MetaData, Table, Text
from sqlalchemy.dialects.postgresql import insert

import journal
from angzarr import Angzarr, GiveUp, Policy, Projection, handles
from angzarr.adapters.sql.ordering.store import SqlLanes
from angzarr.delivery import gap_monitor as lane_keeper
from angzarr.delivery import ordering
from angzarr.delivery.claims import Claimer
from angzarr.ordering.lane import Why
from angzarr.ordering.lanes import Turn

PREFIX = os.environ["ANGZARR_PREFIX"]
DOMAIN = f"{PREFIX}.account"
#: Lanes go by it: those of other tests are in the same database.
LISTED = f"{PREFIX}.listed"
#: The read models of the projections: lists of sequences, and how often each was written to.
TABLE, SECOND = (
    Table(
        f"{name}_{PREFIX}",
        MetaData(),
        Column("root", Text, primary_key=True),
        Column("seen", Text),
        Column("writes", Integer),
    )
    for name in ("totals", "seconds")
)
JOURNAL = Path(os.environ["ROAD_JOURNAL"])

app = Angzarr(
    "order_app",
    broker=os.environ["ROAD_BROKER"],
    dlq=json.loads(os.environ["ROAD_DLQ"]),
    retry={
        "policies": {"quick": {"base": 0.2, "max_delay": 0.2, "max_attempts": 5, "jitter": "none"}}
    },
)
app.conf.task_default_queue = PREFIX
if app.ops.broker_url.startswith("sqs"):
    app.conf.broker_transport_options = {
        "polling_interval": 0.1, "wait_time_seconds": 1, "region": "us-east-1",
        "is_secure": False, "visibility_timeout": int(os.environ.get("ORDER_VISIBILITY", "1800")),
    }  # fmt: skip
elif app.ops.broker_url.startswith("redis"):
    app.conf.broker_transport_options = {"lease": float(os.environ.get("ORDER_LEASE", "10"))}

if os.environ.get("ORDER_HASTE") == "1":  # nobody is to wait for minutes, or for a dead keeper
    ordering.FULL_WAIT = timedelta(seconds=1)
    lane_keeper.LOOK_EVERY = timedelta(seconds=1)
    lane_keeper.TENURE = lane_keeper.LEASE = timedelta(seconds=3)


def note(what: str, **more: object) -> None:
    about = {"what": what, "pid": os.getpid(), "worker": os.getpgrp(), "at": time.time()}
    journal.append(JOURNAL, {**about, **more})


# -- what is handled ---------------------------------------------------------------------------


class Entry(BaseModel):
    n: int
    fate: str = "fine"


class Remark(BaseModel):
    """What the plain handler does not take."""

    n: int
    fate: str = "fine"


def _meet(who: str, event: Entry | Remark, root: str | None) -> None:
    """Fail as the event says: its fate is one for all, or one of the handler that it names."""
    fate, _, only = event.fate.partition("@")
    if only not in ("", who):
        return
    tries = sum(
        line["what"] == f"try {who}" and (line["root"], line["n"]) == (root, event.n)
        for line in journal.records(JOURNAL)
    ) if fate == "flaky" else 0  # fmt: skip
    note(f"try {who}", root=root, n=event.n)
    if fate == "flaky" and tries < 1:
        raise ConnectionResetError("flaky")
    if fate == "give up" and not JOURNAL.with_name("mended").exists():
        raise GiveUp("no such account")


@app.handler(Entry, domain=DOMAIN, ordered_by="root", policy="quick", name=LISTED)
def listed(event: Entry, ctx: Any) -> None:
    root = ctx.event.root
    note("begin", root=root, n=event.n)
    _meet("listed", event, root)
    note("listed", root=root, n=event.n, attempt=ctx.attempt, replay=ctx.replay)


if os.environ.get("ORDER_LOOSE") == "1":

    @app.handler(Entry, domain=DOMAIN, name="order_app.loose")
    def loose(event: Entry, ctx: Any) -> None:
        note("loose", root=ctx.event.root, n=event.n)


class Folded(Projection):
    """Writes down which events it saw of which aggregate, in their order."""

    who = ""

    @handles(Entry)
    def on_entry(self, event: Entry) -> None:
        self.write(event)

    def write(self, event: Entry | Remark) -> None:
        """Write, then fail if it is so: what was written then is not to stay."""
        there = self.tables[0]
        row = insert(there).values(root=self.event.root, seen=str(event.n), writes=1)
        added = {
            "writes": there.c.writes + 1,
            "seen": there.c.seen + " " + row.excluded.seen,
        }
        self.connection.execute(row.on_conflict_do_update(index_elements=["root"], set_=added))
        _meet(self.who, event, self.event.root)
        strike("in the transaction", f"{self.who} {self.event.root} {event.n}")


@app.projection(f"{PREFIX}.totals", domains=DOMAIN)
class Totals(Folded):
    tables = (TABLE,)
    who = "totals"
    retry_policies = {  # noqa: RUF012 - as people write it
        Remark: Policy(
            name="soon", base=timedelta(seconds=0.2), max_delay=timedelta(seconds=0.2),
            max_attempts=3, jitter="none",
        )
    }  # fmt: skip

    @handles(Remark)
    def on_remark(self, event: Remark) -> None:
        self.write(event)


if os.environ.get("ORDER_SECOND") == "1":

    @app.projection(f"{PREFIX}.seconds", domains=DOMAIN)
    class Seconds(Folded):
        tables = (SECOND,)
        who = "seconds"


# -- where a worker dies ------------------------------------------------------------------------

POINTS = frozenset(filter(None, os.environ.get("ORDER_POINTS", "").split(",")))
DEATHS = int(os.environ.get("ORDER_DEATHS", "0"))
STRUCK = JOURNAL.with_name("struck")


def strike(point: str, event: str) -> None:
    """Kill this process, if it is a child of a pool, for *event* and at *point*."""
    if point not in POINTS or os.getpid() == os.getpgrp():
        return
    STRUCK.mkdir(exist_ok=True)
    of_event = STRUCK / f"event {event}"
    for number in range(DEATHS):
        if of_event.exists():
            return
        with suppress(FileExistsError):
            (STRUCK / f"{point} {number}").touch(exist_ok=False)
            try:
                of_event.touch(exist_ok=False)
            except FileExistsError:
                return
            note("dies", point=point, event=event)
            os.kill(os.getpid(), signal.SIGKILL)


def _dying(owner: type, name: str, event_of: Callable[..., str], **points: str) -> None:
    """Have the method *name* of *owner* strike before and after it did its work."""
    method = getattr(owner, name)

    @wraps(method)
    def struck(self: Any, *args: Any, **options: Any) -> Any:
        event = event_of(self, *args)
        strike(points.get("before", ""), event)
        answer = method(self, *args, **options)
        strike(points.get("after", ""), event)
        return answer

    setattr(owner, name, struck)


def _of_step(_lanes: Any, step: Any, *_: Any) -> str:
    return f"{step.lane.handler} {step.lane.address.root} {step.sequence}"


def _of_turn(turn: Turn, *_: Any) -> str:
    return _of_step(turn.lanes, turn.step)


def _of_delivery(_claiming: Any, delivery: Any, *_: Any) -> str:
    return f"{delivery.handler} {delivery.event.root} {delivery.event.sequence}"


def _of_letter(lanes: Any, waiting: Any) -> str:
    return _of_step(lanes, waiting) if waiting.why is Why.DEAD_LETTER else "none"


if POINTS:
    _dying(Claimer, "ask", _of_delivery, after="after the claim")
    _dying(
        ordering.Ordering, "enter", lambda _ordering, turn, *_: _of_turn(turn),
        before="before the look", after="after the look",
    )  # fmt: skip
    _dying(Turn, "run", _of_turn, after="after the commit")
    _dying(SqlLanes, "move", _of_step, after="after the move")
    _dying(SqlLanes, "released", _of_step, before="before it is forgotten")
    _dying(SqlLanes, "park", _of_step, after="after the park")
    _dying(SqlLanes, "note", _of_letter, before="before the note")
