"""A process that acts on a ledger without pause, moves the facts of its acts, and kills itself.

Its arguments are the URLs of the ledger and of the facts, and a seed, which says where it dies:
amid a transaction, at its commit, or right after one.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from datetime import timedelta

from sqlalchemy import Engine, event
from tests.contracts.ledger import letter_of

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.sink import SqlFactSink
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.fact_outbox import LedgerFactOutbox
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.operator_actions import Act, Verb, refusal
from angzarr.analysis.ledger.transition import replayable
from angzarr.facts.outbox import SeveralSinks
from angzarr.facts.relay import FactRelay, SoleDuty

#: Entries that are acted on, again and again.
ENTRIES = 20
VERBS = [verb for verb in Verb if verb is not Verb.COMPENSATE]


def relay_of(database: LedgerDatabase, sink: SqlFactSink) -> FactRelay:
    return FactRelay(
        outbox=LedgerFactOutbox(database),
        sink=SeveralSinks(sink, []),
        duty=SoleDuty(),
        chance=random.random,
    )


def dies_somewhere(engine: Engine, draw: random.Random) -> None:
    """Let this process die, as by a power cut, at one of the next steps of *engine*."""
    left = draw.randint(20, 400)

    def step(*_arguments: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("after_cursor_execute", "commit"):
        event.listen(engine, name, step)
    event.listen(engine, "checkin", step)  # what was committed is true by then


def act_once(ledger: SqlLedger, draw: random.Random) -> bool:
    """Do something to some entries, in one transaction."""
    page = ledger.get_failed_events(status=None, limit=ENTRIES).entries
    some = draw.sample(page, draw.randint(1, 3))
    if draw.random() < 0.2 and replayable(some[0]):
        one, lease = some[0], timedelta(days=1)
        begun = ledger.mark_retrying(
            one.id, one.replays + 1, revision=one.revision, by="ann", lease=lease
        )
        return begun is not None and ledger.mark_answered(one.id, begun.replays, by="replay")
    if draw.random() < 0.2 and some[0].status is Status.RESOLVED:
        ledger.add_failed_event(letter_of(some[0].event_id, some[0].replays + 1))
        return True
    acts = [
        Act(entry_id=one.id, revision=one.revision, verb=draw.choice(fitting), note="why not")
        for one in some
        if (fitting := [verb for verb in VERBS if not refusal(one, verb)])
    ]
    return any(ledger.act(acts, by="ann"))


def main(ledger_url: str, facts_url: str, seed: str) -> None:
    engine, draw = build_engine(ledger_url, power_safe=False), random.Random(seed)
    database = LedgerDatabase(engine)
    ledger, relay = SqlLedger(database), relay_of(database, SqlFactSink(build_engine(facts_url)))
    ledger.add_failed_events([letter_of(f"e{number}") for number in range(ENTRIES)])

    def move() -> None:
        while True:
            threading.Event().wait(min(relay.turn(), timedelta(milliseconds=20)).total_seconds())

    dies_somewhere(engine, draw)
    threading.Thread(target=move, daemon=True).start()
    while True:
        act_once(ledger, draw)


if __name__ == "__main__":
    main(*sys.argv[1:])
