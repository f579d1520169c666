"""What the dashboard asks of an app about ordered handlers and rejected commands, over SQLite."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest
from pydantic import BaseModel
from tests.apps import apps
from tests.contracts.event_store import event, fill
from tests.contracts.fact_reader import an_end, an_error
from tests.contracts.ledger import letter_of
from tests.contracts.rejections import a_case
from tests.contracts.waiting_events import early_of, step_of
from tests.hand_clock import START
from tools.tcp_proxy import unused_port

from angzarr import Projection, handles
from angzarr.aggregates.book import Address
from angzarr.analysis.ledger.transition import filed
from angzarr.clock import SystemClock
from angzarr.dashboard.ordered_handlers import Surveyor
from angzarr.errors import ConfigurationError
from angzarr.facts.query import EVERY, FactOrder
from angzarr.ordering.lane import Lane
from angzarr.sagas.log import CaseFilter
from angzarr.wiring.dashboard import (
    open_fact_services,
    open_ordered_services,
    open_rejected_services,
)

ONE = Address("order", "o-1")


class OrderPlaced(BaseModel):
    total: int


class Sales(Projection):
    tables = ("sales",)

    @handles(OrderPlaced)
    def placed(self, event: OrderPlaced) -> None:
        """Nothing is placed here."""


def prepare(app):
    app.projection("sales", domains=["order"])(Sales)


@pytest.fixture
def doors():
    with ExitStack() as doors:
        yield doors


@pytest.fixture
def made(tmp_path):
    url = f"sqlite:///{tmp_path / 'orders.db'}"
    with apps(prepare, broker="memory://", store=url, books=url) as make:
        yield make()


def count(app, doors):
    services = open_ordered_services(app.ops, doors)
    return Surveyor(services, SystemClock(), lambda work: work()).look()


def test_a_dashboard_counts_what_workers_keep(made, doors):
    lane = Lane("projection.sales", ONE)
    event_stores = made.ops.open_event_stores()
    doors.callback(event_stores.close)
    fill(event_stores.books, ONE, *(event("OrderPlaced") for _ in range(3)))
    made._parts.ordering.lanes.move(step_of(lane, 0))
    made._parts.ordering.lanes.park(early_of(Lane("shop.gone", ONE), 4), 9)
    survey = count(made, doors)
    assert survey.problem is None
    sales, gone = survey.seen
    assert (sales.row.one.name, sales.is_registered, sales.workers) == ("sales", True, 0)
    assert (sales.row.summary.lanes, sales.row.lag.events_behind) == (1, 2)
    assert (gone.row.one.task, gone.is_registered) == ("shop.gone", False)


def test_without_event_books_what_waits_is_told(doors, tmp_path):
    url = f"sqlite:///{tmp_path / 'orders.db'}"
    with apps(prepare, broker="filesystem://", store=url, ordering={"url": url}) as make:
        services = open_ordered_services(make().ops, doors)
        assert services.books() is None
        assert [one.name for one, _ in services.all()] == ["sales"]


def test_without_a_database_it_is_said_which_setting_is_missing(doors):
    with apps(prepare, broker="redis://nowhere:1/0", store="memory://") as make:
        app = make()
        assert "ordering.url" in count(app, doors).problem.detail
        with pytest.raises(ConfigurationError, match="books"):
            open_rejected_services(app.ops, doors).page(CaseFilter(), limit=1, after="")


def test_rejected_commands_are_those_of_the_app(made, doors):
    event_stores = made.ops.open_event_stores()
    doors.callback(event_stores.close)
    case = event_stores.rejections.note(a_case())
    services = open_rejected_services(made.ops, doors)
    assert [one.id for one in services.page(CaseFilter(), limit=1, after="").cases] == [case.id]
    assert services.story(case.id).rejection is not None


def test_a_dashboard_asks_the_facts_that_workers_append(tmp_path, doors):
    with apps(broker="memory://", facts={"url": f"sqlite:///{tmp_path / 'facts.db'}"}) as make:
        app = make()
        app.ops.facts.append([an_error("one"), an_end("end", 1)])
        app.ops.facts.close()
        services = open_fact_services(app.ops, SystemClock(), doors)
        found = services.page(EVERY, order=FactOrder.NEWEST, limit=10, after="")
        assert [one.id for one in found.page.facts] == ["end", "one"]
        assert found.links["one"].id == "end"
        entry = filed(letter_of("e", handler="shop.sync"), START).entry
        assert [one.id for one in services.runs_of(entry).facts] == ["one", "end"]


@pytest.fixture(params=["nothing listens", "nothing answers"])
def away(request):
    """An address of PostgreSQL where none is."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listens = silent.getsockname()[1]
        port = unused_port() if request.param == "nothing listens" else listens
        yield f"postgresql+psycopg://none@127.0.0.1:{port}/none"


def test_the_page_of_an_entry_does_without_facts_that_are_away(away, doors):
    redis = "redis://127.0.0.1:1/0"
    with apps(broker=redis, store=redis, facts={"url": away}) as make:
        services = open_fact_services(make().ops, SystemClock(), doors)
        entry = filed(letter_of("e"), START).entry
        assert "database of facts is away" in services.runs_of(entry).problem
