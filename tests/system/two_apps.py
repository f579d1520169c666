"""A plain Celery app of which a test runs two, of different names, on one broker.

Both have a task of the same name. What runs is appended to one journal with the app that ran it.
"""

from __future__ import annotations

import os
from pathlib import Path

import journal
from angzarr import Angzarr

NAME = os.environ["TWO_NAME"]
FOLDER = Path(os.environ["TWO_FOLDER"])

app = Angzarr(
    NAME,
    prefix=NAME,
    broker=os.environ["TWO_BROKER"],
    store=os.environ["TWO_STORE"],
    ledger=f"sqlite:///{FOLDER / NAME}.db",
    dlq={"backend": "amqp", "amqp_url": os.environ["TWO_LETTERS"]},
)
app.conf.task_default_queue = NAME


@app.task(name="tasks.charge")
def charge(owner: str) -> None:
    """Fail until somebody has fixed it."""
    journal.append(FOLDER / "journal", {"ran_in": NAME, "of": owner})
    if not (FOLDER / "fixed").exists():
        raise ValueError("no such account")
