"""Whatever comes in whatever order, and whoever dies: aggregates are handled in sequence."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.order_model.broker import OrderedBroker, steps
from tests.order_model.read_models import InMemory

COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=3)
COPIES = st.integers(1, 2)


@settings(max_examples=300, deadline=None)
@given(counts=COUNTS, copies=COPIES, happens=steps(25))
def test_a_read_model_is_the_fold_of_the_handled_events_in_order(
    make_world, counts, copies, happens
):
    broker = OrderedBroker(make_world(), InMemory(), counts, transactional=True, copies=copies)
    for step in happens:
        broker.take(step)
        broker.look_at()
    broker.drain()
    broker.look_at()
    assert broker.places() == counts
    broker.look_at_the_facts()
    assert broker.given_up == {}


@settings(max_examples=300, deadline=None)
@given(counts=COUNTS, copies=COPIES, happens=steps(25))
def test_a_plain_handler_begins_no_event_before_the_one_before_it_is_done(
    make_world, counts, copies, happens
):
    broker = OrderedBroker(make_world(), InMemory(), counts, transactional=False, copies=copies)
    for step in happens:
        broker.take(step)
    broker.drain()
    assert broker.places() == counts
    broker.look_at_the_facts()
    for root, runs in broker.runs.items():
        assert all(before <= after for before, after in pairwise(runs)), (root, runs)
        handled = set(range(counts[broker.roots.index(root)])) - set(runs)
        assert all((root, sequence) in broker.skipped for sequence in handled)
