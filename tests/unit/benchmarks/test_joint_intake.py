"""The rate of several processes that share a topic, without the time in which one has nothing."""

from __future__ import annotations

import pytest
from harness.figure import NotMeasured
from harness.joint_intake import rate_together
from workers.journal import Start


def turns(worker, moments, filed=250):
    return [Start(number=filed, moment=moment, worker=worker) for moment in moments]


def test_only_what_was_filed_while_all_had_letters_counts():
    alone_at_first = turns(1, [1.0, 2.0, 10.0, 11.0, 12.0])
    later_and_longer = turns(2, [10.0, 11.0, 12.0, 13.0, 14.0], filed=150)
    assert rate_together([*alone_at_first, *later_and_longer], 2) == (2 * 250 + 2 * 150) / 2.0


def test_a_process_that_got_nothing_gives_no_rate():
    with pytest.raises(NotMeasured, match="1 of 2 processes got letters"):
        rate_together(turns(1, [1.0, 2.0]), 2)


def test_processes_that_took_turns_give_no_rate():
    with pytest.raises(NotMeasured, match="one after the other"):
        rate_together([*turns(1, [1.0, 2.0]), *turns(2, [2.0, 3.0])], 2)
