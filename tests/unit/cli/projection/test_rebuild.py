"""angzarr projection rebuild: over SQLite, with an app as users write it."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from sqlalchemy import text
from tests.apps import apps
from tests.contracts.event_store import event, fill

from angzarr import Projection, handles
from angzarr.aggregates.book import Address
from angzarr.cli.main import main
from apps import module_with

ONE, TWO = Address("order", "o-1"), Address("order", "o-2")


class OrderPlaced(BaseModel):
    total: int


class Sales(Projection):
    tables = ("sales",)
    bad = False

    @handles(OrderPlaced)
    def placed(self, event: OrderPlaced) -> None:
        if self.bad and self.event.sequence == 1:
            msg = "\x1b[2Jevil"
            raise ValueError(msg)
        row = {"id": self.event.id, "total": event.total}
        self.connection.execute(text("INSERT INTO sales VALUES (:id, :total)"), row)


class Elsewhere(Projection):
    seen: tuple[str, ...] = ()

    @handles(OrderPlaced)
    def placed(self, _event: OrderPlaced) -> None:
        type(self).seen += (self.event.id,)

    def _truncate_read_models(self) -> None:
        type(self).seen = ()


def prepare(app):
    app.projection("sales", domains=["order"])(Sales)
    app.projection("elsewhere", domains=["order"])(Elsewhere)


@pytest.fixture
def app(monkeypatch, tmp_path):
    url = f"sqlite:///{tmp_path / 'orders.db'}"
    monkeypatch.setattr(Sales, "bad", False)
    monkeypatch.setattr(Elsewhere, "seen", ())
    with apps(prepare, broker="memory://", store=url, books=url) as make:
        app = make()
        monkeypatch.setitem(sys.modules, "sales_for_test", module_with(app=app))
        with app._parts.ordering.lanes.transaction() as connection:
            connection.exec_driver_sql("CREATE TABLE sales (id text PRIMARY KEY, total int)")
        event_stores = app.ops.open_event_stores()
        for address in (ONE, TWO):
            placed = [event("OrderPlaced"), event("OrderPlaced"), event("OrderRenamed")]
            data = {"total": 5}
            fill(event_stores.books, address, *(replace(one, data=data) for one in placed))
        event_stores.close()
        yield app


@pytest.fixture
def run(app):
    def call(*arguments, **options):
        given = ["-A", "sales_for_test", "projection", "rebuild", *arguments]
        return CliRunner().invoke(main, given, **options)

    return call


def sales(app):
    with app._parts.ordering.lanes.transaction() as connection:
        return connection.exec_driver_sql("SELECT count(*), sum(total) FROM sales").one()


def test_a_projection_is_rebuilt_after_a_question(app, run):
    assert run("sales", input="n\n").exit_code == 1
    assert sales(app) == (0, None)
    done = run("sales", input="y\n")
    assert done.exit_code == 0
    assert "sales is rebuilt from 6 events" in done.stdout
    assert sales(app) == (4, 20)


def test_programs_are_told_as_json(run):
    done = run("sales", "--yes", "--json")
    assert json.loads(done.stdout) == {"stopped": False, "events": 6, "failures": []}


def test_an_event_that_fails_is_named_and_the_next_run_goes_on(app, run, monkeypatch):
    monkeypatch.setattr(Sales, "bad", True)
    failed = run("sales", "--yes")
    assert failed.exit_code == 1
    assert "the rebuild stopped at event" in failed.stderr
    assert "\x1b" not in failed.stderr
    monkeypatch.setattr(Sales, "bad", False)
    done = run("sales", "--yes")
    assert "going on with the rebuild of" in done.stderr
    assert "which has 1 events" in done.stderr
    assert sales(app) == (4, 20)


def test_with_keep_going_what_failed_is_listed(app, run, monkeypatch):
    monkeypatch.setattr(Sales, "bad", True)
    done = run("sales", "--yes", "--keep-going")
    assert done.exit_code == 1
    assert "2 aggregates stay at an event that failed" in done.stderr
    assert "order/o-1 at 1, OrderPlaced" in done.stderr
    assert "\x1b" not in done.stderr
    assert sales(app) == (2, 10)


def test_failures_are_told_to_programs(run, monkeypatch):
    monkeypatch.setattr(Sales, "bad", True)
    told = json.loads(run("sales", "--yes", "--keep-going", "--json").stdout)
    assert [one["address"]["root"] for one in told["failures"]] == ["o-1", "o-2"]


def test_an_unfinished_rebuild_is_abandoned(run, monkeypatch):
    monkeypatch.setattr(Sales, "bad", True)
    run("sales", "--yes")
    assert run("sales", "--abandon", input="n\n").exit_code == 1
    assert "removed" in run("sales", "--abandon", "--yes").stdout
    assert "there was nothing to remove" in run("sales", "--abandon", "--yes").stdout


def test_who_abandons_a_rebuild_in_place_is_told_that_the_read_model_is_incomplete(
    run, monkeypatch
):
    monkeypatch.setattr(Elsewhere, "placed", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    assert run("elsewhere", "--in-place", "--yes", "--batch", "1").exit_code == 1
    said = run("elsewhere", "--in-place", "--abandon", "--yes").stdout
    assert "removed; elsewhere was emptied and is incomplete" in said


def test_verify_tells_whether_it_is_what_the_books_say(app, run):
    run("sales", "--yes")
    same = run("sales", "--verify")
    assert same.exit_code == 0
    assert "sales is what the event books say: 4 rows are equal" in same.stdout
    with app._parts.ordering.lanes.transaction() as connection:
        connection.exec_driver_sql("UPDATE sales SET total = 6")
    other = run("sales", "--verify")
    assert other.exit_code == 1
    assert "sales differs: 4 rows live, 4 rebuilt" in other.stdout
    assert json.loads(run("sales", "--verify", "--json").stdout)["equal"] is False
    assert sales(app) == (4, 24)
    run("sales", "--yes")
    assert sales(app) == (4, 20)


def test_verify_claims_nothing_of_keys_that_the_database_may_number(app, run, monkeypatch):
    def placed(self, event):
        row = {"id": self.event.id, "total": event.total}
        self.connection.execute(text("INSERT INTO sales (id, total) VALUES (:id, :total)"), row)

    monkeypatch.setattr(Sales, "placed", placed)
    with app._parts.ordering.lanes.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE sales")
        connection.exec_driver_sql(
            "CREATE TABLE sales (number integer PRIMARY KEY, id text, total int)"
        )
    assert run("sales", "--yes").exit_code == 0
    assert "4 rows are equal" in run("sales", "--verify").stdout
    with app._parts.ordering.lanes.transaction() as connection:
        connection.exec_driver_sql("UPDATE sales SET number = 10 - number")
    same = run("sales", "--verify")
    assert same.exit_code == 0
    assert same.stdout == (
        "sales is what the event books say, but for sales.number, which are not compared"
        " because the database numbers them\n"
    )
    told = json.loads(run("sales", "--verify", "--json").stdout)
    assert (told["equal"], told["renumbered"]) == (False, ["sales.number"])


def test_verify_does_not_advise_to_put_an_incomplete_one_in_its_place(app, run, monkeypatch):
    run("sales", "--yes")
    monkeypatch.setattr(Sales, "bad", True)
    done = run("sales", "--verify", "--keep-going")
    assert done.exit_code == 1
    assert "sales differs: 4 rows live, 2 rebuilt" in done.stdout
    assert "2 aggregates stay at an event that failed" in done.stderr
    assert "the rebuilt one is incomplete" in done.stdout
    assert "without --verify" not in done.stdout
    told = json.loads(run("sales", "--verify", "--keep-going", "--json").stdout)
    assert ([one["address"]["root"] for one in told["failures"]]) == ["o-1", "o-2"]
    assert (told["equal"], told["events_in_no_book"]) == (False, 0)


def test_verify_changes_nothing_and_so_goes_with_nothing_that_does(run):
    assert "--verify goes with neither" in run("sales", "--verify", "--in-place").stderr


def test_without_tables_both_cures_are_named(run):
    refused = run("elsewhere", "--yes")
    assert refused.exit_code == 1
    assert "name them in `tables` of its class, or rebuild it in place" in " ".join(
        refused.stderr.split()
    )


def test_a_read_model_that_is_elsewhere_is_rebuilt_in_place(run):
    Elsewhere.seen = ("old",)
    assert run("elsewhere", "--in-place", "--yes").exit_code == 0
    assert len(Elsewhere.seen) == 4


def test_an_interrupt_stops_it_after_the_batch_and_says_how_to_go_on(app, run, monkeypatch):
    placed = Sales.placed

    def interrupted(self, event):
        placed(self, event)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Sales, "placed", interrupted)
    stopped = run("sales", "--yes", "--batch", "1")
    assert stopped.exit_code == 1
    assert "stopped after 1 events, all of which are kept; run it again" in stopped.stdout
    assert sales(app) == (0, None)
    monkeypatch.setattr(Sales, "placed", placed)
    assert run("sales", "--yes").exit_code == 0
    assert sales(app) == (4, 20)


def test_an_unknown_projection_is_refused_with_those_that_there_are(run):
    refused = run("sails", "--yes")
    assert refused.exit_code == 1
    assert "no projection 'sails'; it has: elsewhere, sales" in refused.stderr


def test_books_in_memory_are_nothing_to_rebuild_from(monkeypatch):
    with apps(prepare, broker="memory://", store="memory://", books="memory://") as make:
        monkeypatch.setitem(sys.modules, "sales_for_test", module_with(app=make()))
        given = ["-A", "sales_for_test", "projection", "rebuild", "sales", "--yes"]
        refused = CliRunner().invoke(main, given)
    assert "nothing to rebuild from" in " ".join(refused.stderr.split())


def test_a_throttle_and_a_batch_may_be_given(app, run):
    assert run("sales", "--yes", "--throttle", "1000", "--batch", "1").exit_code == 0
    assert sales(app) == (4, 20)
    assert run("sales", "--yes", "--throttle", "0").exit_code == 2
