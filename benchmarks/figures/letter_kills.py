"""Dead letters that are missing in the ledger after kills of the worker that reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bare import kafka, pubsub, rabbitmq, sqs
from harness.figure import Figure, Measured
from harness.letter_kills import Account, read_under_fire

#: Fewer for a quick look while working on the code; the report tells how many there were.
LETTERS = int(os.environ.get("BENCH_LETTERS", "100000"))
KILLS = int(os.environ.get("BENCH_KILLS", "10"))
SEED = 20_266
#: Google's fake looks through all it holds for each letter it hands out: a tenth takes as long.
_SHARE = {"Pub/Sub": 10}
_BACKENDS = {
    "Kafka": kafka.backend,
    "RabbitMQ": rabbitmq.backend,
    "SQS": sqs.backend,
    "Pub/Sub": pubsub.backend,
}


def measure() -> Measured:
    """Read one full queue on each backend."""
    accounts: dict[str, Account] = {}
    told: dict[str, str] = {}
    for name, opened in _BACKENDS.items():
        letters = LETTERS // _SHARE.get(name, 1)
        with opened() as backend:
            accounts[name] = read_under_fire(backend, letters=letters, kills=KILLS, seed=SEED)
            told[name] = backend.told
    return Measured(
        values=[one.missing + one.duplicates for one in accounts.values()],
        detail={
            **{f"ledger_{name}": _said(account) for name, account in accounts.items()},
            "kills_each": KILLS,
            "seed": SEED,
            "backends": "; ".join(told.values()),
            "ledger": "PostgreSQL",
        },
    )


def _said(account: Account) -> Mapping[str, Any]:
    return {
        "letters": account.letters,
        "missing": account.missing,
        "duplicate entries": account.duplicates,
        "seconds": round(account.seconds),
    }


FIGURES = (
    Figure(
        key="dlq_kills_lost",
        title="dead letters missing or doubled in the ledger after kills of their reader",
        unit="letters",
        aim="= 0",
        against="nothing: none may be",
        how=(
            "A queue is filled with letters, each of an event of its own. `angzarr dlq analyze`"
            " reads it into a ledger on PostgreSQL and is killed with SIGKILL again and again, at"
            " progress drawn by a seed; the last one is spared. Then every event must have one"
            " entry. One value a backend; the worst counts."
        ),
        measure=measure,
    ),
)
