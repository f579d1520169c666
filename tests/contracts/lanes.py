"""What every store of lanes must do. Adapters' tests subclass this on the real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta, timezone
from uuid import uuid4

import pytest

from angzarr.aggregates.book import MAX_KEY_LENGTH, Address
from angzarr.events.headers import MAX_SEQUENCE
from angzarr.ordering.lane import (
    Elsewhere,
    Full,
    Gap,
    Known,
    Lane,
    Moved,
    ParkedInLane,
    Place,
    Ready,
    SkipCause,
    Standing,
    StepEnd,
    Summary,
    Taken,
)
from angzarr.ordering.lanes import Lanes
from angzarr.projections.checkpoint import Checkpoint, Checkpoints
from contracts import lanes_model
from contracts.waiting_events import (
    AT,
    MANY,
    MINUTE,
    SHORT,
    early_of,
    letter_of,
    new_lane,
    retrying_of,
    step_of,
)


class LanesContract:
    """Subclasses give `lanes`, whose clock is at START, `checkpoints` beside them, `let_pass`."""

    @pytest.fixture
    def lanes(self) -> Lanes:
        raise NotImplementedError

    @pytest.fixture
    def checkpoints(self, lanes) -> Checkpoints:
        raise NotImplementedError

    @pytest.fixture
    def lane(self) -> Lane:
        return new_lane()

    @pytest.fixture
    def move(self, lanes, lane):
        def move(*sequences):
            for sequence in sequences:
                assert isinstance(lanes.move(step_of(lane, sequence)), Moved)

        return move

    @pytest.fixture
    def counted(self, checkpoints, lane):
        def counted():
            found = checkpoints.get(lane.handler)
            return found.events_processed if found else 0

        return counted

    def test_a_lane_that_nobody_moved_is_at_its_first_place(self, lanes):
        assert lanes.look(new_lane()) == Place(0)
        assert lanes.look(new_lane(first=1)) == Place(1)

    def test_a_lane_moves_place_by_place(self, lanes, lane):
        for sequence in range(3):
            assert lanes.move(step_of(lane, sequence)) == Moved(None)
            assert lanes.look(lane) == Place(sequence + 1)

    def test_a_lane_goes_as_far_as_sequences_do(self, lanes):
        lane = new_lane(first=MAX_SEQUENCE - 1)
        last = early_of(lane, MAX_SEQUENCE)
        assert lanes.park(last, MANY) == ParkedInLane()
        assert lanes.move(step_of(lane, MAX_SEQUENCE - 1)) == Moved(last)
        assert lanes.move(step_of(lane, MAX_SEQUENCE)) == Moved(None)
        assert lanes.look(lane) == Place(MAX_SEQUENCE + 1)

    def test_lanes_of_other_handlers_and_addresses_are_others(self, lanes, lane, move):
        move(0)
        address = lane.address
        for other in (
            lane._replace(handler=f"{lane.handler}2"),
            lane._replace(address=address._replace(root=f"x{address.root}")),
            lane._replace(address=address._replace(domain="player")),
            lane._replace(address=address._replace(edition="what-if")),
        ):
            assert lanes.look(other) == Place(0)

    def test_a_lane_that_is_elsewhere_says_where_and_stays(self, lanes, lane, move, counted):
        assert lanes.move(step_of(lane, 1)) == Elsewhere(0)
        assert lanes.look(lane) == Place(0)
        move(0, 1, 2)
        assert lanes.move(step_of(lane, 0)) == Elsewhere(3)
        assert lanes.move(step_of(lane, 4)) == Elsewhere(3)
        assert lanes.look(lane) == Place(3)
        assert counted() == 3

    def test_a_repeated_move_answers_the_same_and_counts_once(self, lanes, lane, counted):
        lanes.park(early_of(lane, 1), MANY)
        first = lanes.move(step_of(lane, 0))
        assert first == Moved(early_of(lane, 1))
        assert lanes.move(step_of(lane, 0)) == first
        assert lanes.look(lane) == Place(1, waiting=1)
        assert counted() == 1

    @pytest.mark.parametrize("skipped", [None, SkipCause("ü\x00\ud800"), SkipCause("", "s-1")])
    def test_a_lane_tells_how_its_steps_ended(self, lanes, lane, skipped):
        first = step_of(lane, 0, event_id="ü\x00\ud800", token="t0", skipped=skipped)
        lanes.move(first)
        lanes.park(early_of(lane, 2), MANY)
        lanes.move(step_of(lane, 1, token="t1", skipped=skipped, at=AT + MINUTE))
        lanes.run(step_of(lane, 2, token="t2"), lambda _: None)
        again = [
            first._replace(token="another", at=AT + 20 * MINUTE),
            step_of(lane, 1, at=AT + 90 * MINUTE), step_of(lane, 2),
        ]  # fmt: skip
        ends = [lanes.ended(step, AT) for step in again]
        assert ends == [
            StepEnd("t0", AT, skipped), StepEnd("t1", AT + MINUTE, skipped), StepEnd("t2", AT),
        ]  # fmt: skip

    def test_no_lane_tells_of_what_did_not_move_it(self, lanes, lane):
        lanes.move(step_of(lane, 0, token="t0"))
        lanes.move(step_of(lane, 0, token="late"))
        lanes.move(step_of(lane, 0, event_id="twin", token="late"))
        lanes.move(step_of(lane, 1))  # no delivery did
        lanes.skip_to(lane, 5)
        told = [lanes.ended(step_of(lane, sequence), AT) for sequence in range(5)]
        assert told == [StepEnd("t0", AT), None, None, None, None]
        assert lanes.ended(step_of(lane, 0, event_id="twin"), AT) is None
        assert lanes.ended(step_of(new_lane(), 0), AT) is None
        assert lanes.ended(step_of(lane, 0), AT + SHORT) is None, "that is too long ago"

    def test_a_step_that_is_taken_anew_ends_as_it_did_last(self, lanes, lane):
        for times, minutes in enumerate((0, 1, 20)):
            step = step_of(lane, 0, token=f"t{times}", at=AT + minutes * MINUTE)
            lanes.move(step)
            assert lanes.ended(step._replace(token=""), AT) == StepEnd(step.token, step.at)
            lanes.reset(lane.handler)

    def test_old_ends_are_forgotten_and_the_oldest_first(self, lanes, lane):
        long_ago = AT - timedelta(days=900)
        steps = [
            step_of(lane, number, token="t", at=long_ago + number * timedelta(hours=1))
            for number in range(5)
        ]
        for step in steps:
            lanes.move(step)

        def known():
            return [step.sequence for step in steps if lanes.ended(step, long_ago)]

        assert lanes.forget_ends(long_ago, MANY) == 0
        assert lanes.forget_ends(long_ago + timedelta(hours=10), 2) == 2
        assert known() == [2, 3, 4]
        assert lanes.forget_ends(long_ago + timedelta(hours=3, minutes=30), MANY) == 2
        assert known() == [4]
        assert lanes.forget_ends(AT - timedelta(days=800), MANY) == 1
        assert known() == []

    def test_a_move_tells_the_checkpoint_what_it_passed(self, lanes, lane, checkpoints):
        lanes.move(step_of(lane, 0))
        last = step_of(lane, 1, event_id="ü\x00\ud800", event_type="Strange\x00", at=AT + MINUTE)
        lanes.move(last)
        told = Checkpoint(
            last_event_id=last.event_id,
            last_event_type=last.event_type,
            last_processed_at=last.at,
            events_processed=2,
        )
        assert checkpoints.get(lane.handler) == told
        assert checkpoints.by_type(lane.handler) == {
            "Counted": replace(told, last_event_id="e0", last_event_type="Counted",
                               last_processed_at=AT, events_processed=1),
            last.event_type: replace(told, events_processed=1),
        }  # fmt: skip

    def test_names_and_roots_of_any_length_and_letters_are_kept_apart(self, lanes):
        root = "\N{GRINNING FACE}" * MAX_KEY_LENGTH
        long = Lane("h\N{GRINNING FACE} %:" * 50, Address("d" * 64, root, root))
        near = long._replace(handler=f"{long.handler}x")
        assert lanes.park(early_of(long, 1), MANY) == ParkedInLane()
        assert lanes.move(step_of(long, 0, event_type="t" * 500)) == Moved(early_of(long, 1))
        assert lanes.look(near) == Place(0)
        assert lanes.waiting(long.handler) == [early_of(long, 1)]
        assert lanes.due([near.handler, long.handler], AT, MINUTE, 9) == [early_of(long, 1)]

    def test_what_is_parked_is_handed_out_by_who_comes_to_its_place(self, lanes, lane):
        strange = early_of(lane, 2, event_id="ü\x00\ud800", event_type="T\x00", text='{"ü": 1}')
        assert lanes.park(strange, MANY) == ParkedInLane()
        assert lanes.park(early_of(lane, 1), MANY) == ParkedInLane()
        assert lanes.look(lane) == Place(0, waiting=2)
        assert lanes.move(step_of(lane, 0)) == Moved(early_of(lane, 1))
        assert lanes.move(step_of(lane, 1)) == Moved(strange)
        assert lanes.look(lane) == Place(2, waiting=1)
        assert lanes.move(step_of(lane, 2)) == Moved(None)
        assert lanes.look(lane) == Place(3)

    def test_a_move_forgets_what_was_known_of_its_event(self, lanes, lane):
        for sequence, of in enumerate((early_of, retrying_of, letter_of)):
            one = of(lane, sequence)
            if of is early_of:
                lanes.move(step_of(lane, 0))  # nothing is parked for the first place
                continue
            lanes.note(one)
            assert lanes.look(lane) == Place(sequence, waiting=1)
            assert lanes.move(step_of(lane, sequence)) == Moved(None)
            assert lanes.look(lane) == Place(sequence + 1)
        assert lanes.waiting(lane.handler) == []

    def test_what_waits_next_but_is_not_parked_is_no_successor(self, lanes, lane):
        lanes.note(retrying_of(lane, 1))
        assert lanes.move(step_of(lane, 0)) == Moved(None)
        assert lanes.look(lane) == Place(1, waiting=1)

    def test_what_the_lane_has_come_to_need_not_be_parked(self, lanes, lane, move):
        assert lanes.park(early_of(lane, 0), MANY) == Ready(0)
        move(0, 1)
        assert lanes.park(early_of(lane, 1), MANY) == Ready(2)
        assert lanes.park(early_of(lane, 2), MANY) == Ready(2)
        assert lanes.look(lane) == Place(2)

    def test_a_question_of_no_consequence_makes_no_lane(self, lanes, lane):
        lanes.park(early_of(lane, 0), MANY)
        lanes.skip_to(lane, 0)
        lanes.released(early_of(lane, 3))
        lanes.move(step_of(lane, 3))
        assert lanes.summaries([lane.handler]) == [Summary(lane.handler, 0, 0, 0, None)]

    def test_another_event_at_the_same_place_is_not_parked(self, lanes, lane):
        first = early_of(lane, 2)
        lanes.park(first, MANY)
        assert lanes.park(replace(first, event_id="another", text="x"), MANY) == Taken(
            first.event_id
        )
        assert lanes.waiting(lane.handler) == [first]

    def test_no_more_than_so_many_are_parked_in_a_lane(self, lanes, lane):
        lanes.note(letter_of(lane, 0))
        lanes.note(retrying_of(lane, 3))
        for sequence in (1, 2):
            assert isinstance(lanes.park(early_of(lane, sequence), 2), ParkedInLane)
        assert lanes.park(early_of(lane, 4), 2) == Full(2)
        assert lanes.park(early_of(lane, 3), 2) == Full(2)
        assert isinstance(lanes.park(early_of(lane, 2, text="anew"), 2), ParkedInLane)
        assert lanes.look(lane) == Place(0, waiting=4)

    def test_what_is_parked_again_is_replaced_and_waits_since_the_first_time(self, lanes, lane):
        lanes.park(early_of(lane, 5), MANY)
        again = early_of(lane, 5, text="second copy", since=AT + MINUTE)
        assert lanes.park(again, MANY) == ParkedInLane()
        assert lanes.park(again, MANY) == ParkedInLane()
        assert lanes.look(lane) == Place(0, waiting=1)
        assert lanes.waiting(lane.handler) == [replace(again, since=AT)]

    def test_a_note_replaces_what_was_known_of_the_place(self, lanes, lane):
        lanes.park(early_of(lane, 1), MANY)
        for one in (retrying_of(lane, 1), letter_of(lane, 1), letter_of(lane, 1)):
            lanes.note(one)
            assert lanes.waiting(lane.handler) == [one]
            assert lanes.look(lane) == Place(0, waiting=1)
        assert isinstance(lanes.park(early_of(lane, 1), MANY), ParkedInLane)
        assert lanes.waiting(lane.handler) == [early_of(lane, 1)]

    def test_a_letter_in_the_place_of_what_was_lent_is_lent_no_more(self, lanes, lane):
        for n in (1, 2):
            lanes.park(early_of(lane, n), MANY)
        lanes.move(step_of(lane, 0))
        assert lanes.due([lane.handler], AT, MINUTE, 9) == [early_of(lane, 1)]
        letter = letter_of(lane, 1)
        lanes.note(letter)
        lanes.released(early_of(lane, 1))
        assert lanes.waiting(lane.handler) == [letter, early_of(lane, 2)]
        assert lanes.due([lane.handler], AT + 2 * MINUTE, MINUTE, 9) == []
        assert lanes.behind([letter.letter_id]) == {letter.letter_id: 1}

    @pytest.mark.parametrize("make", [letter_of, retrying_of])
    def test_a_note_forgets_no_message_that_is_nowhere_else(self, lanes, lane, make):
        """What was not claimed is one more of them; what has another id, has another claim."""
        parked = early_of(lane, 1)
        lanes.park(parked, MANY)
        lanes.note(make(lane, 1), claimed=False)
        lanes.note(make(lane, 1, event_id="another"))
        assert lanes.waiting(lane.handler) == [parked]
        assert lanes.move(step_of(lane, 0)) == Moved(parked)
        lanes.released(parked)
        lanes.note(make(lane, 1), claimed=False)
        assert lanes.waiting(lane.handler) == [make(lane, 1)]
        assert lanes.look(lane) == Place(1, waiting=1)

    def test_a_note_without_a_claim_hides_no_letter_and_no_retry(self, lanes, lane):
        for known in (letter_of(lane, 1), retrying_of(lane, 1)):
            lanes.note(known)
            lanes.note(letter_of(lane, 1, letter_id="of another body"), claimed=False)
            lanes.note(retrying_of(lane, 1, due_at=AT), claimed=False)
            assert lanes.waiting(lane.handler) == [known]

    def test_who_waits_longer_says_so_without_a_claim(self, lanes, lane):
        first, later = (retrying_of(lane, 1, due_at=AT + n * MINUTE, text=f"{n}") for n in (1, 2))
        lanes.note(first, claimed=False)
        lanes.note(later, claimed=False)
        assert lanes.waiting(lane.handler) == [later]
        lanes.note(first, claimed=False)
        lanes.note(replace(later, event_id="another", due_at=AT + 9 * MINUTE), claimed=False)
        assert lanes.waiting(lane.handler) == [later]
        assert lanes.look(lane) == Place(0, waiting=1)

    def test_a_note_of_what_is_past_is_nothing(self, lanes, lane, move):
        move(0, 1)
        lanes.note(letter_of(lane, 1))
        assert lanes.look(lane) == Place(2)
        lanes.note(letter_of(lane, 2))
        assert lanes.look(lane) == Place(2, waiting=1)

    def test_what_is_released_is_forgotten(self, lanes, lane):
        lanes.park(early_of(lane, 1), MANY)
        lanes.move(step_of(lane, 0))
        for _ in range(2):
            lanes.released(early_of(lane, 1))
            assert lanes.look(lane) == Place(1)
        assert lanes.due([lane.handler], AT, MINUTE, 9) == []

    def test_a_late_word_of_a_release_loses_nothing_that_was_kept_since_then(self, lanes, lane):
        lanes.park(early_of(lane, 1), MANY)
        lanes.move(step_of(lane, 0))
        lanes.reset(lane.handler)
        lanes.park(early_of(lane, 1, text="second copy"), MANY)
        lanes.released(early_of(lane, 1))
        assert lanes.look(lane) == Place(0, waiting=1)
        lanes.note(retrying_of(lane, 1))
        lanes.released(early_of(lane, 1, text="second copy"))
        assert lanes.look(lane) == Place(0, waiting=1)

    def test_what_a_dead_process_did_not_release_is_due(self, lanes, lane):
        for sequence in (1, 2):
            lanes.park(early_of(lane, sequence), MANY)
        assert lanes.due([lane.handler], AT, MINUTE, 9) == []
        lanes.move(step_of(lane, 0))
        assert lanes.due(["another.handler"], AT, MINUTE, 9) == []
        assert lanes.due([lane.handler, "another.handler"], AT, MINUTE, 9) == [early_of(lane, 1)]

    def test_nothing_is_recalled_where_nothing_was_passed_by(self, lanes, lane):
        for sequence in (1, 2):
            lanes.park(early_of(lane, sequence), MANY)
        assert lanes.recall([lane.handler], 9) == 0
        lanes.move(step_of(lane, 0))
        assert lanes.recall([lane.handler], 9) == 0
        assert lanes.due([lane.handler], AT, MINUTE, 9) == [early_of(lane, 1)]
        assert lanes.recall([lane.handler], 9) == 0
        assert lanes.look(lane) == Place(1, waiting=2)
        assert lanes.due([lane.handler], AT, MINUTE, 9) == []

    def test_what_is_lent_is_lent_to_nobody_else_for_a_while(self, lanes, lane):
        lanes.park(early_of(lane, 1), MANY)
        lanes.move(step_of(lane, 0))
        assert lanes.due([lane.handler], AT, MINUTE, 9) == [early_of(lane, 1)]
        assert lanes.due([lane.handler], AT + MINUTE / 2, MINUTE, 9) == []
        assert lanes.due([lane.handler], AT + MINUTE, MINUTE, 9) == [early_of(lane, 1)]

    def test_what_waits_longest_is_lent_first_and_no_more_than_asked_for(self, lanes, lane):
        others = [new_lane(lane.handler) for _ in range(4)]
        for number, other in enumerate(others):
            lanes.park(early_of(other, 1, since=AT - number * MINUTE), MANY)
            lanes.move(step_of(other, 0))
        first, second = (lanes.due([lane.handler], AT, MINUTE, 2) for _ in range(2))
        assert [one.lane for one in (*first, *second)] == others[::-1]

    def test_what_was_skipped_over_is_due_as_well(self, lanes, lane):
        for sequence in (2, 5, 7, 9):
            lanes.park(early_of(lane, sequence), MANY)
        assert lanes.skip_to(lane, 7) == Place(7, waiting=4)
        due = lanes.due([lane.handler], AT, MINUTE, 9)
        assert [one.sequence for one in due] == [2, 5, 7]
        assert lanes.park(early_of(lane, 2), MANY) == Ready(7)
        for one in due:
            lanes.released(one)
        assert lanes.look(lane) == Place(7, waiting=1)

    def test_a_lane_is_moved_on_and_never_back(self, lanes, lane, counted):
        assert lanes.skip_to(lane, 3) == Place(3)
        assert lanes.skip_to(lane, 3) == lanes.skip_to(lane, 1) == Place(3)
        assert lanes.look(lane) == Place(3)
        assert lanes.move(step_of(lane, 3)) == Moved(None)
        assert counted() == 1

    def test_who_moves_a_lane_on_forgets_what_is_past_and_not_parked(self, lanes, lane):
        lanes.note(letter_of(lane, 0))
        lanes.note(retrying_of(lane, 1))
        lanes.note(letter_of(lane, 2))
        lanes.park(early_of(lane, 3), MANY)
        assert lanes.skip_to(lane, 2) == Place(2, waiting=2)
        assert lanes.waiting(lane.handler) == [letter_of(lane, 2), early_of(lane, 3)]

    def test_a_missing_event_is_a_gap_once_others_wait_long(self, lanes, lane, move):
        move(0)
        for sequence in (4, 3):
            lanes.park(early_of(lane, sequence, since=AT + sequence * MINUTE), MANY)
        asked = [lane.handler]
        assert lanes.gaps(asked, AT + 3 * MINUTE, 9) == []
        gap = Gap(lane, 1, early_of(lane, 3, since=AT + 3 * MINUTE), 2)
        assert lanes.gaps(asked, AT + 4 * MINUTE, 9) == [gap]
        assert lanes.gaps(["another.handler"], AT + 4 * MINUTE, 9) == []

    def test_a_lane_that_has_just_moved_has_no_gap(self, lanes, lane):
        lanes.park(early_of(lane, 3, since=AT - 60 * MINUTE), MANY)
        lanes.move(step_of(lane, 0))
        asked = [lane.handler]
        assert lanes.gaps(asked, AT, 9) == [], "what comes next may be in a queue"
        assert [gap.missing for gap in lanes.gaps(asked, AT + MINUTE, 9)] == [1]

    def test_what_is_known_is_no_gap(self, lanes, lane):
        lanes.park(early_of(lane, 1), MANY)
        asked, later = [lane.handler], AT + 5 * MINUTE
        lanes.note(letter_of(lane, 0))
        assert lanes.gaps(asked, later, 9) == []
        lanes.note(retrying_of(lane, 0, due_at=later))
        assert lanes.gaps(asked, later, 9) == []
        overdue = retrying_of(lane, 0, due_at=later - MINUTE, text="its copy")
        lanes.note(overdue)
        assert [(gap.missing, gap.overdue) for gap in lanes.gaps(asked, later, 9)] == [(0, overdue)]
        lanes.move(step_of(lane, 0))
        assert lanes.gaps(asked, later, 9) == [], "the next one is parked, and due"

    def test_gaps_are_told_the_longest_waiting_first(self, lanes, lane):
        others = [new_lane(lane.handler, first=1) for _ in range(3)]
        for number, other in enumerate(others):
            lanes.park(early_of(other, 2, since=AT - number * MINUTE), MANY)
        gaps = lanes.gaps([lane.handler], AT + MINUTE, 2)
        assert [gap.lane for gap in gaps] == [others[2], others[1]]
        assert [gap.missing for gap in gaps] == [1, 1]

    def test_what_was_sent_for_a_gap_is_told_while_it_is_there(self, lanes, lane):
        lanes.park(early_of(lane, 2), MANY)
        later, asked = AT + MINUTE, [lane.handler]
        (gap,) = lanes.gaps(asked, later, 9)
        assert (gap.sent, gap.sent_until) == (0, None)
        assert lanes.sending(gap, 0, AT + 5 * MINUTE)
        (taken,) = lanes.gaps(asked, later, 9)
        assert taken == gap._replace(sent=0, sent_until=AT + 5 * MINUTE)
        assert lanes.sending(taken, 1, AT + 9 * MINUTE)
        (told,) = lanes.gaps(asked, later, 9)
        assert (told.sent, told.sent_until) == (1, AT + 9 * MINUTE)
        lanes.move(step_of(lane, 0))
        (other,) = lanes.gaps(asked, later, 9)
        assert other == gap._replace(missing=1), "that was of another place"

    def test_one_of_several_takes_a_gap(self, lanes, lane):
        lanes.park(early_of(lane, 2), MANY)
        for _ in range(2):
            (gap,) = lanes.gaps([lane.handler], AT + MINUTE, 9)
            until = AT + (gap.sent + 1) * MINUTE
            with ThreadPoolExecutor(8) as pool:
                taken = pool.map(lambda n: lanes.sending(gap, gap.sent + 1, until), range(8))  # noqa: B023 - ends here
            assert sorted(taken) == [False] * 7 + [True]
        lanes.move(step_of(lane, 0))
        assert not lanes.sending(gap, 5, AT + 9 * MINUTE), "it is missing no more"

    def test_a_reset_forgets_what_was_sent(self, lanes, lane):
        lanes.park(early_of(lane, 2), MANY)
        (gap,) = lanes.gaps([lane.handler], AT + MINUTE, 9)
        assert lanes.sending(gap, 1, AT + MINUTE)
        lanes.reset(lane.handler)
        assert lanes.gaps([lane.handler], AT + MINUTE, 9) == [gap]

    def test_gaps_that_may_be_sent_soonest_come_first(self, lanes, lane):
        others = [new_lane(lane.handler) for _ in range(3)]
        for number, other in enumerate(others):
            lanes.park(early_of(other, 2, since=AT - number * MINUTE), MANY)
        for gap, minutes in zip(lanes.gaps([lane.handler], AT + MINUTE, 2), (9, 5), strict=True):
            assert lanes.sending(gap, 1, AT + minutes * MINUTE)
        found = [gap.lane for gap in lanes.gaps([lane.handler], AT + MINUTE, 9)]
        assert found == [others[0], others[1], others[2]]

    def test_places_are_told_of_lanes_that_somebody_moved(self, lanes, lane):
        moved, parked = new_lane(lane.handler), new_lane(lane.handler)
        lanes.move(step_of(moved, 0))
        lanes.park(early_of(parked, 1), MANY)
        there = {moved.address: 1}
        unknown = [Address("order", str(uuid4())) for _ in range(997)]
        asked = [*unknown, moved.address, parked.address, lane.address]
        assert lanes.places(lane.handler, asked) == there
        assert lanes.places(lane.handler, []) == {}
        assert lanes.places("another.handler", [moved.address]) == {}

    def test_summaries_are_of_each_handler_in_the_order_asked(self, lanes, lane):
        other = new_lane()
        lanes.move(step_of(other, 0))
        lanes.note(letter_of(lane, 0, since=AT - MINUTE))
        for sequence in (1, 2):
            lanes.park(early_of(lane, sequence), MANY)
        second = new_lane(lane.handler)
        lanes.note(letter_of(second, 1))  # its turn has not come
        assert lanes.summaries([other.handler, "nobody", lane.handler]) == [
            Summary(other.handler, 1, 0, 0, None),
            Summary("nobody", 0, 0, 0, None),
            Summary(lane.handler, 2, 2, 1, AT - MINUTE),
        ]

    def test_what_waits_is_listed_lane_by_lane_in_order(self, lanes, lane):
        second = new_lane(lane.handler)
        for sequence in (12, 2, 1):
            lanes.park(early_of(lane, sequence), MANY)
            lanes.park(early_of(second, sequence), MANY)
        found = lanes.waiting(lane.handler)
        assert [one.sequence for one in found] == [1, 2, 12] * 2
        assert {one.lane for one in found[:3]} | {one.lane for one in found[3:]} == {lane, second}
        assert len({one.lane for one in found[:3]}) == 1
        assert lanes.waiting(lane.handler, limit=4) == found[:4]
        only = lanes.waiting(lane.handler, address=second.address)
        assert [one.lane for one in only] == [second] * 3
        assert lanes.waiting(new_lane().handler) == []

    def test_lanes_in_which_something_waits_are_told_a_page_at_a_time(self, lanes, lane, move):
        blocked, gap, early, past = (
            Lane(lane.handler, Address("order", root), 1) for root in ("a", "b%' b", "c", "d")
        )
        lanes.note(letter_of(blocked, 1))
        for sequence in (4, 3):
            lanes.park(early_of(blocked, sequence), MANY)
        lanes.park(early_of(gap, 5), MANY)
        lanes.park(early_of(early, 2), MANY)
        lanes.note(retrying_of(early, 1))
        lanes.note(letter_of(early, 3))
        lanes.park(early_of(past, 2), MANY)
        lanes.skip_to(past, 4)
        move(0)  # nothing waits there
        found = lanes.standing(lane.handler, limit=9)
        assert found == [
            Standing(blocked, 1, 3, letter_of(blocked, 1)),
            Standing(gap, 1, 1, early_of(gap, 5, text=None)),
            Standing(early, 1, 3, retrying_of(early, 1)),
            Standing(past, 4, 1, None),
        ]
        assert lanes.standing(lane.handler, limit=2) == found[:2]
        assert lanes.standing(lane.handler, after=gap.address, limit=1) == found[2:3]
        assert lanes.standing(lane.handler, after=past.address, limit=9) == []
        assert lanes.standing(lane.handler, blocked=True, limit=9) == found[:1]
        assert lanes.standing(lane.handler, blocked=True, after=blocked.address, limit=9) == []
        assert lanes.standing(new_lane().handler, limit=9) == []

    def test_handlers_that_have_lanes_are_known_with_their_domains(self, lanes, lane, move):
        odd = new_lane(f"{lane.handler}: 50 %\x7f", first=1)
        other = Lane(lane.handler, Address("stock", "s-1"), 0)
        move(0)
        lanes.park(early_of(other, 1), MANY)
        lanes.park(early_of(odd, 2), MANY)
        found = [one for one in lanes.known() if one.handler.startswith(lane.handler)]
        assert found == [
            Known(lane.handler, frozenset({"order", "stock"}), 0),
            Known(odd.handler, frozenset({"order"}), 1),
        ]

    def test_a_letter_is_told_how_many_are_parked_behind_it(self, lanes, lane):
        alone, later = new_lane(lane.handler), new_lane(lane.handler)
        holds_up, idle, not_yet = letter_of(lane, 0), letter_of(alone, 0), letter_of(later, 2)
        for letter in (holds_up, idle, not_yet):
            lanes.note(letter)
        lanes.note(retrying_of(lane, 1))
        for sequence in (2, 3):
            lanes.park(early_of(lane, sequence), MANY)
        lanes.park(early_of(later, 4), MANY)
        past = new_lane(lane.handler)
        lanes.park(early_of(past, 2), MANY)
        lanes.skip_to(past, 3)
        lanes.note(ahead := letter_of(past, 3))
        asked = [one.letter_id for one in (holds_up, idle, not_yet, ahead)]
        assert lanes.behind([*asked, "unknown"]) == {holds_up.letter_id: 2}
        assert lanes.behind([]) == {}

    def test_a_reset_lets_all_lanes_of_a_handler_begin_anew(self, lanes, checkpoints, lane):
        second, other = new_lane(lane.handler, first=1), new_lane()
        for one in (lane, second, other):
            lanes.move(step_of(one, one.first))
        assert lanes.reset(lane.handler) == 2
        assert (lanes.look(lane), lanes.look(second), lanes.look(other)) == (
            Place(0),
            Place(1),
            Place(1),
        )
        assert checkpoints.get(lane.handler) is None
        assert checkpoints.get(other.handler) is not None
        assert lanes.places(lane.handler, [lane.address, second.address]) == {}
        assert lanes.reset(lane.handler) == 0

    def test_the_work_of_a_reset_and_the_reset_are_one(self, lanes, checkpoints, lane):
        lanes.move(step_of(lane, 0))
        done = []
        assert lanes.reset(lane.handler, done.append) == 1
        assert len(done) == 1
        lanes.move(step_of(lane, 0))
        with pytest.raises(ZeroDivisionError):
            lanes.reset(lane.handler, lambda _connection: 1 / 0)
        assert lanes.look(lane) == Place(1)
        assert checkpoints.get(lane.handler) is not None

    def test_a_reset_keeps_all_that_waits(self, lanes):
        lane = new_lane(first=1)
        lanes.park(early_of(lane, 3), MANY)
        lanes.park(early_of(lane, 5), MANY)
        lanes.note(letter_of(lane, 4))
        lanes.move(step_of(lane, 1))
        assert lanes.move(step_of(lane, 2)) == Moved(early_of(lane, 3))
        kept = [early_of(lane, 3), letter_of(lane, 4), early_of(lane, 5)]
        assert lanes.reset(lane.handler) == 1
        assert lanes.look(lane) == Place(1, waiting=3)
        assert lanes.places(lane.handler, [lane.address]) == {}
        assert lanes.waiting(lane.handler) == kept
        assert lanes.due([lane.handler], AT, MINUTE, 9) == [], "its turn comes again"
        lanes.move(step_of(lane, 1))
        assert lanes.move(step_of(lane, 2)) == Moved(early_of(lane, 3))

    def test_times_of_any_zone_are_the_same_moments(self, lanes, lane):
        there = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
        lanes.park(early_of(lane, 1, since=there), MANY)
        lanes.note(retrying_of(lane, 0, due_at=there, since=there))
        first, second = lanes.waiting(lane.handler)
        assert (first.due_at, first.since, second.since) == (AT, AT, AT)
        lanes.move(step_of(lane, 0, at=there))
        west = AT.astimezone(timezone(timedelta(hours=-7)))
        assert len(lanes.due([lane.handler], west, MINUTE, 9)) == 1
        assert len(lanes.due([lane.handler], there + MINUTE, MINUTE, 9)) == 1

    def test_a_run_moves_and_counts(self, lanes, lane, counted):
        lanes.park(early_of(lane, 1), MANY)
        ran = []
        assert lanes.run(step_of(lane, 0), ran.append) == Moved(early_of(lane, 1))
        assert lanes.run(step_of(lane, 1), ran.append) == Moved(None)
        assert lanes.look(lane) == Place(2)
        assert (len(ran), counted()) == (2, 2)

    @pytest.mark.parametrize("sequence", [0, 2])
    def test_a_run_of_what_is_not_next_says_so(self, lanes, lane, move, counted, sequence):
        move(0)
        assert lanes.run(step_of(lane, sequence), lambda _: None) == Elsewhere(1)
        assert (lanes.look(lane), counted()) == (Place(1), 1)

    @pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
    def test_what_a_run_raises_goes_through_and_nothing_moves(self, lanes, lane, counted, error):
        def work(_):
            raise error

        for waiting in (0, 1):
            with pytest.raises(type(error)) as caught:
                lanes.run(step_of(lane, 0), work)
            assert caught.value is error
            assert (lanes.look(lane), counted()) == (Place(0, waiting), 0)
            lanes.park(early_of(lane, 1), MANY)
        assert lanes.run(step_of(lane, 0), lambda _: None) == Moved(early_of(lane, 1))

    def test_who_enters_sees_where_the_lane_is_and_runs_there(self, lanes, lane, counted):
        lanes.park(early_of(lane, 1), MANY)
        with closing(lanes.enter(lane)) as entered:
            assert entered.place == lanes.look(lane) == Place(0, 1)
            assert entered.run(step_of(lane, 0), lambda _: None) == Moved(early_of(lane, 1))
        with closing(lanes.enter(lane)) as entered:
            assert entered.place == Place(1, 1)
            assert entered.run(step_of(lane, 0), lambda _: None) == Elsewhere(1)
        assert (lanes.look(lane), counted()) == (Place(1, 1), 1)

    def test_who_entered_and_leaves_has_done_nothing(self, lanes, lane, counted):
        entered = lanes.enter(lane)
        for _ in range(2):
            entered.close()
        assert (lanes.look(lane), counted()) == (Place(0), 0)

    def test_what_is_raised_by_who_entered_goes_through(self, lanes, lane, counted):
        def work(_):
            raise ValueError("no")

        with closing(lanes.enter(lane)) as entered, pytest.raises(ValueError, match="no"):
            entered.run(step_of(lane, 0), work)
        assert (lanes.look(lane), counted()) == (Place(0), 0)

    def test_of_two_that_entered_one_runs(self, lanes, lane, counted):
        with closing(lanes.enter(lane)) as one, closing(lanes.enter(lane)) as other:
            assert one.run(step_of(lane, 0), lambda _: None) == Moved(None)
            assert other.run(step_of(lane, 0), lambda _: None) == Elsewhere(1)
        assert (lanes.look(lane), counted()) == (Place(1), 1)

    def test_a_run_may_ask_about_its_lane(self, lanes, lane):
        seen = []
        lanes.run(step_of(lane, 0), lambda _: seen.append(lanes.look(lane)))
        assert seen == [Place(0)]

    def test_a_transaction_moves_no_lane_and_lets_what_is_raised_through(self, lanes, lane):
        with lanes.transaction():
            assert lanes.look(lane) == Place(0)
        error = ValueError("no")
        with pytest.raises(ValueError, match="no") as caught, lanes.transaction():
            raise error
        assert caught.value is error
        assert lanes.look(lane) == Place(0)

    def test_one_keeper_is_on_duty_until_its_span_is_over(self, lanes, lane, let_pass):
        other = new_lane().handler
        of = [lane.handler, other]
        assert lanes.on_duty("a", MINUTE, of=of)
        assert not lanes.on_duty("b", MINUTE, of=of[::-1])
        assert lanes.on_duty("a", SHORT, of=of)
        assert lanes.on_duty("b", MINUTE, of=[lane.handler]), "these are others"
        let_pass(SHORT)
        assert lanes.on_duty("b", MINUTE, of=of)
        assert not lanes.on_duty("a", MINUTE, of=of)

    def test_of_many_keepers_at_once_one_is_on_duty(self, lanes, lane):
        def ask(number):
            return lanes.on_duty(str(number), MINUTE, of=[lane.handler])

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(ask, range(16))) == 1

    def test_random_histories_are_those_of_a_dictionary(self, lanes, checkpoints):
        lanes_model.run_random_histories(lanes, checkpoints)
