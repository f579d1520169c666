"""What every store of writes must do. Subclass `WritesContract` and give it `writes`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.hand_clock import HandClock

from angzarr.analysis.ledger.idempotent_requests import (
    RecordedAnswer,
    RequestBegun,
    RequestDiffers,
    RequestRunning,
    WriteKey,
    Writes,
)

KEY = WriteKey("ada", "k1")
LEASE = timedelta(seconds=60)
DAY = timedelta(hours=24)
DONE = RecordedAnswer(status=201, body=b'{"a": 1}', headers=(("location", "/x"),))


class WritesContract:
    """The suite; `writes` begins empty and reads `clock`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def writes(self, clock: HandClock) -> Writes:
        raise NotImplementedError

    def test_a_new_request_is_the_callers_to_work_on(self, writes):
        assert writes.begin(KEY, "f", "t1") == RequestBegun()

    def test_the_same_request_while_it_runs_is_told_when_to_ask_again(self, writes, clock):
        writes.begin(KEY, "f", "t1", lease=LEASE)
        clock.sleep(timedelta(seconds=20))
        assert writes.begin(KEY, "f", "t2", lease=LEASE) == RequestRunning(timedelta(seconds=40))

    def test_the_same_request_later_has_the_same_answer(self, writes):
        writes.begin(KEY, "f", "t1")
        assert writes.finish(KEY, "t1", DONE)
        assert writes.begin(KEY, "f", "t2") == DONE

    def test_another_request_under_the_key_differs_running_or_answered(self, writes):
        writes.begin(KEY, "f", "t1")
        assert writes.begin(KEY, "g", "t2") == RequestDiffers()
        writes.finish(KEY, "t1", DONE)
        assert writes.begin(KEY, "g", "t2") == RequestDiffers()

    def test_two_callers_never_meet(self, writes):
        writes.begin(KEY, "f", "t1")
        assert writes.begin(KEY._replace(caller="bob"), "g", "t2") == RequestBegun()

    def test_a_request_whose_worker_died_can_be_taken_over_after_its_lease(self, writes, clock):
        writes.begin(KEY, "f", "t1", lease=LEASE)
        clock.sleep(LEASE)
        assert writes.begin(KEY, "g", "t2") == RequestDiffers()
        assert writes.begin(KEY, "f", "t2") == RequestBegun()
        assert isinstance(writes.begin(KEY, "f", "t3"), RequestRunning)

    def test_a_late_worker_changes_nothing(self, writes, clock):
        writes.begin(KEY, "f", "t1", lease=LEASE)
        clock.sleep(LEASE)
        writes.begin(KEY, "f", "t2")
        assert not writes.finish(KEY, "t1", DONE)
        assert not writes.forget(KEY, "t1")
        assert writes.finish(KEY, "t2", DONE)

    def test_an_answer_is_not_forgotten_nor_replaced(self, writes):
        writes.begin(KEY, "f", "t1")
        writes.finish(KEY, "t1", DONE)
        assert not writes.forget(KEY, "t1")
        assert not writes.finish(KEY, "t1", RecordedAnswer(status=500, body=b""))
        assert writes.begin(KEY, "f", "t1") == DONE

    def test_a_request_that_came_to_nothing_frees_its_key(self, writes):
        writes.begin(KEY, "f", "t1")
        assert writes.forget(KEY, "t1")
        assert writes.begin(KEY, "g", "t2") == RequestBegun()

    def test_a_key_is_free_again_after_its_retention(self, writes, clock):
        writes.begin(KEY, "f", "t1")
        writes.finish(KEY, "t1", DONE, keep=DAY)
        clock.sleep(DAY - timedelta(seconds=1))
        assert writes.begin(KEY, "f", "t2") == DONE
        clock.sleep(timedelta(seconds=1))
        assert writes.begin(KEY, "g", "t2") == RequestBegun()

    def test_a_request_nobody_came_back_for_is_forgotten_in_the_end(self, writes, clock):
        writes.begin(KEY, "f", "t1", lease=LEASE)
        clock.sleep(LEASE + DAY)
        assert writes.begin(KEY, "g", "t2") == RequestBegun()

    def test_whoever_takes_over_goes_on_with_what_was_chosen(self, writes, clock):
        writes.begin(KEY, "f", "t1", lease=LEASE)
        assert writes.choose(KEY, "t1", b"[1]")
        assert writes.begin(KEY, "f", "t1", lease=LEASE) == RequestBegun(b"[1]")
        assert not writes.choose(KEY, "t2", b"[2]")
        clock.sleep(LEASE)
        assert writes.begin(KEY, "f", "t2") == RequestBegun(b"[1]")
        assert not writes.choose(KEY, "t1", b"[3]")
        assert writes.finish(KEY, "t2", DONE)
        assert writes.begin(KEY, "f", "t3") == DONE

    def test_a_freed_request_keeps_what_it_chose(self, writes):
        writes.begin(KEY, "f", "t1")
        writes.choose(KEY, "t1", b"[1]")
        assert writes.forget(KEY, "t1")
        assert writes.begin(KEY, "g", "t2") == RequestDiffers()
        assert writes.begin(KEY, "f", "t2") == RequestBegun(b"[1]")

    def test_a_lease_is_renewed_by_its_holder(self, writes, clock):
        writes.begin(KEY, "f", "t1", lease=LEASE)
        clock.sleep(timedelta(seconds=40))
        writes.begin(KEY, "f", "t1", lease=LEASE)
        clock.sleep(timedelta(seconds=40))
        assert writes.begin(KEY, "f", "t2", lease=LEASE) == RequestRunning(timedelta(seconds=20))

    def test_of_many_at_once_one_works(self, writes):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda n: writes.begin(KEY, "f", f"t{n}"), range(16)))
        assert sum(one == RequestBegun() for one in found) == 1
        assert all(isinstance(one, RequestBegun | RequestRunning) for one in found)
