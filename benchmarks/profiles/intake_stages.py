"""Which stage of a letter's way costs what: `python benchmarks/profiles/intake_stages.py`.

The course of `intake.py`, by stage: CPU of the thread that files, in microseconds a letter. Letters
are read ahead in that thread, too, so that one clock sees all. Of many batches the tenth least is
told, which a busy machine blurs little; the clock itself adds some microseconds.

    --runs N       runs (5)
    --letters N    letters of a run (5,000)
    --domain NAME  read what an earlier run put there; it is named in each answer
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from bare import kafka
from harness.letter_rates import fill
from sqlalchemy.engine.base import RootTransaction

from angzarr.adapters.kafka.dead_letters import KafkaDeadLetterQueue
from angzarr.adapters.kafka.fetched_messages import FetchedAhead
from angzarr.adapters.kafka.letter_consumer import LetterConsumer
from angzarr.adapters.sql.engine import statements
from angzarr.adapters.sql.ledger import store
from angzarr.adapters.sql.ledger.groups import SqlPeers
from angzarr.analysis.classification.evidence_collector import EvidenceCollector
from angzarr.analysis.ledger.filing_plan import FilingPlan
from angzarr.analysis.worker.decisions import DecisionMaker
from angzarr.analysis.worker.intake import LETTERS, Intake
from profiles import intake

#: Where each stage begins. What is inside another stage is not counted there.
STAGES: tuple[tuple[str, Any, str], ...] = (
    ("all else", Intake, "turn"),
    ("group", Intake, "_failure_of"),
    ("take from Kafka", KafkaDeadLetterQueue, "receive"),
    ("poll", LetterConsumer, "_fetch"),
    ("decode", FetchedAhead, "read"),
    ("look up letters", store, "_known_letters"),
    ("lock entries", store, "lock_entries"),
    ("plan", FilingPlan, "file"),
    ("evidence", EvidenceCollector, "gather"),
    ("ask after peers", SqlPeers, "fared"),
    ("classify", DecisionMaker, "_decisions"),
    ("make rows", store, "_write"),
    ("copy rows", statements, "_copy"),
    ("groups and counts", store, "count"),
    ("commit", RootTransaction, "_do_commit"),
    ("commit offsets", KafkaDeadLetterQueue, "done"),
)


class StageClock:
    """The CPU time of each stage of a batch, without that of the stages within it."""

    def __init__(self) -> None:
        self.batches: dict[str, list[float]] = defaultdict(list)
        self._spent: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._last = time.thread_time()

    def timed(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """*call*, counted as *stage*; a batch ends with the outermost."""

        @functools.wraps(call)
        def around(*args: Any, **options: Any) -> Any:
            self._note()
            self._open.append(stage)
            try:
                answer = call(*args, **options)
            finally:
                self._note()
                self._open.pop()
            if not self._open:
                self._end(answer)
            return answer

        return around

    def _note(self) -> None:
        now = time.thread_time()
        if self._open:
            self._spent[self._open[-1]] += now - self._last
        self._last = now

    def _end(self, letters: Any) -> None:
        if letters == LETTERS:  # others end a run, or begin one
            for stage, spent in self._spent.items():
                self.batches[stage].append(spent / letters * 1e6)
        self._spent.clear()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--letters", type=int, default=5000)
    parser.add_argument("--domain")
    given = parser.parse_args()
    domain = given.domain
    if not domain:
        with kafka.backend() as backend:
            domain = fill(backend, given.letters)
    clock = StageClock()
    for stage, owner, name in STAGES:
        setattr(owner, name, clock.timed(stage, getattr(owner, name)))
    with mock.patch.object(FetchedAhead, "begin", create=True):
        for _ in range(given.runs):
            intake.run(domain, given.letters)
    tenth = {stage: sorted(spent)[len(spent) // 10] for stage, spent in clock.batches.items()}
    for stage, *_ in STAGES:
        print(f"{stage:20}{tenth.get(stage, 0.0):7.1f} us")
    print(f"{'together':20}{sum(tenth.values()):7.1f} us  (--domain {domain})")


if __name__ == "__main__":
    main()
