"""Runs: one random history each, drawn by a seed, over lanes and a read model in a database."""

from __future__ import annotations

import random
import uuid
from itertools import pairwise

from tests.order_model.broker import OrderedBroker, drawn
from tests.order_model.read_models import InSql
from tests.unit.delivery.conftest import World


def run(engine, seed, *, transactional=True):
    """Play the history of *seed* and return its broker; raises AssertionError where it is wrong."""
    chance = random.Random(f"order {seed}")
    counts = [chance.randint(1, 5) for _ in range(chance.randint(1, 4))]
    model = InSql(engine, f"{seed}-{uuid.uuid4().hex[:8]}")
    broker = OrderedBroker(
        World(), model, counts, transactional=transactional, copies=chance.randint(1, 2)
    )
    for _ in range(chance.randint(10, 60)):
        broker.take(drawn(chance))
        if transactional:
            broker.look_at()
    broker.drain()
    assert broker.places() == counts, (broker.places(), counts)
    assert broker.given_up == {}
    broker.look_at_the_facts()
    if transactional:
        broker.look_at()
    for root, runs in broker.runs.items():
        assert all(before <= after for before, after in pairwise(runs)), (root, runs)
    return broker
