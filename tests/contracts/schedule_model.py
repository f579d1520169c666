"""Random histories of putters and movers: a put is never lost, and lent to one mover at a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from angzarr.delivery.schedule import OpenSchedule, id_of
from contracts.histories import run_histories

LONG = timedelta(hours=1)
TINY = timedelta(milliseconds=2)
NOTHING = timedelta(0)

names = st.sampled_from(["m1", "m2", "m3"])
tokens = st.sampled_from(["a", "b", "c"])
spans = st.sampled_from([NOTHING, LONG])
some = st.lists(names, min_size=1, max_size=3, unique=True)


@dataclass
class Kept:
    """What the rules say of one row. `due`: now; a lease that ended leaves the token in place."""

    due: bool
    token: str = ""


def run_random_histories(
    schedule: OpenSchedule,
    put: Callable[..., str],
    message: Callable[..., object],
    let_pass: Callable[[timedelta], None],
) -> None:
    """Run random histories on *schedule* and on the rules, side by side; it is left empty."""

    class Histories(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.mark = uuid.uuid4().hex[:8]
            self.rows: dict[str, Kept] = {}

        def id(self, name: str) -> str:
            return id_of(message(f"{self.mark}-{name}"))

        def held(self, token: str, ids: list[str]) -> list[str]:
            return [i for i in ids if i in self.rows and self.rows[i].token == token]

        @rule(name=names, wait=spans)
        def put(self, name: str, wait: timedelta) -> None:
            row = put(message(f"{self.mark}-{name}"), wait)
            self.rows[row] = Kept(due=not wait)

        @rule(token=tokens, lease=st.sampled_from([TINY, LONG]))
        def take(self, token: str, lease: timedelta) -> None:
            token = f"{self.mark}-{token}"
            running = {i for i, kept in self.rows.items() if kept.token == token and not kept.due}
            due = {i for i, kept in self.rows.items() if kept.due}
            lent = {row.id for row in schedule.take(token, 100, lease).rows}
            assert lent == (running or due)
            if lease == TINY:
                let_pass(TINY)
            if not running:
                for i in due:
                    self.rows[i] = Kept(due=lease == TINY, token=token)

        @rule(token=tokens, chosen=some)
        def done(self, token: str, chosen: list[str]) -> None:
            token, ids = f"{self.mark}-{token}", [self.id(name) for name in chosen]
            schedule.done(token, ids)
            for i in self.held(token, ids):
                del self.rows[i]

        @rule(token=tokens, chosen=some, pause=spans)
        def give_back(self, token: str, chosen: list[str], pause: timedelta) -> None:
            token, ids = f"{self.mark}-{token}", [self.id(name) for name in chosen]
            schedule.give_back(token, ids, pause)
            for i in self.held(token, ids):
                self.rows[i] = Kept(due=not pause)

        def teardown(self) -> None:
            """Empty it for the next history, and see that nothing else is there."""
            for name in ("m1", "m2", "m3"):
                if self.id(name) in self.rows:
                    put(message(f"{self.mark}-{name}"))
            last = schedule.take(f"{self.mark}-last", 100, LONG)
            schedule.done(f"{self.mark}-last", [row.id for row in last.rows])
            assert {row.id for row in last.rows} == set(self.rows)
            assert schedule.take("none", 100, LONG).next_in is None

    run_histories(Histories, histories=25, steps=25)
