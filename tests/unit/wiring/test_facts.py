"""Which facts are kept with the claims, and who moves them."""

from __future__ import annotations

import pytest
from tests.apps import apps

from angzarr.adapters.memory.facts import FanOutFactLog, MemoryFactLog
from angzarr.adapters.sql.facts.log import SqlFactLog
from angzarr.adapters.structlog.own_lines import StructlogFactLog
from angzarr.facts.outbox_log import OutboxFactLog
from angzarr.wiring.facts import open_facts, open_relay_thread


class Ours:
    def is_ours(self):
        return True

    def end(self):
        """Have it no more."""


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with apps(broker="memory://") as make:
        yield make


def opened(app, *, worker):
    claims = (lambda: app._parts.claims) if worker else None
    return open_facts(app.settings, "memory://", claims)


def test_a_worker_keeps_facts_for_sql_with_its_claims_and_other_processes_write_them(make):
    app = make()
    assert isinstance(opened(app, worker=True), OutboxFactLog)
    assert isinstance(opened(app, worker=False), SqlFactLog)


@pytest.mark.parametrize("worker", [True, False])
def test_facts_that_go_nowhere_far_need_no_outbox(make, worker):
    app = make(facts={"url": "memory://here"})
    assert isinstance(opened(app, worker=worker), MemoryFactLog)
    assert open_relay_thread(app.settings, "memory://", app._parts.claims, lambda _: Ours()) is None


def test_log_lines_come_beside_facts_for_sql(make):
    log = opened(make(facts={"log": True}), worker=True)
    assert isinstance(log, FanOutFactLog)
    assert [type(one) for one in log._sinks] == [OutboxFactLog, StructlogFactLog]


def test_what_a_worker_puts_in_its_outbox_a_relay_moves_to_the_table(make, tmp_path):
    from datetime import UTC, datetime

    from angzarr.facts.fact import Fact

    app = make(facts={"url": f"sqlite:///{tmp_path}/facts.db"})
    fact = Fact(id="f", type="lifecycle", subtype="fenced", at=datetime.now(UTC))
    opened(app, worker=True).append([fact])
    asked = []

    def duty_of(name):
        asked.append(name)
        return Ours()

    relay = open_relay_thread(app.settings, "memory://", app._parts.claims, duty_of)
    relay.turn()
    relay.end()
    assert asked == ["fact_relay"]
    log = SqlFactLog(f"sqlite:///{tmp_path}/facts.db")
    assert log.read() == [fact]
    log._engine.dispose()
