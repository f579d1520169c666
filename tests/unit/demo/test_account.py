"""The demo's account can fail: each way in which a message may go wrong is noticed."""

from __future__ import annotations

from collections import Counter

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.demo import journal
from angzarr.demo.journal import JournalCounts, JournalLine, LedgerState, Pair, account, waiting
from angzarr.demo.view import summary

PAIR = Pair("orders.pack", "run:00001")
OTHER = Pair("orders.refund", "run:00002")
HANDLED = ((journal.BEGAN, ""), (journal.FINISHED, ""), (journal.SETTLED, "handled"))
SKIPPED = ((journal.BEGAN, ""), (journal.SKIPPED, "no"), (journal.SETTLED, "skipped"))
DIED = ((journal.BEGAN, ""), (journal.FAILED, "KeyError"), (journal.SETTLED, "dead_lettered"))


def tally(*lines, pair=PAIR, published=1):
    counted = JournalCounts()
    said = [*[(journal.PUBLISHED, "")] * published, *lines]
    counted.add(
        JournalLine(number, what, pair, detail, 0) for number, (what, detail) in enumerate(said, 1)
    )
    return counted


def told(*outcomes, pair=PAIR):
    return {pair: Counter(outcomes)}


def entry(status, replays=0):
    return {PAIR: LedgerState(status=status, replays=replays)}


@pytest.mark.parametrize(
    ("lines", "entries", "facts", "where"),
    [
        (HANDLED, {}, told("handled"), "handled"),
        (SKIPPED, {}, told("skipped"), "skipped"),
        (DIED, entry(Status.HELD), told("dead_lettered"), "in_ledger"),
        (DIED, entry(Status.ARCHIVED), told("dead_lettered"), "in_ledger"),
        ((), entry(Status.HELD), told("dead_lettered"), "in_ledger"),
    ],
)
def test_each_end_is_counted_once_and_adds_up(lines, entries, facts, where):
    found = account(tally(*lines), entries, facts)
    assert found.adds_up
    assert getattr(found, where) == 1
    assert found.published == found.handled + found.skipped + found.in_ledger == 1


def test_a_pair_healed_by_a_replay_counts_as_handled():
    found = account(
        tally(*DIED, *HANDLED), entry(Status.RESOLVED, 1), told("dead_lettered", "handled")
    )
    assert found.adds_up
    assert (found.handled, found.healed, found.in_ledger) == (1, 1, 0)


def test_a_duplicate_that_did_not_run_again_is_no_problem():
    lines = (*HANDLED, (journal.SETTLED, "duplicate"))
    found = account(tally(*lines, published=2), {}, told("handled", "duplicate"))
    assert found.adds_up
    assert found.published == 1


@pytest.mark.parametrize(
    ("lines", "entries", "facts", "said"),
    [
        ((), {}, {}, "is lost: it never ran"),
        (DIED, {}, told("dead_lettered"), "is lost: it began 1 times"),
        (DIED, entry(Status.RESOLVED), told("dead_lettered"), "is lost"),
        (DIED, entry(Status.WAITING), told("dead_lettered"), "still waits"),
        (DIED, entry(Status.RETRYING), told("dead_lettered"), "still waits"),
        (HANDLED + HANDLED, {}, told("handled"), "ran to its end 2 times"),
        (HANDLED + SKIPPED, {}, told("handled", "skipped"), "was skipped 1 times"),
        (HANDLED, entry(Status.HELD), told("handled"), "was handled, yet the ledger says held"),
        (HANDLED, {}, {}, "no fact says so"),
        (DIED, entry(Status.HELD), {}, "no fact says so"),
        (HANDLED, {}, told("handled", "handled"), "told as handled by 2 facts"),
    ],
)
def test_whatever_is_lost_doubled_or_contradicted_is_named(lines, entries, facts, said):
    found = account(tally(*lines), entries, facts)
    assert not found.adds_up
    (problem,) = found.problems
    assert said in problem
    assert PAIR.event_id in problem
    assert PAIR.handler in problem
    assert any("NOT ACCOUNTED FOR (1)" in line for line in summary(found))


def test_what_nobody_published_is_named():
    lines = [JournalLine(1, journal.BEGAN, OTHER, "", 0)]
    counted = tally(*HANDLED)
    counted.add(lines)
    found = account(counted, {}, told("handled"))
    assert found.problems == (f"{OTHER.event_id} for {OTHER.handler} was never published",)


@pytest.mark.parametrize(
    ("lines", "published", "entries", "left"),
    [
        ((), 1, {}, 1),
        (HANDLED, 1, {}, 0),
        (HANDLED, 2, {}, 1),  # the duplicate is still in the broker
        ((*HANDLED, (journal.SETTLED, "duplicate")), 2, {}, 0),
        (((journal.SETTLED, "retried"),), 1, {}, 1),
        (DIED, 1, {}, 1),  # the letter is still in its queue
        (DIED, 1, entry(Status.HELD), 0),
        (DIED, 1, entry(Status.WAITING), 1),
        (DIED, 1, entry(Status.RESOLVED, 1), 1),
        (DIED + HANDLED, 1, entry(Status.RESOLVED, 1), 0),
    ],
)
def test_a_run_goes_on_until_every_message_of_a_pair_is_at_its_end(lines, published, entries, left):
    assert waiting(tally(*lines, published=published), entries) == left
