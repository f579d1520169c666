"""A projection of an app begins anew, whatever keeps its lanes."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from tests.apps import apps
from tests.hand_clock import START

from angzarr import Projection, handles
from angzarr.aggregates.book import Address
from angzarr.errors import ConfigurationError
from angzarr.ordering.lane import Lane, Step
from angzarr.wiring.projections import reset_projection

LANE = Lane("projection.sales", Address("order", "o-1"))


class OrderPlaced(BaseModel):
    total: int


@pytest.fixture
def emptied():
    return []


@pytest.fixture
def app(emptied):
    def prepare(app):
        @app.projection("sales", domains="order")
        class Sales(Projection):
            @handles(OrderPlaced)
            def placed(self, event: OrderPlaced) -> None:
                """Nothing is placed here."""

            def _truncate_read_models(self) -> None:
                emptied.append(self.name)

        @app.projection("totals", domains="order")
        class Totals(Projection):
            @handles(OrderPlaced)
            def placed(self, event: OrderPlaced) -> None:
                """It has no tables, and cannot be emptied."""

    memory = {"url": "memory://"}
    with apps(prepare, broker="memory://", store="memory://", ordering=memory) as make:
        app = make()
        app._parts.ordering.lanes.move(Step(LANE, 0, "e-0", "OrderPlaced", START, START))
        yield app


def test_the_lanes_of_this_process_begin_anew_and_its_own_reset_is_called(app, emptied, caplog):
    assert reset_projection(app.ops, "projection.sales", by="ann@host") == 1
    assert emptied == ["sales"]
    assert app._parts.ordering.lanes.look(LANE).next_sequence == 0
    assert app._parts.ordering.checkpoints.get("projection.sales") is None
    assert "begins anew, of 1 lanes, by ann@host" in caplog.text


def test_what_cannot_be_emptied_is_refused(app, emptied):
    with pytest.raises(ConfigurationError, match="has no tables"):
        reset_projection(app.ops, "projection.totals")
    assert app._parts.ordering.lanes.look(LANE).next_sequence == 1
    assert emptied == []
