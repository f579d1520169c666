from __future__ import annotations

import pytest

from angzarr.dead_letters.letter import (
    MAX_MESSAGE,
    MAX_STACK,
    cut_message,
    cut_stack,
    letter_id,
    unreadable_letter_id,
)


def test_a_long_stack_keeps_its_end() -> None:
    cut = cut_stack("x" * MAX_STACK + "the cause")
    assert len(cut) == MAX_STACK
    assert cut.startswith("[…]")
    assert cut.endswith("the cause")


def test_a_long_message_keeps_its_beginning() -> None:
    cut = cut_message("the problem" + "x" * MAX_MESSAGE)
    assert len(cut) == MAX_MESSAGE
    assert cut.startswith("the problem")


@pytest.mark.parametrize(("cut", "most"), [(cut_stack, MAX_STACK), (cut_message, MAX_MESSAGE)])
def test_what_fits_is_left_alone_so_that_cutting_twice_changes_nothing(cut, most) -> None:
    assert cut("x" * most) == "x" * most
    assert cut(cut("x" * 99_999)) == cut("x" * 99_999)


def test_the_id_depends_on_all_four_parts_and_nothing_else() -> None:
    ids = {
        letter_id("d", "h", "e", 0),
        letter_id("x", "h", "e", 0),
        letter_id("d", "x", "e", 0),
        letter_id("d", "h", "x", 0),
        letter_id("d", "h", "e", 1),
    }
    assert len(ids) == 5
    assert letter_id("d", "h", "e", 0) in ids


def test_the_id_of_unreadable_bytes_takes_any_queue_name() -> None:
    assert unreadable_letter_id("q\udcff", b"x") != unreadable_letter_id("q", b"x")
