"""The doctor and real databases: what is not on a disk, tables of another release, histories."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel
from sqlalchemy import create_engine, text
from tests.contracts.event_store import event, fill

from angzarr import Projection, handles
from angzarr.adapters.sql.engine import doctor as examination
from angzarr.aggregates.book import Address
from angzarr.facts.fact import Fact
from angzarr.facts.fact_text import fact_text
from angzarr.fleet import Member
from angzarr.ordering.lane import Lane, Step
from apps import apps
from doctoring import examined, found, ids
from polling import wait_until


class OrderPlaced(BaseModel):
    total: int


class Sales(Projection):
    tables = ("sales",)

    @handles(OrderPlaced)
    def placed(self, event: OrderPlaced) -> None:
        """Nothing is placed here."""


@pytest.fixture
def make_app(redis_url, amqp_url):
    given = {"broker": redis_url, "dlq": {"backend": "amqp", "amqp_url": amqp_url}}
    with apps(**given) as make:
        yield make


@pytest.fixture
def said(postgresql_url):
    """Send statements to the database of this session, each committed at once."""
    engine = create_engine(postgresql_url, isolation_level="AUTOCOMMIT")

    def send(statement):
        with engine.connect() as connection:
            connection.execute(text(statement))

    yield send
    engine.dispose()


def test_a_database_that_forgets_commits_is_told_until_it_does_not(make_app, said, postgresql_url):
    app = make_app(ledger=postgresql_url)
    assert "postgresql-synchronous-commit" not in ids(examined(app))
    name = postgresql_url.rpartition("/")[2]
    said(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    try:
        report = examined(app)
    finally:
        said(f'ALTER DATABASE "{name}" RESET synchronous_commit')
    (told,) = found(report, "postgresql-synchronous-commit")
    assert "ALTER DATABASE" in told.change, "which ALTER SYSTEM would not mend"
    assert "postgresql-fsync" in ids(report, "critical"), "tests have no fsync"


def test_only_connections_that_a_limit_counts_are_counted(postgresql_url):
    """PostgreSQL lists half a dozen processes of its own beside its clients."""
    engine = create_engine(postgresql_url)
    counted = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"

    def alike():
        with engine.connect() as one:
            before = one.scalar(text(counted))
            used = examination.examine(
                postgresql_url, ["ledger"], timeout=timedelta(seconds=5)
            ).used
            after = one.scalar(text(counted))
        return used is not None and min(before, after) <= used <= max(before, after) + 1

    wait_until(alike, "a moment in which few others connect")
    engine.dispose()


def test_a_password_in_an_address_is_shown_to_nobody(make_app):
    url = "postgresql+psycopg://jo:hunter2@127.0.0.1:9/x?password=hunter3"
    report = examined(make_app(ledger=url))
    assert [one.at for one in found(report, "server-away")] == [
        "PostgreSQL at jo:***@127.0.0.1:9/x"
    ]
    assert "hunter" not in repr(report)


def test_tables_are_made_by_nobody_and_told_where_they_are_behind(
    make_app, said, postgresql_url, monkeypatch
):
    said("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    app = make_app(ledger=postgresql_url)
    (missing,) = found(examined(app), "tables-behind")
    assert (missing.severity, missing.seen[:13]) == ("info", "revision none")
    assert found(examined(app), "tables-behind"), "looking makes no tables"
    (upkeep,) = app.ops.table_upkeeps(["ledger"]).values()
    upkeep().upgrade()
    assert not found(examined(app), "tables-behind")
    said("UPDATE ledger_version SET version_num = '0013'")
    (behind,) = found(examined(app), "tables-behind")
    assert (behind.severity, behind.change) == ("warning", "angzarr database upgrade ledger")
    monkeypatch.setenv("ANGZARR_LEDGER_MIGRATE", "false")
    (refusing,) = found(examined(make_app(ledger=postgresql_url)), "tables-behind")
    assert refusing.severity == "error"
    said("UPDATE ledger_version SET version_num = '9999'")
    assert "tables-newer" in ids(examined(app), "error")
    said("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


def test_a_file_is_told_of_one_machine_and_is_not_made(make_app, tmp_path):
    path = tmp_path / "angzarr.db"
    with apps(broker="memory://", store=f"sqlite:///{path}", books=f"sqlite:///{path}") as make:
        report = examined(make())
    assert "database-of-one-host" in ids(report, "warning")
    assert "embedded-broker" in ids(report, "critical")
    assert not path.exists()


def test_what_a_worker_would_refuse_is_a_finding_with_its_cure(make_app):
    def ordered(app):
        @app.handler(OrderPlaced, name="shop.ship", domain="order", ordered_by="root")
        def ship(event: OrderPlaced) -> None:
            """Nothing is shipped here."""

    app = make_app()
    assert not found(examined(app), "settings-refused")
    ordered(app)
    (told,) = found(examined(app), "settings-refused")
    assert "set ordering.url" in told.seen


def test_without_a_ledger_nobody_can_analyse_letters(make_app, postgresql_url):
    assert "no-ledger" in ids(examined(make_app()), "warning")
    assert "no-ledger" not in ids(examined(make_app(ledger=postgresql_url)))


# -- ordered handlers ---------------------------------------------------------------------------


@pytest.fixture
def sales(tmp_path):
    url = f"sqlite:///{tmp_path / 'orders.db'}"

    def prepare(app):
        app.projection("sales", domains=["order"])(Sales)

    with apps(prepare, broker="memory://", store=url, books=url) as make:
        yield make()


def test_a_handler_that_is_newly_ordered_over_a_history_is_told(sales):
    event_stores, address = sales.ops.open_event_stores(), Address("order", "o-1")
    try:
        assert "ordered-over-history" not in ids(examined(sales)), "there is none"
        now = datetime.now(UTC)
        fill(event_stores.books, address, *(event("OrderPlaced") for _ in range(3)))
        (told,) = found(examined(sales), "ordered-over-history")
        assert told.seen.startswith("it has handled nothing, and 3 events")
        lanes = sales._parts.ordering.lanes
        lanes.skip_to(Lane("projection.sales", address, 0), 3)
        assert "ordered-over-history" not in ids(examined(sales)), "they were left on purpose"
        fill(event_stores.books, address, event("OrderPlaced"))
        lanes.move(Step(Lane("projection.sales", address, 0), 3, "e", "OrderPlaced", now, now))
        fill(event_stores.books, address, event("OrderPlaced"))
        assert "ordered-over-history" not in ids(examined(sales)), "it is on its way"
    finally:
        event_stores.close()


def test_books_and_order_in_two_databases_are_told(tmp_path):
    books, order = (f"sqlite:///{tmp_path / name}.db" for name in ("books", "order"))

    def prepare(app):
        app.projection("sales", domains=["order"])(Sales)

    with apps(prepare, broker="memory://", store=books, books=books) as make:
        assert "books-and-order-apart" not in ids(examined(make()))
        assert "books-and-order-apart" in ids(examined(make(ordering={"url": order})))


def test_a_look_at_a_fleet_tells_handlers_that_nobody_runs(make_app):
    app = make_app()

    @app.task(name="shop.mail", shared=False)
    def mail():
        """Nothing is mailed here."""

    app._parts.claims.leases.renew("web:1", timedelta(minutes=5))
    known = {"owner": "web:1", "host": "w", "pid": 1, "started_at": datetime.now(UTC)}
    app.ops.fleet().register(Member(handlers=("shop.other",), **known))
    told = ids(examined(app))
    assert {"handler-nowhere", "handler-unknown", "release-unnamed"} <= told
    app.ops.fleet().register(Member(handlers=("shop.mail",), release="v1", **known))
    told = ids(examined(app))
    assert not {"handler-nowhere", "handler-unknown", "release-unnamed"} & told


def test_facts_of_acts_that_no_analysis_worker_moves_are_told(make_app, postgresql_url):
    app = make_app(ledger=postgresql_url)
    app.ops.table_upkeeps(["ledger"])["ledger"]().upgrade()
    with closing(app.ops.open_act_outbox()) as outbox:
        outbox.remove([one.place for one in outbox.read(1000)])
        assert not found(examined(app), "acts-waiting")
        happened = datetime.now(UTC) - timedelta(minutes=9)
        fact = Fact(id="f1", type="lifecycle", subtype="entry_skipped", at=happened)
        outbox.put([fact_text(fact)])
        (told,) = found(examined(app), "acts-waiting")
        outbox.remove([one.place for one in outbox.read(1000)])
    assert told.seen == "the oldest has waited for 9 min"
    assert "dlq analyze" in told.change


def test_acts_whose_process_was_killed_are_told(make_app, tmp_path):
    app = make_app(facts={"url": f"sqlite:///{tmp_path}/facts.db"})
    assert not found(examined(app), "acts-unended"), "and no table is made for a look"
    with closing(app.ops.open_fact_store()) as store:
        begun = datetime.now(UTC) - timedelta(hours=2)
        data = {"by": "ann", "act": "configuration_put", "subject": "pricing"}
        for id_ in ("b1", "b2"):
            store.add(Fact(id=id_, type="lifecycle", subtype="act_begun", at=begun, data=data))
        report = examined(app)
        (told,) = found(report, "acts-unended")
        assert told.seen.startswith("2 acts have no end: configuration_put of pricing, ")
        assert not found(report, "look-failed")
        for id_ in ("b1", "b2"):
            end = Fact(id=f"{id_}:end", type="lifecycle", subtype="seen", at=begun, resolves=id_)
            store.add(end)
    assert not found(examined(app), "acts-unended")
