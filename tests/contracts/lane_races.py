"""What every store of lanes must do while many threads write to the same lanes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from angzarr.ordering.lane import Elsewhere, Lane, Moved, ParkedInLane, Place, Step
from angzarr.ordering.lanes import Lanes
from contracts.waiting_events import AT, MANY, MINUTE, early_of, new_lane, step_of

EVENTS = 10


class Workers:
    """Threads that do as workers do: they run what is next, park what is early, and hand on."""

    def __init__(self, lanes: Lanes, *, running: bool) -> None:
        self.lanes = lanes
        self.moved: Counter[tuple[Lane, int]] = Counter()
        self._running = running
        self._lock = threading.Lock()

    def take(self, step: Step) -> None:
        """Take the delivery of *step*, and those that were parked behind it."""
        taken: Step | None = step
        while taken is not None:
            taken = self._taken(taken)

    def _taken(self, step: Step) -> Step | None:
        lane, sequence = step.lane, step.sequence
        while sequence > self.lanes.look(lane).next_sequence:
            early = early_of(lane, sequence, text=f"{lane} {sequence}")
            if isinstance(self.lanes.park(early, MANY), ParkedInLane):
                return None
        answer = self._move(step)
        if isinstance(answer, Elsewhere):
            assert answer.next_sequence > sequence
            return None
        with self._lock:
            self.moved[lane, sequence] += 1
        if answer.successor is None:
            return None
        self.lanes.released(answer.successor)
        return step_of(lane, answer.successor.sequence)

    def _move(self, step: Step) -> Moved | Elsewhere:
        return self.lanes.run(step, lambda _: None) if self._running else self.lanes.move(step)


class LaneRacesContract:
    """Subclasses give `lanes`, and the `checkpoints` beside them."""

    @pytest.mark.parametrize(("running", "copies"), [(False, 1), (True, 1), (True, 2)])
    def test_what_is_parked_while_its_lane_moves_is_handed_out_and_once(
        self, lanes, checkpoints, running, copies
    ):
        handler, workers = new_lane().handler, Workers(lanes, running=running)
        mine = [new_lane(handler) for _ in range(8)]
        steps = [step_of(lane, sequence) for lane in mine for sequence in range(EVENTS)] * copies
        random.Random(copies).shuffle(steps)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(workers.take, steps))
        assert workers.moved == Counter(
            {(lane, sequence): 1 for lane in mine for sequence in range(EVENTS)}
        )
        assert [lanes.look(lane) for lane in mine] == [Place(EVENTS)] * len(mine)
        assert lanes.waiting(handler) == []
        assert checkpoints.get(handler).events_processed == len(mine) * EVENTS

    def test_whoever_parks_while_another_moves_is_seen_or_told(self, lanes):
        lane = new_lane()
        for sequence in range(60):
            with ThreadPoolExecutor(2) as pool:
                moving = pool.submit(lanes.move, step_of(lane, sequence))
                early = early_of(lane, sequence + 1)
                parked = isinstance(pool.submit(lanes.park, early, MANY).result(), ParkedInLane)
            assert moving.result() == Moved(early if parked else None)
            assert lanes.look(lane) == Place(sequence + 1, waiting=int(parked))

    def test_of_many_movers_past_one_place_one_is_counted(self, lanes, checkpoints):
        lane = new_lane()
        lanes.park(early_of(lane, 1), MANY)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: lanes.move(step_of(lane, 0)), range(16)))
        assert answers == [Moved(early_of(lane, 1))] * 16
        assert checkpoints.get(lane.handler).events_processed == 1

    def test_of_many_runs_of_one_place_one_is_counted(self, lanes, checkpoints):
        lane = new_lane()
        with ThreadPoolExecutor(8) as pool:
            step = step_of(lane, 0)
            answers = list(pool.map(lambda _: lanes.run(step, lambda _: None), range(16)))
        assert Counter(answers) == {Moved(None): 1, Elsewhere(1): 15}
        assert checkpoints.get(lane.handler).events_processed == 1

    def test_no_two_keepers_are_lent_one_event(self, lanes):
        handler = new_lane().handler
        for _ in range(30):
            lane = new_lane(handler)
            lanes.park(early_of(lane, 1), MANY)
            lanes.move(step_of(lane, 0))
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(lanes.due, [handler], AT, MINUTE, 4) for _ in range(16)]
            lent = Counter(one.lane for answer in asked for one in answer.result())
        rest = lanes.due([handler], AT, MINUTE, MANY)
        assert set(lent.values()) == {1}
        assert len(lent) + len(rest) == 30

    def test_a_full_lane_stays_full_however_many_park_at_once(self, lanes):
        lane = new_lane()
        with ThreadPoolExecutor(8) as pool:
            early = [early_of(lane, sequence) for sequence in range(1, 17)]
            answers = list(pool.map(lambda one: lanes.park(one, 5), early))
        assert sum(isinstance(answer, ParkedInLane) for answer in answers) == 5
        assert lanes.look(lane) == Place(0, waiting=5)


class SideBySideContract:
    """The same, of stores that have more than one writer at a time."""

    def test_runs_of_other_lanes_wait_for_none(self, lanes):
        slow, quick = new_lane(), new_lane()
        begun, go_on = threading.Event(), threading.Event()

        def work(_):
            begun.set()
            assert go_on.wait(60)

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(lanes.run, step_of(slow, 0), work)
            assert begun.wait(60)
            assert lanes.run(step_of(quick, 0), lambda _: None) == Moved(None)
            assert not running.done()
            go_on.set()
            assert running.result() == Moved(None)
