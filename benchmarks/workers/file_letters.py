"""File letters beside others of a group: `python -m workers.file_letters DOMAIN GROUP DATABASE`.

It begins once the file `go` is in its folder, writes down how many each turn filed, and goes on
until it is killed.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from harness import servers
from harness.intakes import intake

from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from workers.journal import Journal

FOLDER = Path(os.environ["BENCH_FOLDER"])


def main(domain: str, group: str, url: str) -> None:
    """File, decide and let go of letters of *domain*, as one analysis worker of *group*."""
    journal = Journal(FOLDER / "journal")
    with closing(KafkaDeadLetterQueue(servers.address(servers.KAFKA), group=group)) as queue:
        duty = intake(queue, LedgerDatabase(build_engine(url)), domain)
        (FOLDER / f"ready-{os.getpid()}").touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.01)
        while True:
            if taken := duty.turn(timedelta(seconds=1)):
                journal.write(taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
