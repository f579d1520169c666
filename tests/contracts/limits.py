"""What all limits must do. Each adapter's tests subclass this, Redis on the real server."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest

from angzarr.resilience import limit as rules
from angzarr.resilience.limit import Exceeded, Limit, Limits, LimitScope

#: Slow enough for a test to ask many times meanwhile.
SLOW = Limit("slow", rate=0.1, burst=3)
TWO = Limit("two", concurrency=2)


def scopes(*limits: Limit, key: str = "") -> list[LimitScope]:
    return [LimitScope(limit, key) for limit in limits]


def fresh() -> str:
    return uuid.uuid4().hex


def let_through(limits: Limits, asked: Sequence[LimitScope], times: int) -> list[str]:
    """Ask for *times* calls; return the tokens of those that were let through."""
    tokens = [fresh() for _ in range(times)]
    return [token for token in tokens if limits.take(asked, token) is None]


class Slots:
    """Counts who is in at a time, and how many were at most."""

    def __init__(self) -> None:
        self.inside = self.most = self.in_all = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.in_all += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


class LimitsContract:
    """Subclasses give `limits` (with no past) and `let_pass`."""

    @pytest.fixture
    def limits(self) -> Limits:
        raise NotImplementedError

    @pytest.fixture
    def let_pass(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    # -- rates --------------------------------------------------------------------------------

    def test_a_burst_goes_and_no_more(self, limits):
        assert len(let_through(limits, scopes(SLOW), 10)) == 3

    def test_a_rate_comes_back_evenly(self, limits, let_pass):
        quick = scopes(Limit("quick", rate=5, burst=1))
        for _ in range(3):
            assert len(let_through(limits, quick, 3)) == 1
            let_pass(timedelta(milliseconds=200))

    def test_a_pause_gives_a_burst_and_no_more(self, limits, let_pass):
        quick = scopes(Limit("quick", rate=50, burst=2))
        let_through(limits, quick, 2)
        let_pass(timedelta(milliseconds=500))
        assert len(let_through(limits, [*quick], 10)) in (2, 3)  # one more is due every 20 ms

    def test_those_over_a_rate_wait_in_line(self, limits):
        let_through(limits, scopes(SLOW), 3)
        waits = [limits.take(scopes(SLOW), fresh()).wait.by(0.0) for _ in range(4)]
        steps = [(late - soon).total_seconds() for soon, late in pairwise(waits)]
        assert waits[0].total_seconds() == pytest.approx(10, abs=1)
        assert steps == pytest.approx([10] * 3, abs=1)

    def test_nobody_waits_longer_than_five_minutes(self, limits):
        let_through(limits, scopes(SLOW), 3)
        last = [limits.take(scopes(SLOW), fresh()) for _ in range(60)][-1].wait
        assert (last.by(0.0), last.by(1.0)) == (timedelta(minutes=2.5), timedelta(minutes=5))

    # -- concurrency --------------------------------------------------------------------------

    def test_slots_are_full_and_free_again(self, limits):
        one, _ = let_through(limits, scopes(TWO), 5)
        limits.release(scopes(TWO), one)
        assert len(let_through(limits, scopes(TWO), 5)) == 1

    def test_who_asks_twice_has_one_slot(self, limits):
        assert [limits.take(scopes(TWO), "mine") for _ in range(5)] == [None] * 5
        assert len(let_through(limits, scopes(TWO), 5)) == 1

    def test_a_slot_is_freed_once_and_by_its_holder(self, limits):
        one, _ = let_through(limits, scopes(TWO), 2)
        for token in (one, one, fresh()):
            limits.release(scopes(TWO), token)
        assert len(let_through(limits, scopes(TWO), 5)) == 1

    def test_those_who_wait_for_a_slot_come_back_one_after_the_other(self, limits):
        let_through(limits, scopes(TWO), 2)
        began = time.monotonic()
        waits = [limits.take(scopes(TWO), fresh()).wait.by(0.0) for _ in range(300)]
        passed = time.monotonic() - began  # of the waits, on a server
        longest = 300 * rules.NEW.held / 2
        assert longest - passed - 0.5 < max(waits).total_seconds() <= longest + 0.01

    def test_nobody_waits_for_a_slot_for_longer_than_a_minute(self, limits):
        let_through(limits, scopes(TWO), 2)
        last = [limits.take(scopes(TWO), fresh()) for _ in range(3000)][-1].wait
        assert (last.by(0.0), last.by(1.0)) == (timedelta(seconds=30), timedelta(minutes=1))

    def test_the_line_for_a_slot_moves_as_fast_as_calls_end(self, limits, let_pass):
        for token in [fresh() for _ in range(6)]:
            limits.take(scopes(TWO), token)
            let_pass(timedelta(milliseconds=400))
            limits.release(scopes(TWO), token)
        let_through(limits, scopes(TWO), 2)
        wait = limits.take(scopes(TWO), fresh()).wait.by(0.0)
        assert wait.total_seconds() > 0.8 * (0.4 * 0.7) / 2, "a new limit would say 50 ms"

    def test_sixteen_threads_are_never_more_than_the_limit(self, limits):
        inside = Slots()
        limit = scopes(Limit("three", concurrency=3))

        def work(_number: int) -> None:
            for _ in range(30):
                token = fresh()
                if limits.take(limit, token) is None:
                    with inside:
                        threading.Event().wait(0.001)
                    limits.release(limit, token)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(16)))
        assert inside.most == 3
        assert len(let_through(limits, limit, 5)) == 3, "a slot has leaked"

    # -- scopes -------------------------------------------------------------------------------

    def test_keys_are_counted_apart(self, limits):
        for key in ("", "acme", "a:b", "a%3Ab", "ключ", "x" * 5000, "{other}"):
            assert len(let_through(limits, scopes(TWO, key=key), 5)) == 2
            assert len(let_through(limits, scopes(SLOW, key=key), 5)) == 3

    def test_limits_are_counted_apart(self, limits):
        for name in ("a", "b"):
            assert len(let_through(limits, scopes(Limit(name, concurrency=1)), 5)) == 1

    def test_one_limit_may_have_both(self, limits):
        both = scopes(Limit("both", rate=0.1, burst=3, concurrency=2))
        one, other = let_through(limits, both, 5)
        limits.release(both, one)
        limits.release(both, other)
        assert len(let_through(limits, both, 5)) == 1

    @pytest.mark.parametrize("order", [1, -1])
    def test_all_limits_or_none(self, limits, order):
        asked = scopes(SLOW, TWO)[::order]
        held = let_through(limits, scopes(TWO), 2)
        exceeded = [limits.take(asked, fresh()) for _ in range(5)]
        assert all(isinstance(one, Exceeded) and one.name == "two" for one in exceeded)
        limits.release(scopes(TWO), held[0])
        limits.release(scopes(TWO), held[1])
        assert len(let_through(limits, scopes(SLOW), 10)) == 3, "a refused call has cost a rate"
        assert limits.take(asked, fresh()).name == "slow"
        assert len(let_through(limits, scopes(TWO), 5)) == 2, "a refused call has a slot"

    def test_of_several_limits_the_longest_wait_counts(self, limits):
        slower = Limit("slower", rate=0.01, burst=3)
        asked = scopes(slower, SLOW)
        let_through(limits, asked, 3)
        assert limits.take(asked, fresh()).name == "slower"
