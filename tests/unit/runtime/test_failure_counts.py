"""Failures are counted by key, in bounds, by many threads at once."""

from __future__ import annotations

import sys
import threading

from angzarr.runtime.failures import FailureCounts


def test_each_key_counts_by_itself_until_it_is_forgotten():
    counts = FailureCounts()
    assert [counts.add("a"), counts.add("b"), counts.add("a")] == [1, 1, 2]
    counts.forget("a")
    counts.forget("nothing")
    assert [counts.add("a"), counts.add("b")] == [1, 2]


def test_the_one_that_failed_longest_ago_makes_room():
    counts = FailureCounts(3)
    for key in ("a", "b", "c", "a", "d"):  # b failed longest ago
        counts.add(key)
    assert len(counts) == 3
    assert [counts.add("a"), counts.add("c"), counts.add("d"), counts.add("b")] == [3, 2, 2, 1]


def test_many_threads_lose_no_count_and_break_nothing():
    counts, shared, errors, rounds, threads = FailureCounts(8), FailureCounts(), [], 3000, 4
    interval = sys.getswitchinterval()

    def fail(own):
        try:
            for number in range(rounds):
                shared.add("it")
                counts.add((own, number))
        except BaseException as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        running = [threading.Thread(target=fail, args=(own,)) for own in range(threads)]
        for one in running:
            one.start()
        for one in running:
            one.join(120)
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert len(counts) == 8
    assert shared.add("it") == threads * rounds + 1
