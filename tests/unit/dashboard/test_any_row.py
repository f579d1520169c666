"""One row must not break the view of all others, whoever wrote its letter."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from tests.every_view import ask_the_api, follow_the_pages, look_for_alerts
from tests.hostile_letters import ZONES, failures, local_zone, worst

from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.alerts import SqlAlerts
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.groups import SqlGroups, SqlPeers
from angzarr.adapters.sql.ledger.store import SqlLedger
from dashboard_caller import api, browser
from dashboard_world import World

#: What fails is shown as it was drawn: to make it small takes minutes.
rows = partial(
    settings,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(params=["memory", "sqlite"])
def worlds(request, tmp_path):
    """Make worlds whose ledgers begin empty."""
    made = []

    def make():
        world = World()
        if request.param == "sqlite":
            made.append(LedgerDatabase(build_engine(f"sqlite:///{tmp_path}/{len(made)}.db")))
            world.ledger, world.groups = SqlLedger(made[-1]), SqlGroups(made[-1])
            world.alerts, world.peers = SqlAlerts(made[-1]), SqlPeers(made[-1])
        return world

    yield make
    for database in made:
        database.close()


@rows(max_examples=5)
@given(failures, st.sampled_from(ZONES))
@example(worst(), ZONES[0])
def test_every_row_is_rendered_by_every_route_and_page(worlds, filed, zone):
    world = worlds()
    entries = {one.id for one in world.ledger.add_failed_events(filed)}
    look_for_alerts(
        ledger=world.ledger, groups=world.groups, alerts=world.alerts, clock=world.clock
    )
    with local_zone(zone):
        ask_the_api(api(world), entries)
        seen = follow_the_pages(browser(world))
    assert {f"/entries/{one}" for one in entries} <= seen
