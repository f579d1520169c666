"""A process that puts configurations without pause, says so in the facts, and kills itself.

Its arguments are the URLs of configurations and facts, and a seed, which says where it dies: at any
statement or commit on either database.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from datetime import timedelta

from sqlalchemy import event

from angzarr.adapters.sql.configuration.store import SqlConfigurationStore
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.facts.log import SqlFactLog
from angzarr.clock import SystemClock
from angzarr.facts.act import ActKind
from angzarr.facts.act_log import ActLog
from angzarr.wiring.configuration import editor_of


def main(configurations: str, facts: str, seed: int) -> None:
    left = random.Random(seed).randint(1, 60)

    def step(*_arguments: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    engines = [build_engine(url) for url in (configurations, facts)]
    log = SqlFactLog(engines[1])
    acts = ActLog(facts=lambda: log, clock=SystemClock(), waited=timedelta(minutes=1))
    editor = editor_of(SqlConfigurationStore(engines[0]))
    editor.store.ids()  # makes the tables
    for engine in engines:
        event.listen(engine, "after_cursor_execute", step)
        event.listen(engine, "commit", step)
        event.listen(engine, "checkin", step)
    number = 0
    while True:
        name, number = f"pricing-{seed}-{number}", number + 1
        with acts.recording(ActKind.CONFIGURATION_PUT, name, by="ann") as act:
            editor.put(name, str(number), author="ann")
            act.done({"configuration": name})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
