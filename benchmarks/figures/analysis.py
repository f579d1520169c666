"""How fast the analysis worker files letters, beside a bare consumer and as its ledger grows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from statistics import median
from typing import Any

import confluent_kafka
from bare import kafka
from harness import intakes, joint_intake, ledger_fill
from harness.figure import Figure, Measured
from harness.ledger_fill import Filled
from harness.letter_rates import fill, letter
from harness.pairs import Pair, alternate, medians, ratios

from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.analysis.worker.intake import LETTERS as AT_A_TIME

PAIRS = int(os.environ.get("BENCH_RUNS", "7"))
#: Letters a run, and those filed between two looks at the clock.
LETTERS, BATCHES = int(os.environ.get("BENCH_LETTERS", "10000")), 12
#: Of a run of two: they are still many when both have their share of the topic, some 3 s later.
PROCESSES, LETTERS_OF_TWO = 2, 3 * LETTERS
SMALL = 10_000
LARGE = int(os.environ.get("BENCH_LEDGER_ENTRIES", "1000000"))


def measure_bare() -> Measured:
    """Measure the duty against a consumer that only stores."""
    with kafka.backend() as backend:
        domain = fill(backend, LETTERS)
    pairs = alternate(
        partial(intakes.filed_by_ours, domain, LETTERS),
        partial(intakes.stored_by_hand, domain, LETTERS),
        pairs=PAIRS,
        discarded=1,
    )
    return Measured(values=ratios(pairs), detail=_told(pairs, LETTERS))


def measure_two() -> Measured:
    """Measure two processes of one group against the same consumer."""
    with kafka.backend(partitions=2 * PROCESSES) as backend:
        domain = fill(backend, LETTERS_OF_TWO)
    pairs = alternate(
        partial(joint_intake.filed_together, domain, LETTERS_OF_TWO, PROCESSES),
        partial(intakes.stored_by_hand, domain, LETTERS_OF_TWO),
        pairs=PAIRS,
        discarded=1,
    )
    return Measured(values=ratios(pairs), detail=_told(pairs, LETTERS_OF_TWO))


def _told(pairs: list[Pair], letters: int) -> dict[str, Any]:
    return {
        "letters_a_run": f"{letters:,}",
        "letters_per_second_ours": round(medians(pairs).ours),
        "letters_per_second_bare": round(medians(pairs).theirs),
        "at_a_time": AT_A_TIME,
        "backend": f"Kafka, one broker; confluent-kafka {confluent_kafka.__version__}; PostgreSQL",
    }


def measure_growth() -> Measured:
    """Measure what a letter costs in a large ledger and in a small one, in turn."""
    with ledger_fill.postgresql(SMALL) as small, ledger_fill.postgresql(LARGE) as large:
        filing = [_filing(large, "large"), _filing(small, "small")]
        pairs = alternate(*filing, pairs=PAIRS, discarded=1)
        return Measured(
            values=ratios(pairs),
            detail={
                "microseconds_a_letter_large": round(medians(pairs).ours * 1e6),
                "microseconds_a_letter_small": round(medians(pairs).theirs * 1e6),
                "entries": f"{LARGE:,} and {SMALL:,}",
                "letters_a_run": f"{AT_A_TIME * BATCHES:,}",
                "backend": large.told,
            },
        )


def _filing(filled: Filled, name: str) -> Callable[[], float]:
    """Return what files letters that are new to a ledger and returns the seconds of one."""
    database, numbers = LedgerDatabase(filled.engine), iter(range(10**9))

    def file() -> float:
        queue = MemoryDeadLetterQueue(f"{name}-{next(numbers)}")
        queue.put([letter("shop", next(numbers)) for _ in range(AT_A_TIME * BATCHES)])
        duty, times = intakes.intake(queue, database, "shop"), list[float]()
        for _ in range(BATCHES):
            began = time.perf_counter()
            taken = duty.turn(timedelta(0))
            times.append((time.perf_counter() - began) / taken)
        return median(times)

    return file


FIGURES = (
    Figure(
        key="analysis_vs_bare",
        title="letters filed and decided, Kafka to PostgreSQL",
        unit="ratio",
        aim="≥ 0.3",
        against="a consumer that inserts (id, body) in bulk and commits its offsets",
        how=(
            f"A topic is filled with letters of 3 KB. The analysis worker's duty takes {AT_A_TIME},"
            " reads, files, classifies and decides them, with history, groups and counts, and lets"
            " them go. The bare side takes as many, inserts them with one `executemany`, commits,"
            " and commits its offsets. Fresh consumer groups and databases each run; the first"
            " batch, for which both connect, is not timed."
        ),
        measure=measure_bare,
    ),
    Figure(
        key="analysis_two_vs_bare",
        title="the same by two processes",
        unit="ratio",
        aim="≥ 0.5",
        against="one consumer that inserts (id, body) in bulk and commits its offsets",
        how=(
            "Two processes of one consumer group, each with the duty of an analysis worker, share a"
            " topic of four partitions and one ledger. The rate is that of both, from when each has"
            " filed a batch to when the first has none left. A run counts only if each letter has"
            " its entry. The bare side is the one process of `analysis_vs_bare`."
        ),
        measure=measure_two,
    ),
    Figure(
        key="analysis_growth",
        title="cost of a letter in a ledger with a million entries",
        unit="ratio",
        aim="≤ 1.2",
        against="the same in a ledger with ten thousand",
        how=(
            "Two PostgreSQL ledgers, filled in bulk. The analysis worker's duty files and decides"
            f" batches of {AT_A_TIME} letters that are new, in turn here and there; the median"
            " batch of a run counts."
        ),
        measure=measure_growth,
    ),
)
