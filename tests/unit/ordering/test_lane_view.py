"""What metrics are told of ordered handlers."""

from __future__ import annotations

from tests.hand_clock import START

from angzarr.aggregates.book import Address
from angzarr.ordering.lane import Gap, Lane, Summary, Waiting, Why
from angzarr.ordering.lane_view import OrderingSample, samples_of


def gap(handler: str, root: str) -> Gap:
    lane = Lane(handler, Address("order", root))
    first = Waiting(
        lane=lane, sequence=5, why=Why.EARLY, since=START, event_id="e", event_type="Bid", text=""
    )
    return Gap(lane, 4, first, 1)


def test_a_sample_is_made_of_what_waits_and_of_gaps():
    summaries = [Summary("a", 9, 4, 1, START), Summary("b", 3, 0, 0, None)]
    gaps = [gap("a", "r-1"), gap("a", "r-2"), gap("others", "r-1")]
    assert samples_of(summaries, gaps, {"a": 7}) == [
        OrderingSample(handler="a", parked=4, blocked=1, gaps=2, events_behind=7),
        OrderingSample(handler="b", parked=0, blocked=0, gaps=0),
    ]
