"""A process that acts on a ledger without pause and moves the facts of its acts, until killed.

Its arguments are the URLs of the ledger and of the facts, and a seed. It says how many acts it did.
"""

from __future__ import annotations

import random
import sys
import threading
from datetime import timedelta

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
    database = LedgerDatabase(build_engine(ledger_url, power_safe=False))
    ledger, relay = SqlLedger(database), relay_of(database, SqlFactSink(build_engine(facts_url)))
    draw, done = random.Random(seed), 0
    ledger.add_failed_events([letter_of(f"e{number}") for number in range(ENTRIES)])

    def move() -> None:
        while True:
            threading.Event().wait(min(relay.turn(), timedelta(milliseconds=20)).total_seconds())

    threading.Thread(target=move, daemon=True).start()
    while True:
        done += act_once(ledger, draw)
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
