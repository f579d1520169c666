"""angzarr projection: over SQLite, with an app as users write it."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from sqlalchemy import text
from tests.apps import apps
from tests.contracts.event_store import event, fill

from angzarr import Projection, handles
from angzarr.adapters.sql.event_store.books import SqlEventStore
from angzarr.aggregates.book import Address
from angzarr.cli.main import main
from angzarr.errors import StoreUnavailable
from angzarr.ordering.lane import Lane, Step, Waiting, Why
from apps import module_with

SALES, SHIP = "projection.sales", "shop.ship"
#: What a terminal, rich or a reader of lines would act on.
EVIL = "evil\x1b[2J[red]x[/red]\u202e\x07"
NOW = datetime.now(UTC)
ONE, TWO = Address("order", "o-1"), Address("order", "o-2", "what-if")


class OrderPlaced(BaseModel):
    total: int


class Sales(Projection):
    tables = ("sales",)

    @handles(OrderPlaced)
    def placed(self, event: OrderPlaced) -> None:
        """Nothing is placed here."""


def prepare(app):
    app.projection("sales", domains=["order", "stock"])(Sales)

    @app.handler(OrderPlaced, name=SHIP, domain="order", ordered_by="root", first_sequence=1)
    def ship(event: OrderPlaced) -> None:
        """Nothing is shipped here."""

    @app.handler(OrderPlaced, name="shop.mail")
    def mail(event: OrderPlaced) -> None:
        """It takes events as they come, and is in no list."""


def serve(monkeypatch, app):
    monkeypatch.setitem(sys.modules, "sales_for_test", module_with(app=app))
    return app


@pytest.fixture
def app(monkeypatch, tmp_path):
    url = f"sqlite:///{tmp_path / 'orders.db'}"
    with apps(prepare, broker="memory://", store=url, books=url) as make:
        yield serve(monkeypatch, make())


@pytest.fixture
def lanes(app):
    return app._parts.ordering.lanes


@pytest.fixture
def books(app):
    event_stores = app.ops.open_event_stores()
    yield event_stores.books
    event_stores.close()


@pytest.fixture
def run(app):
    def call(*arguments, **options):
        given = ["-A", "sales_for_test", "projection", *arguments]
        return CliRunner().invoke(main, given, **options)

    return call


@pytest.fixture
def said(run):
    def call(*arguments):
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return call


@pytest.fixture
def shown(run):
    def call(*arguments):
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        assert not set(EVIL) - set("evil[2J[red]x[/red]") & set(result.output)
        return result.stdout

    return call


@pytest.fixture
def refused(run):
    def call(*arguments, code=1):
        result = run(*arguments)
        assert result.exit_code == code, result.output
        return " ".join(result.stderr.split())

    return call


def lane(address=ONE, handler=SALES):
    return Lane(handler, address, 1 if handler == SHIP else 0)


def waiting(sequence, why=Why.EARLY, *, address=ONE, handler=SALES, **fields):
    given = {"event_id": f"e-{sequence}", "event_type": "OrderPlaced", "since": NOW}
    if why is Why.EARLY:
        given["text"] = "{}"
    elif why is Why.RETRYING:
        given["due_at"] = NOW + timedelta(hours=1)
    else:
        given["letter_id"] = "letter-1"
    return Waiting(lane=lane(address, handler), sequence=sequence, why=why, **(given | fields))


def move(lanes, until, address=ONE, handler=SALES):
    for sequence in range(until):
        lanes.move(Step(lane(address, handler), sequence, f"e-{sequence}", "OrderPlaced", NOW, NOW))


def ordered(count, ago=timedelta(hours=3), kind="OrderPlaced"):
    return [event(kind, occurred_at=NOW - ago) for _ in range(count)]


# -- list ------------------------------------------------------------------------------------


def test_all_that_take_events_in_order_are_listed(said, lanes, books):
    fill(books, ONE, *ordered(5))
    move(lanes, 2)
    lanes.note(waiting(2, Why.DEAD_LETTER))
    lanes.park(waiting(3), 100)
    sales, ship = said("list")
    assert (sales["name"], sales["kind"], sales["domains"]) == (
        "sales", "projection", ["order", "stock"],
    )  # fmt: skip
    assert (sales["lanes"], sales["parked"], sales["blocked"]) == (1, 1, 1)
    assert sales["checkpoint"]["events_processed"] == 2
    assert sales["lag"]["events_behind"] == 3
    assert sales["lag"]["seconds_behind"] > 3600
    assert (ship["name"], ship["kind"], ship["domains"]) == (SHIP, "handler", ["order"])
    assert (ship["lanes"], ship["checkpoint"], ship["lag"]["events_behind"]) == (0, None, 4)


def test_a_quick_list_reads_no_books(said, shown, monkeypatch):
    monkeypatch.setattr("angzarr.projections.checkpoint.lag_of", None)
    monkeypatch.setattr("angzarr.cli.projection.main.lag_of", None)
    assert ["lag" in one for one in said("list", "--quick")] == [False, False]
    assert "sales" in shown("list", "--quick")


def test_the_list_is_a_table(shown, lanes, books):
    fill(books, ONE, *ordered(3))
    move(lanes, 1)
    told = shown("list")
    assert "at least 2, 3 h" in told, "there is no book of stock"
    assert "never" in told


def test_an_app_without_order_has_an_empty_list(monkeypatch, run):
    with apps(broker="memory://") as make:
        serve(monkeypatch, make())
        assert "no projection" in run("list").stdout
        assert json.loads(run("list", "--json").stdout) == []


# -- lag -------------------------------------------------------------------------------------


def test_the_lag_is_told_by_type(said, shown, lanes, books):
    fill(books, ONE, *ordered(2), *ordered(1, timedelta(hours=1), "OrderPaid"))
    move(lanes, 1)
    found = said("lag", "sales")
    assert {kind: one["events"] for kind, one in found["by_type"].items()} == {
        "OrderPaid": 1, "OrderPlaced": 1,
    }  # fmt: skip
    assert (found["events_behind"], found["aggregates_behind"]) == (2, 1)
    assert found["without_books"] == ["stock"]
    told = shown("lag", SALES)
    assert "OrderPaid" in told
    assert "there is no event book of stock" in told


def test_the_lag_of_some_types_only(said, books):
    fill(books, ONE, *ordered(2), *ordered(1, kind="OrderPaid"), *ordered(1, kind="OrderLost"))
    found = said("lag", "sales", "--type", "OrderPaid", "--type", "OrderLost")
    assert sorted(found["by_type"]) == ["OrderLost", "OrderPaid"]
    assert found["events_behind"] == 2


def test_without_books_the_lag_is_what_waits(monkeypatch, tmp_path, run):
    url = f"sqlite:///{tmp_path / 'lanes.db'}"
    with apps(prepare, broker="filesystem://", store=url, ordering={"url": url}) as make:
        app = serve(monkeypatch, make())
        app._parts.ordering.lanes.park(waiting(3), 100)
        found = json.loads(run("lag", "sales", "--json").stdout)
    assert (found["events_behind"], found["without_books"]) == (1, ["order", "stock"])


def test_an_unknown_name_is_refused_with_those_that_there_are(refused):
    assert "there are: sales, shop.ship" in refused("lag", "shop.mail")


# -- show ------------------------------------------------------------------------------------


def test_a_dead_letter_is_shown_with_the_commands_that_help(said, shown, lanes):
    move(lanes, 2)
    lanes.note(waiting(2, Why.DEAD_LETTER, event_id="a b"))
    lanes.park(waiting(3), 100)
    (blocked,) = said("show", "sales")["waiting_lanes"]
    assert (blocked["state"], blocked["next_sequence"]) == ("blocked", 2)
    assert [one["why"] for one in blocked["waiting"]] == ["dead_letter", "early"]
    assert blocked["what_helps"] == [
        f"angzarr dlq replay --event 'a b' --handler {SALES}",
        f"angzarr dlq skip --event 'a b' --handler {SALES}",
    ]
    told = shown("show", "sales")
    for part in ("dead letter", "parked", "letter letter-1", "angzarr dlq replay --event 'a b'"):
        assert part in told


def test_a_gap_is_shown_with_the_command_that_gives_up_on_it(said, shown, lanes):
    move(lanes, 2)
    lanes.park(waiting(4), 100)
    (gap,) = said("show", "sales")["waiting_lanes"]
    assert (gap["state"], gap["next_sequence"]) == ("gap", 2)
    assert gap["what_helps"] == ["angzarr projection skip sales order/o-1 --gap"]
    assert "missing" in shown("show", "sales")


def test_what_is_retried_needs_nobody(said, shown, lanes):
    lanes.note(waiting(0, Why.RETRYING))
    (retried,) = said("show", "sales")["waiting_lanes"]
    assert (retried["state"], retried["what_helps"]) == ("retrying", [])
    assert retried["waiting"][0]["due_at"] == (NOW + timedelta(hours=1)).isoformat()
    assert "due 20" in shown("show", "sales")


def test_what_was_processed_is_shown_by_type(said, shown, lanes):
    move(lanes, 3)
    story = said("show", "sales")
    assert story["by_type"]["OrderPlaced"]["events_processed"] == 3
    assert story["checkpoint"]["last_event_id"] == "e-2"
    assert story["waiting_lanes"] == []
    told = shown("show", "sales")
    assert "e-2 (OrderPlaced)" in told
    assert "nothing waits" in told


def test_lanes_of_editions_and_of_other_first_sequences_are_where_they_are(said, lanes):
    lanes.park(waiting(5, address=TWO, handler=SHIP), 100)
    (gap,) = said("show", SHIP)["waiting_lanes"]
    assert (gap["root"], gap["edition"], gap["next_sequence"]) == ("o-2", "what-if", 1)
    assert gap["what_helps"] == [f"angzarr projection skip {SHIP} order/o-2@what-if --gap"]


def test_so_many_are_shown_and_more_is_said(said, shown, lanes):
    for sequence in range(1, 5):
        lanes.park(waiting(sequence), 100)
    story = said("show", "sales", "--limit", "3")
    assert (len(story["waiting_lanes"][0]["waiting"]), story["more"]) == (3, True)
    assert "more waits" in shown("show", "sales", "--limit", "3")
    assert "more waits" not in shown("show", "sales")


def test_one_aggregate_is_shown_with_what_its_book_has(said, shown, lanes, books):
    fill(books, ONE, *ordered(5))
    fill(books, TWO, *ordered(1))
    move(lanes, 2)
    lanes.park(waiting(4), 100)
    lanes.park(waiting(1, address=TWO), 100)
    found = said("show", "sales", "order/o-1")
    assert (found["next_sequence"], found["state"]) == (2, "gap")
    assert found["in_book"]["OrderPlaced"]["events"] == 3
    assert [one["sequence"] for one in found["waiting"]] == [4]
    assert "3 OrderPlaced" in shown("show", "sales", "order/o-1")
    move(lanes, 1, Address("order", "done"))
    assert "nothing waits" in shown("show", "sales", "order/done")


def test_an_aggregate_of_which_nobody_has_heard_is_told(shown, books):
    fill(books, ONE, *ordered(1))
    unknown = shown("show", "sales", "order/nobodys")
    assert "unknown aggregate order/nobodys: sales has handled none of its events" in unknown
    assert "unknown aggregate" not in shown("show", "sales", "order/o-1")


def test_while_the_books_are_away_the_rest_is_listed(app, run, monkeypatch):
    def away(*_):
        raise StoreUnavailable("the books are away")

    monkeypatch.setattr(SqlEventStore, "heads", away)
    done = run("list")
    assert done.exit_code == 1
    assert "sales" in done.stdout
    assert "how far they are behind cannot be read: the books are away" in done.stderr
    told = json.loads(run("list", "--json").stdout)
    assert {one["name"] for one in told} == {"sales", SHIP}
    assert not any("events_behind" in one for one in told)


def test_a_type_that_nobody_takes_has_no_lag(refused, said, books):
    fill(books, ONE, *ordered(2), *ordered(1, kind="OrderViewed"))
    assert said("lag", "sales", "--type", "OrderViewed")["events_behind"] == 1
    told = refused("lag", "sales", "--type", "OrderPlaced", "--type", "OrderPlcaed")
    assert "sales takes no OrderPlcaed, and is behind none; it takes: OrderPlaced" in told


# -- begin -------------------------------------------------------------------------------------


def test_a_handler_may_begin_behind_what_has_happened(run, said, lanes, books):
    fill(books, ONE, *ordered(4))
    fill(books, TWO, *ordered(2))
    fill(books, Address("stock", "s-1"), *ordered(9))
    asked = run("begin", SHIP, "--at-present", input="n\n")
    assert asked.exit_code == 1
    assert "begins behind 4 events of 2 aggregates" in asked.stderr, "its first sequence is 1"
    assert lanes.look(lane(ONE, SHIP)).next_sequence == 1
    told = said("begin", SHIP, "--at-present", "--yes")
    assert told == {"name": SHIP, "aggregates": 2, "events": 4}
    assert [lanes.look(lane(at, SHIP)).next_sequence for at in (ONE, TWO)] == [4, 2]
    assert said("begin", SHIP, "--at-present", "--yes")["aggregates"] == 0


def test_what_came_before_anything_was_handled_is_left_out_too(said, lanes, books):
    fill(books, ONE, *ordered(4))
    assert said("begin", "sales", "--at-present", "--yes")["events"] == 4
    fill(books, ONE, *ordered(2))
    assert said("begin", "sales", "--at-present", "--yes")["events"] == 2
    lanes.move(Step(lane(), 6, "e-6", "OrderPlaced", NOW, NOW))
    fill(books, ONE, *ordered(1))
    assert said("begin", "sales", "--at-present", "--yes")["events"] == 0, "now it waits for it"


def test_what_was_handled_stays_where_it_is(said, lanes, books):
    fill(books, ONE, *ordered(4))
    move(lanes, 2)
    assert said("begin", "sales", "--at-present", "--yes")["aggregates"] == 0
    assert lanes.look(lane()).next_sequence == 2


def test_where_to_begin_is_to_be_said(run):
    assert "Missing option '--at-present'" in run("begin", SHIP).stderr


@pytest.mark.parametrize(
    ("said_so", "address"),
    [
        ("order/o-1", ONE),
        ("order/o-2@what-if", TWO),
        ("order/a/b", Address("order", "a/b")),
        ("order/ann@example.org@", Address("order", "ann@example.org")),
        ("order/ann@example.org@x", Address("order", "ann@example.org", "x")),
    ],
)
def test_an_aggregate_is_named_as_what_helps_names_it(said, lanes, said_so, address):
    lanes.park(waiting(4, address=address), 100)
    found = said("show", "sales", said_so)
    assert (found["domain"], found["root"], found["edition"]) == tuple(address)
    assert found["what_helps"] == [f"angzarr projection skip sales {said_so} --gap"]


@pytest.mark.parametrize("place", ["order", "order/", "/o-1", "Order/o-1", "order/@x", ""])
def test_what_is_no_aggregate_is_refused(refused, place):
    assert "is not a DOMAIN/ROOT[@EDITION]" in refused("show", "sales", place, code=2)


def test_an_aggregate_of_another_domain_is_refused(refused):
    assert "takes the events of order, stock, not of player" in refused(
        "show", "sales", "player/p-1"
    )
    assert "not of player" in refused("skip", "sales", "player/p-1", "--gap", "--yes")


def test_what_came_from_outside_is_shown_and_never_obeyed(shown, lanes):
    fields = {"event_id": EVIL, "event_type": EVIL}
    lanes.note(waiting(0, Why.DEAD_LETTER, letter_id=EVIL, **fields))
    lanes.park(waiting(1, **fields), 100)
    assert "[red]x[/red]" in shown("show", "sales")
    assert "[red]x[/red]" in shown("show", "sales", "order/o-1")


# -- skip ------------------------------------------------------------------------------------


def test_a_gap_is_given_up_on_after_it_was_shown(run, lanes, caplog):
    move(lanes, 2)
    lanes.park(waiting(4), 100)
    asked = run("skip", "sales", "order/o-1", "--gap", input="n\n")
    assert asked.exit_code == 1
    assert "#2 to #3 of order/o-1 (2 missing)" in asked.stderr
    assert lanes.look(lane()).next_sequence == 2
    done = run("skip", "sales", "order/o-1", "--gap", input="y\n")
    assert done.exit_code == 0, done.output
    assert "it goes on with #4" in done.stdout
    assert lanes.look(lane()).next_sequence == 4
    (line,) = [one for one in caplog.records if "lane_skipped" in one.message]
    assert line.levelname == "WARNING"


def test_a_skip_goes_as_far_as_it_is_told(said, lanes):
    move(lanes, 2)
    lanes.park(waiting(4), 100)
    lanes.park(waiting(6), 100)
    found = said("skip", "sales", "order/o-1", "--to", "6", "--yes")
    assert (found["from"], found["next_sequence"]) == (2, 6)
    assert (found["missing"], found["passed"]) == (3, [4])
    assert lanes.look(lane()).next_sequence == 6


def test_a_skip_says_which_parked_events_it_passes(run, lanes):
    lanes.park(waiting(1), 100)
    lanes.note(waiting(2, Why.RETRYING))
    asked = run("skip", "sales", "order/o-1", "--to", "3", input="n\n")
    told = "(1 missing, OrderPlaced #1 parked, OrderPlaced #2 being retried)"
    assert told in asked.stderr


def test_a_dead_letter_is_skipped_by_another_command(refused, lanes):
    lanes.note(waiting(0, Why.DEAD_LETTER))
    lanes.park(waiting(1), 100)
    for how in (["--gap"], ["--to", "1"]):
        told = refused("skip", "sales", "order/o-1", *how, "--yes")
        assert f"angzarr dlq skip --event e-0 --handler {SALES}" in told
    assert lanes.look(lane()).next_sequence == 0


def test_a_dead_letter_further_on_is_not_passed_either(refused, lanes):
    lanes.note(waiting(2, Why.DEAD_LETTER))
    lanes.park(waiting(4), 100)
    told = refused("skip", "sales", "order/o-1", "--to", "4", "--yes")
    assert "#2 of order/o-1 is a dead letter" in told


@pytest.mark.parametrize("why", [None, Why.EARLY, Why.RETRYING])
def test_where_there_is_no_gap_none_is_skipped(refused, lanes, why):
    if why is not None:
        lanes.note(waiting(0, why)) if why is Why.RETRYING else lanes.park(waiting(1), 100)
    if why is Why.EARLY:
        move(lanes, 1)
    assert "has no gap" in refused("skip", "sales", "order/o-1", "--gap", "--yes")


def test_a_lane_never_goes_back(refused, lanes):
    move(lanes, 3)
    for to in ("1", "3"):
        told = refused("skip", "sales", "order/o-1", "--to", to, "--yes")
        assert "is at #3 already" in told


def test_a_skip_beyond_all_that_is_known_is_refused(refused, said, lanes, books):
    told = refused("skip", "sales", "order/o-1", "--to", "3", "--yes")
    assert "there is no known event #2" in told
    lanes.park(waiting(1), 100)
    told = refused("skip", "sales", "order/o-1", "--to", "3", "--yes")
    assert "skip to #2" in told
    fill(books, ONE, *ordered(3))
    refused("skip", "sales", "order/o-1", "--to", "4", "--yes")
    assert said("skip", "sales", "order/o-1", "--to", "3", "--yes")["next_sequence"] == 3


def test_a_skip_says_what_would_come_by_itself(run, lanes, books):
    fill(books, ONE, *ordered(3))
    fill(books, ONE._replace(root="o-11"), *ordered(3))
    lanes.park(waiting(2), 100)
    asked = run("skip", "sales", "order/o-1", "--gap", input="n\n")
    assert "(2 missing, 2 of which a worker would send again from the event book)" in asked.stderr
    lanes.park(waiting(1), 100)
    asked = run("skip", "sales", "order/o-1", "--to", "3", input="n\n")
    assert "(1 missing, 1 of which" in asked.stderr


@pytest.mark.parametrize("how", [[], ["--gap", "--to", "3"], ["--to", "0"]])
def test_how_far_must_be_said_once(refused, how):
    refused("skip", "sales", "order/o-1", *how, "--yes", code=2)


# -- reset -----------------------------------------------------------------------------------


@pytest.fixture
def read_model(app, lanes):
    """Return what counts the rows of the read model, which has one."""
    lanes.run(
        Step(lane(TWO), 0, "e-0", "OrderPlaced", NOW, NOW),
        lambda connection: (
            connection.execute(text("CREATE TABLE sales (total INTEGER)")),
            connection.execute(text("INSERT INTO sales VALUES (1)")),
        ),
    )

    def count():
        found = []
        with lanes.transaction() as connection:
            found += connection.execute(text("SELECT total FROM sales")).scalars()
        return len(found)

    return count


def test_a_reset_empties_the_read_model_and_lets_lanes_begin_anew(
    run, app, lanes, read_model, caplog
):
    move(lanes, 3)
    lanes.park(waiting(5), 100)
    asked = run("reset", "sales", "--force", input="n\n")
    assert asked.exit_code == 1
    assert "its read model is emptied, and 2 lanes begin anew?" in asked.stderr
    assert read_model() == 1
    done = run("reset", "sales", "--force", "--yes")
    assert done.exit_code == 0, done.output
    assert "angzarr projection rebuild sales" in done.stdout
    assert read_model() == 0
    assert lanes.look(lane()).next_sequence == 0
    assert app._parts.ordering.checkpoints.get(SALES) is None
    assert [one.sequence for one in lanes.waiting(SALES)] == [5], "no message is lost"
    assert {one.levelname for one in caplog.records if "projection_reset" in one.message} == {
        "WARNING"
    }


def test_a_read_model_that_cannot_be_emptied_leaves_all_as_it_was(
    refused, app, lanes, read_model, monkeypatch
):
    move(lanes, 3)
    monkeypatch.setattr(Sales, "tables", ())
    assert "it cannot be emptied" in refused("reset", "sales", "--force", "--yes")
    assert lanes.look(lane()).next_sequence == 3
    assert app._parts.ordering.checkpoints.get(SALES).events_processed == 4
    assert read_model() == 1


def test_a_reset_after_which_lanes_would_wait_for_ever_must_be_forced(
    run, refused, app, lanes, books, read_model
):
    fill(books, ONE, *ordered(3))
    move(lanes, 3)
    told = refused("reset", "sales", "--yes")
    assert "has handled 1 events or more that are in no event book" in told, "that of the other"
    assert "--force" in told
    assert lanes.look(lane()).next_sequence == 3
    assert read_model() == 1
    fill(books, TWO, *ordered(1))
    assert run("reset", "sales", "--yes").exit_code == 0


def test_of_another_handler_the_effects_stay(run, said, lanes, read_model):
    lanes.move(Step(lane(handler=SHIP), 1, "e-1", "OrderPlaced", NOW, NOW))
    asked = run("reset", SHIP, "--force", input="n\n")
    assert "its effects stay as they are, and 1 lanes begin anew?" in asked.stderr
    assert said("reset", SHIP, "--force", "--yes") == {"name": SHIP, "lanes": 1}
    assert lanes.look(lane(handler=SHIP)).next_sequence == 1
    assert read_model() == 1


# -- stores ----------------------------------------------------------------------------------


def test_without_a_database_for_the_order_it_is_said_what_to_set(monkeypatch, run):
    with apps(prepare, broker="redis://127.0.0.1:1") as make:
        serve(monkeypatch, make())
        for arguments in (["list"], ["lag", "sales"], ["show", "sales"], ["reset", "sales"]):
            result = run(*arguments)
            assert result.exit_code == 1
            assert "set ordering.url" in " ".join(result.stderr.split())
