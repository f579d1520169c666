"""The guide's code, run as it stands there."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
import sqlalchemy as sa

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "write-a-projection.md"


def shown(language):
    found = re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found


@pytest.fixture
def engine(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        for statement in shown("sql"):
            connection.exec_driver_sql(statement)
    yield engine
    engine.dispose()


@pytest.fixture
def guide(engine, tmp_path, monkeypatch, facts_elsewhere):
    """The module that the guide shows, where its table is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANGZARR_CONFIG", raising=False)
    module = types.ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    for sample in shown("python"):
        exec(compile(sample, GUIDE.name, "exec"), module.__dict__)  # noqa: S102 - our own page
    yield module
    module.app.close()


def test_the_guides_test_passes(guide):
    guide.test_a_cancelled_order_is_taken_off()


def test_what_the_guide_publishes_reaches_both_projections(guide):
    assert set(guide.app._context.projections) == {"customer-totals", "late-orders"}
    sent = guide.app.publish(
        guide.OrderPlaced(customer="ann", cents=1), domain="order", root="o-2", sequence=0
    )
    assert sent.sequence == 0


def test_the_guides_policies_are_what_it_says(guide):
    handler = guide.app.handlers.get("projection.late-orders")
    assert handler.policy.max_attempts == 6
    assert handler.policies["OrderCancelled"].max_attempts == 1


def test_the_guides_tables_are_emptied(guide, engine):
    guide.handle(guide.OrderPlaced(customer="ann", cents=1))
    with engine.begin() as connection:
        guide.CustomerTotals(connection).reset()
        assert connection.execute(sa.text("SELECT * FROM customer_totals")).all() == []
