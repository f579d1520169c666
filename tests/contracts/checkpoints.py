"""What every store of checkpoints must do. Adapters' tests subclass this on the real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta, timezone
from uuid import uuid4

import pytest

from angzarr.ordering.lanes import Lanes
from angzarr.projections.checkpoint import Checkpoint, Checkpoints
from contracts.waiting_events import AT, new_lane, step_of


def checkpoint(**fields: object) -> Checkpoint:
    given: dict[str, object] = {
        "last_event_id": "e1", "last_event_type": "Counted", "last_processed_at": AT,
        "events_processed": 7,
    }  # fmt: skip
    return Checkpoint(**{**given, **fields})


class CheckpointsContract:
    """Subclasses give `checkpoints`, and the `lanes` that count there."""

    @pytest.fixture
    def checkpoints(self) -> Checkpoints:
        raise NotImplementedError

    @pytest.fixture
    def lanes(self) -> Lanes:
        raise NotImplementedError

    @pytest.fixture
    def projection(self) -> str:
        return f"orders.{uuid4().hex}"

    def test_there_is_none_of_what_has_processed_nothing(self, checkpoints, projection):
        assert checkpoints.get(projection) is None
        assert checkpoints.by_type(projection) == {}
        checkpoints.reset(projection)

    def test_an_update_sets_it_whether_there_was_one_or_not(self, checkpoints, projection):
        strange = "ü\x00\ud800" * 200
        for one in (
            checkpoint(),
            checkpoint(last_event_id=strange, events_processed=2**40),
            checkpoint(last_event_type=strange, events_processed=3),
        ):
            checkpoints.update(projection, one)
            assert checkpoints.get(projection) == one
            assert checkpoints.by_type(projection) == {one.last_event_type: one}

    def test_a_time_of_any_zone_is_the_same_moment(self, checkpoints, projection):
        there = AT.astimezone(timezone(timedelta(hours=-7)))
        checkpoints.update(projection, checkpoint(last_processed_at=there))
        assert checkpoints.get(projection).last_processed_at == AT

    def test_a_reset_clears_the_one_and_no_other(self, checkpoints, projection):
        other = f"{projection}2"
        checkpoints.update(projection, checkpoint())
        checkpoints.update(other, checkpoint())
        for _ in range(2):
            checkpoints.reset(projection)
            assert checkpoints.get(projection) is None
        assert checkpoints.get(other) == checkpoint()

    def test_lanes_count_on_from_an_update(self, checkpoints, lanes, projection):
        lane = new_lane(projection)
        lanes.move(step_of(lane, 0, at=AT))
        checkpoints.update(projection, checkpoint(events_processed=100))
        later = AT + timedelta(minutes=1)
        lanes.move(step_of(lane, 1, event_type="Other", at=later))
        found = checkpoints.get(projection)
        assert found == checkpoint(
            last_event_type="Other", last_processed_at=later, events_processed=101
        )
        counts = checkpoints.by_type(projection)
        assert {name: one.events_processed for name, one in counts.items()} == {
            "Counted": 100,
            "Other": 1,
        }

    def test_what_was_processed_last_is_last_whoever_says_it_first(
        self, checkpoints, lanes, projection
    ):
        newer = AT + timedelta(seconds=5)
        lanes.move(step_of(new_lane(projection), 0, event_id="newer", at=newer))
        lanes.move(step_of(new_lane(projection), 0, event_id="older", at=AT))
        assert checkpoints.get(projection) == checkpoint(
            last_event_id="newer", last_processed_at=newer, events_processed=2
        )

    def test_each_move_is_counted_once_however_many_move_and_repeat(
        self, checkpoints, lanes, projection
    ):
        def walk(_):
            lane = new_lane(projection)
            for sequence in range(12):
                step = step_of(lane, sequence, event_type=f"Type{sequence % 3}")
                lanes.move(step)
                lanes.move(step)
                if sequence % 2:
                    lanes.run(step, lambda _: None)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(walk, range(16)))
        assert checkpoints.get(projection).events_processed == 16 * 12
        by_type = checkpoints.by_type(projection)
        assert {name: one.events_processed for name, one in by_type.items()} == {
            f"Type{number}": 16 * 4 for number in range(3)
        }

    def test_of_many_updates_at_once_one_is_kept_whole(self, checkpoints, projection):
        one = checkpoint()
        with ThreadPoolExecutor(8) as pool:
            names = [f"Type{number}" for number in range(16)]
            updates = [replace(one, last_event_type=name) for name in names]
            list(pool.map(lambda update: checkpoints.update(projection, update), updates))
        (kept,) = checkpoints.by_type(projection).values()
        assert kept in updates
        assert checkpoints.get(projection) == kept
