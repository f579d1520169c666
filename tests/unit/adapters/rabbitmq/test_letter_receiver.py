from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.rabbitmq.letter_receiver import up_to

tags = st.integers(1, 30)


@given(st.sets(tags, min_size=1), st.data())
def test_one_word_acknowledges_no_letter_that_is_not_done(
    in_hand: set[int], data: st.DataObject
) -> None:
    done = data.draw(st.sets(st.sampled_from(sorted(in_hand)), min_size=1))
    together = up_to(done, in_hand)
    assert {tag for tag in in_hand if tag <= together} <= done
    assert together in {0, *done}


def test_it_acknowledges_as_many_as_it_can() -> None:
    assert up_to({1, 2, 3}, {1, 2, 3}) == 3
    assert up_to({1, 2, 4}, {1, 2, 3, 4}) == 2
    assert up_to({2}, {1, 2}) == 0
