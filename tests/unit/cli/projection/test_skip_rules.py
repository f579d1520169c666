"""Whatever waits in a lane, a skip goes on, and passes no dead letter and nothing unknown."""

from __future__ import annotations

import click
from hypothesis import given
from hypothesis import strategies as st
from tests.hand_clock import START

from angzarr.aggregates.book import Address
from angzarr.cli.projection.skip import over_gap, up_to
from angzarr.ordering.lane import Lane, Order, Waiting, Why
from angzarr.ordering.lane_view import LaneState, LaneView
from angzarr.projections.ordered_handler import OrderedHandler

PLACE = Address("order", "o-1")
ONE = OrderedHandler(
    "projection.sales",
    Order(domains=frozenset({"order"}), types=frozenset(), moves=True),
)
lanes = st.builds(
    lambda place, kinds: LaneView(
        address=PLACE,
        next_sequence=place,
        waiting=tuple(
            Waiting(
                lane=Lane("projection.sales", PLACE), sequence=sequence, why=why, since=START,
                event_id=f"e-{sequence}", event_type="Bid",
            )
            for sequence, why in sorted(kinds.items())
        ),
    ),
    st.integers(0, 4),
    st.dictionaries(st.integers(0, 9), st.sampled_from(Why)),
)  # fmt: skip


def skipped(choose, *arguments, **options):
    """Return where the lane goes on, or None where the skip is refused."""
    try:
        return choose(ONE, *arguments, **options).to
    except click.ClickException:
        return None


@given(lanes)
def test_a_gap_ends_with_the_first_event_that_waits_behind_it(view):
    behind = [one.sequence for one in view.waiting if one.sequence >= view.next_sequence]
    is_gap = bool(behind) and behind[0] != view.next_sequence
    assert (view.state is LaneState.GAP) == is_gap
    assert skipped(over_gap, view) == (behind[0] if is_gap else None)


@given(lanes, st.integers(1, 12), st.booleans())
def test_a_skip_goes_on_to_what_is_known_and_past_no_dead_letter(view, to, in_book):
    passed = [one for one in view.waiting if view.next_sequence <= one.sequence < to]
    is_known = in_book or any(one.sequence >= to - 1 for one in view.waiting)
    fits = to > view.next_sequence and is_known
    dead = any(one.why is Why.DEAD_LETTER for one in passed)
    assert skipped(up_to, view, to, in_book=in_book) == (to if fits and not dead else None)
