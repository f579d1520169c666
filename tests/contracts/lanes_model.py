"""Random histories of two handlers' lanes, beside what a dictionary says of them."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from angzarr.aggregates.book import Address
from angzarr.ordering.lane import (
    Elsewhere,
    Full,
    Gap,
    Lane,
    Moved,
    ParkedInLane,
    Place,
    Ready,
    Summary,
    Waiting,
    Why,
)
from angzarr.ordering.lanes import Lanes
from angzarr.projections.checkpoint import Checkpoints
from contracts.histories import run_histories
from contracts.waiting_events import AT, MANY, early_of, letter_of, retrying_of, step_of
from hand_clock import START

MOST = 2
FIRST = 1

which = st.integers(0, 3)
sequences = st.integers(FIRST, FIRST + 4)
minutes = st.integers(0, 3).map(lambda count: AT + timedelta(minutes=count))


class Known:
    """What the rules say of one lane."""

    def __init__(self) -> None:
        self.next = FIRST
        self.moved_at: datetime | None = None
        self.exists = False
        self.rows: dict[int, Waiting] = {}
        self.lent: dict[int, datetime] = {}

    def put(self, waiting: Waiting) -> None:
        self.exists = True
        self.rows[waiting.sequence] = waiting
        self.lent.pop(waiting.sequence, None)

    def drop(self, sequences: list[int]) -> None:
        for sequence in sequences:
            del self.rows[sequence]
            self.lent.pop(sequence, None)

    def early(self) -> list[Waiting]:
        return sorted(
            (one for one in self.rows.values() if one.why is Why.EARLY),
            key=lambda one: one.sequence,
        )

    def parked_at(self, sequence: int) -> Waiting | None:
        return next((one for one in self.early() if one.sequence == sequence), None)

    def step(self, sequence: int, at: datetime) -> Moved | Elsewhere:
        if self.next != sequence:
            return Elsewhere(self.next)
        self.drop([sequence] if sequence in self.rows else [])
        self.next, self.moved_at, self.exists = sequence + 1, at, True
        return Moved(self.parked_at(self.next))


def run_random_histories(lanes: Lanes, checkpoints: Checkpoints, histories: int = 25) -> None:
    """Run random histories on *lanes*, whose clock is at START, and on the rules, side by side."""

    class Histories(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            mark = uuid.uuid4().hex
            self.handlers = [f"{mark}.a", f"{mark}.b"]
            self.lanes = [
                Lane(handler, Address("order", f"{mark}-{root}"), FIRST)
                for handler in self.handlers
                for root in "xy"
            ]
            self.known = {lane: Known() for lane in self.lanes}
            self.counts: Counter[str] = Counter()
            self.copies = 0

        def of(self, handler: str) -> list[tuple[Lane, Known]]:
            return [item for item in self.known.items() if item[0].handler == handler]

        @rule(number=which, sequence=sequences, at=minutes)
        def move(self, number: int, sequence: int, at: datetime) -> None:
            lane = self.lanes[number]
            known = self.known[lane]
            told = known.step(sequence, at)
            self.counts[lane.handler] += isinstance(told, Moved)
            if told == Elsewhere(sequence + 1):
                told = Moved(known.parked_at(sequence + 1))
            assert lanes.move(step_of(lane, sequence, at=at)) == told

        @rule(number=which, sequence=sequences, at=minutes)
        def run(self, number: int, sequence: int, at: datetime) -> None:
            lane = self.lanes[number]
            told = self.known[lane].step(sequence, at)
            self.counts[lane.handler] += isinstance(told, Moved)
            assert lanes.run(step_of(lane, sequence, at=at), lambda _: None) == told

        @rule(number=which, sequence=sequences)
        def fail(self, number: int, sequence: int) -> None:
            def work(_: object) -> None:
                raise ZeroDivisionError

            lane = self.lanes[number]
            try:
                answer = lanes.run(step_of(lane, sequence), work)
            except ZeroDivisionError:
                return
            assert answer == Elsewhere(self.known[lane].next)

        @rule(number=which, sequence=sequences, since=minutes)
        def park(self, number: int, sequence: int, since: datetime) -> None:
            lane = self.lanes[number]
            known = self.known[lane]
            self.copies += 1
            early = early_of(lane, sequence, since=since, text=f"copy {self.copies}")
            answer = lanes.park(early, MOST)
            there, parked = known.parked_at(sequence), len(known.early())
            if known.next >= sequence:
                assert answer == Ready(known.next)
            elif there is None and parked >= MOST:
                assert answer == Full(parked)
                known.exists = True
            else:
                first = since if there is None else min(since, there.since)
                known.put(replace(early, since=first))
                assert answer == ParkedInLane()

        @rule(number=which, sequence=sequences, due_at=minutes, letter=st.booleans())
        def note(self, number: int, sequence: int, due_at: datetime, letter: bool) -> None:  # noqa: FBT001 - hypothesis gives it
            lane = self.lanes[number]
            of = letter_of(lane, sequence) if letter else retrying_of(lane, sequence, due_at=due_at)
            lanes.note(of)
            self.known[lane].exists = True
            if self.known[lane].next <= sequence:
                self.known[lane].put(of)

        @rule(number=which, sequence=sequences, old=st.booleans())
        def released(self, number: int, sequence: int, old: bool) -> None:  # noqa: FBT001 - the same
            lane = self.lanes[number]
            there = self.known[lane].parked_at(sequence)
            lanes.released(early_of(lane, sequence, text="another"))
            if there is not None and not old:
                lanes.released(there)
                self.known[lane].drop([sequence])

        @rule(number=which, sequence=sequences)
        def skip_to(self, number: int, sequence: int) -> None:
            lane = self.lanes[number]
            known = self.known[lane]
            if sequence > known.next:
                known.next, known.moved_at, known.exists = sequence, START, True
                past = [one for one in known.rows.values() if one.sequence < sequence]
                known.drop([one.sequence for one in past if one.why is not Why.EARLY])
            assert lanes.skip_to(lane, sequence) == Place(known.next, len(known.rows))

        @rule(number=st.integers(0, 1))
        def reset(self, number: int) -> None:
            handler = self.handlers[number]
            mine = self.of(handler)
            assert lanes.reset(handler) == sum(known.exists for _, known in mine)
            for _, known in mine:
                known.next, known.moved_at, known.exists = FIRST, None, bool(known.rows)
                known.lent.clear()
            self.counts[handler] = 0

        @rule(now=minutes, lease=st.integers(1, 2), limit=st.sampled_from([1, 2, MANY]))
        def due(self, now: datetime, lease: int, limit: int) -> None:
            free = {
                (lane, one.sequence): one
                for lane, known in self.known.items()
                for one in known.early()
                if one.sequence <= known.next and known.lent.get(one.sequence, now) <= now
            }
            span = timedelta(minutes=lease)
            lent = lanes.due(self.handlers, now, span, limit)
            oldest = sorted(one.since for one in free.values())[:limit]
            assert [one.since for one in lent] == oldest
            for one in lent:
                assert free.pop((one.lane, one.sequence)) == one
                self.known[one.lane].lent[one.sequence] = now + span

        @rule(before=minutes)
        def gaps(self, before: datetime) -> None:
            told = []
            for lane, known in self.known.items():
                ahead = [one for one in known.early() if one.sequence > known.next]
                there = known.rows.get(known.next)
                is_late = there is not None and there.due_at is not None and there.due_at < before
                overdue = there if is_late else None
                stands = known.moved_at is None or known.moved_at < before
                waits = stands and any(one.since < before for one in ahead)
                if waits and (there is None or overdue):
                    told.append(Gap(lane, known.next, ahead[0], len(ahead), overdue))
            found = lanes.gaps(self.handlers, before, MANY)
            assert sorted(found, key=str) == sorted(told, key=str)

        @invariant()
        def all_is_known(self) -> None:
            for lane, known in self.known.items():
                assert lanes.look(lane) == Place(known.next, len(known.rows))
                rows = sorted(known.rows.values(), key=lambda one: one.sequence)
                assert lanes.waiting(lane.handler, address=lane.address) == rows
            for handler in self.handlers:
                moved = {
                    lane.address: known.next for lane, known in self.of(handler) if known.moved_at
                }
                addresses = [lane.address for lane in self.lanes]
                assert lanes.places(handler, addresses) == moved
                found = checkpoints.get(handler)
                assert (found.events_processed if found else 0) == self.counts[handler]

        @invariant()
        def summaries_and_letters_agree(self) -> None:
            behind: dict[str, int] = {}
            told = []
            for handler in self.handlers:
                mine = [known for _, known in self.of(handler)]
                rows = [one for known in mine for one in known.rows.values()]
                parked = sum(one.why is Why.EARLY for one in rows)
                held_up = [known for known in mine if known.next in known.rows]
                letters = [known for known in held_up if known.rows[known.next].letter_id]
                for known in letters:
                    if ahead := [one for one in known.early() if one.sequence > known.next]:
                        behind[known.rows[known.next].letter_id or ""] = len(ahead)
                oldest = min((one.since for one in rows), default=None)
                count = sum(known.exists for known in mine)
                told.append(Summary(handler, count, parked, len(letters), oldest))
            assert lanes.summaries(self.handlers) == told
            ids = [letter_of(lane, place).letter_id for lane in self.lanes for place in range(9)]
            assert lanes.behind([one for one in ids if one]) == behind

    run_histories(Histories, histories=histories, steps=25)
