"""What a queue must do besides that keeps letters of one aggregate in order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from angzarr.dead_letters.queue import DeadLetterQueue
from contracts.dead_letters import LetterRoundContract, a_letter, ids, take


class OrderedLettersContract(LetterRoundContract):
    """The way of a letter, and its order."""

    def test_letters_of_one_root_come_in_order_and_others_are_not_kept_back(
        self, queue: DeadLetterQueue, domain: str
    ) -> None:
        event = a_letter(domain).event
        first = [a_letter(domain, number, event=event) for number in range(12)]
        assert queue.put([*first, a_letter(domain, 99)]) == [None] * 13
        seen: list[Any] = []
        while len(seen) < 13:
            taken = take(queue, [domain], min(5, 13 - len(seen)))
            assert taken, "letters in flight hold up none that could come"
            seen += [receipt.letter for receipt in taken]
            queue.done(taken)
        assert [letter for letter in seen if letter.event == event] == first
        assert a_letter(domain, 99) in seen

    def test_what_comes_after_a_letter_in_hand_waits_for_it(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        queue, other = opened(), opened()
        event = a_letter(domain).event
        queue.put([a_letter(domain, number, event=event) for number in range(2)])
        held = take(queue, [domain], 1)
        assert other.receive([domain], limit=5, wait=timedelta(milliseconds=500)) == []
        queue.done(held)
        assert ids(take(other, [domain], 1)) == [f"{domain}-1"]

    def test_letters_given_back_keep_their_order(
        self, opened: Callable[[], DeadLetterQueue], domain: str
    ) -> None:
        first = opened()
        event = a_letter(domain).event
        letters = [a_letter(domain, number, event=event) for number in range(4)]
        first.put(letters)
        first.done(take(first, [domain], 4)[:1])
        first.close()
        assert [r.letter for r in take(opened(), [domain], 3)] == letters[1:]
