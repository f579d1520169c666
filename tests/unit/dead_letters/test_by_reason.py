"""Letters of one reason have a queue of their own, and only that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.unit.dead_letters.letterboxes import Target

from angzarr.dead_letters.letter import Reason
from angzarr.dead_letters.queue import LettersByReason
from angzarr.errors import DeadLetterQueueUnavailable


class Site:
    def __init__(self):
        self.rest, self.own = Target("rest"), Target("own")
        self.box = LettersByReason(self.rest, {Reason.COMPENSATION: self.own})


@pytest.fixture
def site():
    return Site()


def failed(name):
    return letter_of(name, id=name, reason=Reason.COMPENSATION)


def other(name):
    return letter_of(name, id=name)


@given(st.lists(st.sampled_from(Reason)), st.sets(st.integers(0, 20)))
def test_each_letter_goes_to_the_queue_of_its_reason_and_is_answered_in_its_place(reasons, refused):
    site = Site()
    letters = [letter_of(id=str(at), reason=one) for at, one in enumerate(reasons)]
    for target in (site.rest, site.own):
        target.against = {str(at): f"{at} is too odd" for at in refused}
    answers = site.box.put(letters)
    assert answers == [f"{at} is too odd" if at in refused else None for at in range(len(letters))]
    taken = [(one.id, one.reason is Reason.COMPENSATION) for one in letters]
    for target, is_own in ((site.rest, False), (site.own, True)):
        assert target.taken == [
            name for name, own in taken if own is is_own and int(name) not in refused
        ]


def test_a_queue_that_nothing_goes_to_is_not_asked(site):
    site.own.leave()
    assert site.box.put([other("a")]) == [None]
    assert (site.rest.asked, site.own.asked) == (1, 0)


def test_letters_of_a_queue_that_is_away_stay_and_the_others_go(site):
    site.own.leave()
    answers = site.box.put([failed("a"), other("b"), failed("c")])
    assert answers == ["own gave no answer", None, "own gave no answer"]
    assert (site.rest.taken, site.own.taken) == (["b"], [])


def test_where_nothing_could_be_sent_that_is_said(site):
    site.own.leave()
    with pytest.raises(DeadLetterQueueUnavailable, match="own gave no answer"):
        site.box.put([failed("a")])
    site.rest.leave()
    with pytest.raises(DeadLetterQueueUnavailable):
        site.box.put([failed("a"), other("b")])


def test_a_broken_queue_is_told_as_it_broke(site):
    site.own.leave(OSError("broke"))
    with pytest.raises(OSError, match="broke"):
        site.box.put([failed("a")])


def test_all_are_closed_also_if_one_cannot_be(site):
    def fail():
        raise OSError("no")

    site.own.close = fail
    with pytest.raises(OSError, match="no"):
        site.box.close()
    assert site.rest.closed == 1
