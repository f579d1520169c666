"""A slow machine, a busy neighbour and a large heap do not make work dear."""

from __future__ import annotations

import gc
from itertools import count

import pytest

import fair_time
from fair_time import fair_seconds, slowness

#: What one run of the known work takes on a machine three times slower than a normal one.
SLOW = 3 * fair_time.NORMAL


class Processor:
    """A clock of a thread: work adds to it, nothing else does."""

    def __init__(self, known: float) -> None:
        self.now, self.known = 0.0, known

    def thread_time(self) -> float:
        return self.now

    def know(self) -> None:
        self.now += self.known

    def work(self, *costs: float):
        """Work whose runs cost *costs*, the last one for ever."""
        runs = count()

        def run() -> None:
            self.now += costs[min(next(runs), len(costs) - 1)]

        return run


@pytest.fixture
def processor(request, monkeypatch):
    one = Processor(getattr(request, "param", fair_time.NORMAL))
    monkeypatch.setattr(fair_time.time, "thread_time", one.thread_time)
    monkeypatch.setattr(fair_time, "_known_work", one.know)
    return one


@pytest.mark.parametrize("processor", [SLOW], indirect=True)
def test_a_slow_machine_gets_more_time(processor):
    assert fair_seconds(processor.work(2.9), enough=1.0) < 1.0
    assert fair_seconds(processor.work(3.2), enough=1.0) > 1.0


@pytest.mark.parametrize("processor", [fair_time.NORMAL / 4], indirect=True)
def test_a_quick_machine_keeps_the_limit(processor):
    assert fair_seconds(processor.work(0.9), enough=1.0) == pytest.approx(0.9)
    assert slowness() == 1.0


def test_the_quickest_of_three_runs_counts(processor):
    assert fair_seconds(processor.work(5.0, 4.0, 0.5), enough=1.0) == pytest.approx(0.5)
    assert fair_seconds(processor.work(5.0, 4.0, 3.0, 0.5), enough=1.0) == pytest.approx(3.0)


def test_work_that_costs_little_runs_once(processor):
    runs = []
    fair_seconds(lambda: runs.append(1), enough=1.0)
    assert runs == [1]


def test_a_collection_meets_only_what_the_work_made():
    frozen = []
    fair_seconds(lambda: frozen.append(gc.get_freeze_count()), enough=60.0)
    assert frozen[0] > 0
    assert gc.get_freeze_count() == 0


def test_work_that_fails_leaves_the_collector_as_it_was():
    with pytest.raises(ZeroDivisionError):
        fair_seconds(lambda: 1 / 0, enough=1.0)
    assert gc.get_freeze_count() == 0
