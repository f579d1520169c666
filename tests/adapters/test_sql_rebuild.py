from __future__ import annotations

import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, event, select, text, update
from sqlalchemy.exc import OperationalError
from tests.adapters import rebuild_world
from tests.adapters.rebuild_world import Balances, World, Writers
from tests.conftest import own_database
from tests.contracts.waiting_events import AT, MINUTE, early_of, letter_of

import warm_process
from angzarr.adapters.sql.ordering import runs as gate
from angzarr.adapters.sql.ordering import waiting_events
from angzarr.adapters.sql.ordering.moves import LaneMoves
from angzarr.adapters.sql.ordering.tables import ordering_waiting
from angzarr.adapters.sql.rebuild import in_place as green_in_place
from angzarr.adapters.sql.rebuild import store as green_lanes
from angzarr.adapters.sql.rebuild.shadow import SqlShadowTables
from angzarr.aggregates.book import Address
from angzarr.errors import RebuildError, Skip, StoreUnavailable
from angzarr.ordering.lane import Lane, Moved, Place, Step, Waiting, Why
from angzarr.projections.rebuild import Rebuild, RebuildStopped
from angzarr.projections.rebuild_events import head_after
from angzarr.projections.shadow_table import (
    Abandoned,
    Applied,
    Busy,
    SwitchedOver,
    TransactionEnded,
)
from hand_clock import HandClock
from polling import wait_until


def made(url):
    """Make a world's tables in *url*, of which each test has a copy: that is faster."""
    world = World(url)
    world.make()
    world.close()
    return url


@pytest.fixture(scope="module")
def made_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("made") / "read models.db"
    made(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="module")
def made_database(session_name):
    name = f"{session_name}-read-models"
    with own_database(name) as url:
        made(url)
        yield name


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql_copy")
    return f"sqlite:///{shutil.copy(request.getfixturevalue('made_file'), tmp_path)}"


@pytest.fixture
def postgresql_copy(made_database, session_name, unique_name):
    with own_database(f"{session_name}-{unique_name}", like=made_database) as url:
        yield url


@pytest.fixture
def world(url):
    world = World(url)
    yield world
    world.close()
    Balances.bad.clear()


def spoil(world):
    """Let the live read model be wrong."""
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE accounts SET balance = balance + 1"))
        connection.execute(text("DELETE FROM bookings"))
        connection.execute(text("UPDATE sums SET total = 0"))


def test_a_rebuilt_read_model_equals_one_that_has_seen_everything_once(world):
    world.handle(world.fill(30, 10))
    right, lanes = world.digest(), world.lane_places()
    spoil(world)
    assert world.digest() != right
    done = world.rebuild(batch=25)
    assert world.digest() == right
    assert world.lane_places() == lanes
    assert done.events == sum(lanes.values())


def test_the_space_is_gone_afterwards(world):
    world.handle(world.fill(3, 3))
    world.rebuild()
    with world.green() as green:
        assert not green.abandon()


def test_live_events_keep_arriving_and_none_is_lost_or_counted_twice(world):
    before = world.fill(30, 10)
    world.handle(before)
    spoil(world)
    with Writers(world) as writers:
        wait_until(lambda: writers.events or writers.errors, "a live event")
        world.rebuild(batch=20)
    assert not writers.errors
    assert writers.events
    rebuilt, lanes = world.digest(), world.lane_places()
    # A second world has seen everything once.
    with world.engine.begin() as connection:
        Balances(connection).reset()
    world.lanes.reset(world.handler)
    world.handle(before)
    world.handle(sorted(writers.events, key=lambda event: event.sequence))
    assert world.digest() == rebuilt
    assert world.lane_places() == lanes


def test_a_stopped_rebuild_goes_on_where_it_was(world):
    world.handle(world.fill(20, 10))
    right = world.digest()
    spoil(world)
    told = []
    stopped = world.rebuild(batch=10, stop=lambda: len(told) > 3, tell=told.append)
    assert isinstance(stopped, RebuildStopped)
    assert 0 < stopped.events < sum(world.lane_places().values())
    begun = []
    world.rebuild(begun=begun.append)
    assert begun[0].resumed
    assert begun[0].events == stopped.events
    assert world.digest() == right


FAULTS = [
    "begin:1",
    "work:1",
    "work:33",
    "work:150",
    "note:2",
    "note:7",
    "places:4",
    "forgive:1",
    "copy:1",
    "lanes:1",
    "checkpoint:1",
    "remove:1",
]


def killed(world, fault, how="beside"):
    """Rebuild in a process that kills itself at *fault*; tell whether it came so far."""
    program, folder = ["rebuild_world", world.url, fault, how], Path(rebuild_world.__file__).parent
    return warm_process.run(program, folder=folder).returncode == -signal.SIGKILL


def test_a_rebuild_that_is_killed_anywhere_goes_on_without_a_trace(world):
    world.handle(world.fill(25, 12))
    right, lanes = world.digest(), world.lane_places()
    spoil(world)
    kills = 0
    for fault in FAULTS:
        kills += killed(world, fault)
        world.handle(world.append("a-live-one", ("Renamed", None)))
    assert kills >= 10
    world.rebuild()
    lanes["a-live-one"] = len(FAULTS)
    assert world.digest() == right
    assert world.lane_places() == lanes


def test_a_rebuild_in_place_that_is_killed_anywhere_goes_on(world):
    world.handle(world.fill(25, 12))
    right, lanes = world.digest(), world.lane_places()
    spoil(world)
    kills = sum(
        killed(world, fault, "in_place") for fault in ["work:1", "note:4", "note:5", "work:30"]
    )
    assert kills == 4
    world.rebuild(in_place=True)
    assert world.digest() == right
    assert world.lane_places() == lanes


def test_live_events_during_a_rebuild_in_place_have_their_effects_once(world):
    before = world.fill(25, 10)
    world.handle(before)
    right = sum(event.data for event in before if event.type == "Booked")
    with Writers(world) as writers:
        world.rebuild(in_place=True, batch=20)
    assert not writers.errors
    right += sum(event.data for event in writers.events if event.type == "Booked")
    assert world.rows("SELECT total FROM sums") == [(right,)]


def test_readers_see_the_old_rows_or_the_new_ones(world):
    world.handle(world.fill(40, 10))
    old = world.rows("SELECT sum(balance), count(*) FROM accounts")
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE accounts SET balance = balance + 1"))
    spoiled = world.rows("SELECT sum(balance), count(*) FROM accounts")
    seen, over = set(), threading.Event()

    def read():
        while not over.is_set():
            seen.update(world.rows("SELECT sum(balance), count(*) FROM accounts"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        world.rebuild(batch=50)
    finally:
        over.set()
        reader.join()
    assert seen <= {*old, *spoiled}
    assert spoiled[0] in seen
    assert world.rows("SELECT sum(balance), count(*) FROM accounts") == old


def test_a_failing_event_stops_it_and_what_is_before_is_kept(world):
    events = world.append("a", ("Opened", None), ("Booked", 3), ("Booked", 666), ("Booked", 4))
    events += world.append("b", ("Opened", None), ("Booked", 5))
    world.handle(events)
    right = world.digest()
    Balances.bad.add(666)
    with pytest.raises(RebuildError) as caught:
        world.rebuild()
    said = str(caught.value)
    assert events[2].id in said
    assert "sequence 2 of account/a" in said
    assert "ValueError: 666 cannot be booked" in said
    Balances.bad.clear()
    begun = []
    done = world.rebuild(begun=begun.append)
    assert begun[0].events == 2
    assert done.events == 6
    assert world.digest() == right


def test_with_keep_going_a_failure_only_stops_its_aggregate(world):
    world.append("a", ("Opened", None), ("Booked", 3), ("Booked", 666), ("Booked", 4))
    events = world.append("b", ("Opened", None), ("Booked", 5), ("Booked", 666))
    world.handle(events)
    Balances.bad.add(666)
    done = world.rebuild(keep_going=True)
    assert [(one.address.root, one.sequence) for one in done.failures] == [("a", 2), ("b", 2)]
    assert world.rows("SELECT id, balance FROM accounts ORDER BY id") == [("a", 3), ("b", 5)]
    assert world.lane_places() == {"a": 2, "b": 2}


def test_an_aggregate_that_fails_at_its_first_event_begins_there(world, monkeypatch):
    world.handle(world.append("a", ("Opened", None), ("Booked", 3)))

    def refuse(self, data):
        raise ValueError("never")

    monkeypatch.setattr(Balances, "opened", refuse)
    world.rebuild(keep_going=True)
    assert world.rows("SELECT * FROM accounts") == []
    assert world.lane_places() == {"a": 0}


def test_aggregates_that_failed_are_tried_again_by_the_next_run(world):
    world.append("a", ("Opened", None), ("Booked", 666), ("Booked", 4))
    world.append("b", *[("Renamed", None)] * 10)
    Balances.bad.add(666)
    told = []
    world.rebuild(keep_going=True, batch=2, stop=lambda: len(told) > 4, tell=told.append)
    Balances.bad.clear()
    done = world.rebuild(batch=2)
    assert not done.failures
    assert world.rows("SELECT balance FROM accounts") == [(670,)]


def test_a_skipped_event_is_passed_without_its_effects(world, monkeypatch):
    def skipping(self, data):
        self.run("UPDATE accounts SET balance = 1000")
        raise Skip("not this one")

    monkeypatch.setattr(Balances, "closed", skipping)
    world.append("a", ("Opened", None), ("Booked", 3), ("Closed", None), ("Booked", 4))
    assert world.rebuild().events == 4
    assert world.rows("SELECT balance FROM accounts") == [(7,)]


def test_what_is_before_the_first_sequence_is_left_out(world):
    world.plan = replace(world.plan, first=1)
    world.append("a", ("Renamed", "before"), ("Opened", None), ("Booked", 3))
    assert world.rebuild().events == 2
    rows = world.rows("SELECT first_sequence, next_sequence FROM ordering_lanes")
    assert rows == [(1, 3)]


def test_a_projection_may_use_temporary_tables(postgresql, monkeypatch):
    def noting(self, data):
        self.run("CREATE TEMPORARY TABLE IF NOT EXISTS noted (n int)")
        self.run("INSERT INTO noted VALUES (:n)", n=data)

    monkeypatch.setattr(Balances, "booked", noting)
    postgresql.append("a", ("Opened", None), ("Booked", 3))
    assert postgresql.rebuild().events == 2


def test_two_at_once_are_one_too_many(world):
    world.fill(3, 3)
    with world.green() as green:
        green.begin()
        with pytest.raises(RebuildError, match="another process"):
            world.rebuild()


def test_a_space_may_be_begun_twice(world):
    with world.green() as green:
        assert not green.begin().resumed
        assert green.begin().resumed


def test_an_abandoned_rebuild_begins_anew(world):
    world.handle(world.fill(10, 10))
    right, told = world.digest(), []
    world.rebuild(batch=10, stop=lambda: len(told) > 1, tell=told.append)
    with world.green() as green:
        assert green.abandon()
    begun = []
    world.rebuild(begun=begun.append)
    assert not begun[0].resumed
    assert world.digest() == right


def test_a_table_that_is_not_there_is_named(world):
    world.plan = replace(world.plan, tables=("accounts", "bookingz"))
    with pytest.raises(RebuildError, match="'bookingz' in `tables`"):
        world.rebuild()


def test_a_rebuild_of_other_tables_is_not_gone_on_with(world):
    world.handle(world.fill(5, 3))
    told = []
    world.rebuild(batch=1, stop=lambda: len(told) > 1, tell=told.append)
    with world.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE accounts ADD COLUMN owner text")
    with pytest.raises(RebuildError, match="--abandon"):
        world.rebuild()


CHANGES = {
    "a column more": ["ALTER TABLE sums ADD COLUMN note text DEFAULT 'kept'"],
    "another table": [
        "ALTER TABLE sums RENAME TO sums_before",
        "CREATE TABLE sums (name text PRIMARY KEY, total bigint NOT NULL, note text)",
        "INSERT INTO sums VALUES ('all', 0, 'kept')",
    ],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_changed_during_the_rebuild_is_left_as_it_is(world, change):
    world.handle(world.append("a", ("Opened", None), ("Booked", 3)))
    with world.green() as green:
        green.begin()
        with world.engine.begin() as connection:
            for statement in CHANGES[change]:
                connection.exec_driver_sql(statement)
        with pytest.raises(RebuildError, match="sums was changed while balances was rebuilt"):
            green.compare(lambda _lacking: None)
        with pytest.raises(RebuildError, match="sums was changed while balances was rebuilt"):
            green.switch_over(lambda _lacking: None, force=True)
    assert world.rows("SELECT note FROM sums") == [("kept",)]
    with pytest.raises(RebuildError, match="--abandon"):
        world.rebuild()


def test_a_table_that_names_others_of_its_read_model_is_not_taken_for_changed(postgresql):
    with postgresql.engine.begin() as connection:
        connection.exec_driver_sql(
            "ALTER TABLE sums ADD COLUMN of regclass DEFAULT 'accounts'::regclass"
        )
    postgresql.append("a", ("Opened", None), ("Booked", 3))
    assert postgresql.rebuild().events == 2


def test_a_table_that_is_another_one_by_now_is_left_as_it_is(postgresql):
    with postgresql.green() as green:
        green.begin()
        with postgresql.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE sums RENAME TO sums_before")
            connection.exec_driver_sql("CREATE TABLE sums (LIKE sums_before INCLUDING ALL)")
            connection.exec_driver_sql("INSERT INTO sums VALUES ('all', 5)")
        with pytest.raises(RebuildError, match="sums was changed while balances was rebuilt"):
            green.switch_over(lambda _lacking: None, force=True)
    assert postgresql.rows("SELECT total FROM sums") == [(5,)]


def test_a_table_that_is_written_to_and_not_named_is_found(world):
    world.plan = replace(world.plan, tables=("accounts", "bookings"))
    world.fill(3, 3)
    with pytest.raises(RebuildError, match=r"writes to (public\.)?sums"):
        world.rebuild()
    assert world.rows("SELECT * FROM sums") == []


def test_a_table_that_is_written_to_after_a_switch_that_was_kept_out_is_found(world, monkeypatch):
    world.append("a", ("Opened", None), ("Booked", 1), ("Unforeseen", None))
    opened, booked, unforeseen = world.store.scan(world.plan.domains, None, 3)
    with world.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE unnamed (n int)")
    right_work = world.work

    def work(event, connection):
        right_work(event, connection)
        if event.type == "Unforeseen":
            connection.execute(text("INSERT INTO unnamed VALUES (1)"))

    def kept_out(*_):
        raise OperationalError("", None, psycopg.errors.LockNotAvailable("lock timeout"))

    monkeypatch.setattr(world, "work", work)
    with world.green() as green:
        green.begin()
        green.apply([opened], head_after(opened))
        with monkeypatch.context() as busy:
            busy.setattr(green_lanes, "set_checkpoint", kept_out)
            assert isinstance(green.switch_over(lambda _lacking: None, force=False), Busy)
        assert green.apply([booked], None) == Applied(1), "what was undone is no stray"
        with pytest.raises(RebuildError, match=r"writes to (public\.)?unnamed"):
            green.apply([unforeseen], None)
    assert world.rows("SELECT * FROM unnamed") == []


def test_events_that_no_book_has_are_not_given_up_by_themselves(world):
    events = world.append("a", ("Opened", None), ("Booked", 3))
    world.handle(events)
    published = replace(events[1], sequence=2, id="unbooked")
    world.handle([published, replace(published, sequence=3, id="another")])
    with pytest.raises(RebuildError, match="2 events that are in no event book"):
        world.rebuild()
    assert world.rows("SELECT balance FROM accounts") == [(9,)]
    world.rebuild(force=True)
    assert world.rows("SELECT balance FROM accounts") == [(3,)]
    assert world.lane_places() == {"a": 4}


def test_the_checkpoint_says_what_is_in_the_read_model(world):
    world.append("a", ("Opened", None), ("Booked", 3), ("Booked", 4))
    world.rebuild()
    rows = world.rows(
        "SELECT projection, event_type, sum(events_processed) FROM projection_checkpoints"
        " GROUP BY 1, 2 ORDER BY 2"
    )
    assert rows == [(world.handler, "Booked", 2), (world.handler, "Opened", 1)]


def test_what_waits_in_a_lane_that_is_past_it_is_settled(world):
    world.append("a", ("Opened", None), ("Booked", 3), ("Booked", 4))
    lane = Lane(world.handler, Address("account", "a"))
    now = datetime.now(UTC)
    common = {"lane": lane, "since": now, "event_type": "Booked"}
    dead = Waiting(sequence=0, why=Why.DEAD_LETTER, letter_id="l", event_id="0", **common)
    world.lanes.note(dead)
    parked = Waiting(sequence=2, why=Why.EARLY, text="m2", event_id="2", **common)
    world.lanes.park(parked, 10)
    later = Waiting(sequence=7, why=Why.EARLY, text="m7", event_id="7", **common)
    world.lanes.park(later, 10)
    world.rebuild()
    assert world.lanes.look(lane) == Place(3, 2)
    due = world.lanes.due([world.handler], datetime.now(UTC), timedelta(minutes=1), 10)
    assert [one.sequence for one in due] == [2]


def test_generated_keys_go_on_beyond_those_that_are_there(world):
    world.handle(world.append("a", ("Opened", None), *[("Booked", n) for n in range(30)]))
    world.rebuild()
    world.handle(world.append("a", ("Booked", 99)))
    assert len(world.rows("SELECT DISTINCT id FROM bookings")) == 31


def test_verify_says_whether_live_is_what_the_store_says(world):
    world.handle(world.fill(10, 5))
    assert not world.verify().differing
    with world.green() as green:
        assert not green.abandon()
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE sums SET total = total + 1"))
    before = world.digest()
    assert world.verify().differing == {"sums": (1, 1)}
    assert world.digest() == before
    with world.green() as green:
        assert not green.abandon()
    world.rebuild()
    assert not world.verify().differing


def test_keys_that_sqlite_gives_are_not_compared(tmp_path, monkeypatch):
    world = World(f"sqlite:///{tmp_path / 'numbered.db'}")
    world.plan = replace(world.plan, tables=("log",))
    with world.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE log (id integer PRIMARY KEY, who text)")

    def opened(self, _data):
        self.run("INSERT INTO log (who) VALUES (:id)", id=self.event.root)

    monkeypatch.setattr(Balances, "opened", opened)
    for root in "zab":
        world.handle(world.append(root, ("Opened", None)))
    compared = world.verify()
    assert (compared.differing, compared.renumbered) == ({}, ("log.id",))
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE log SET who = 'c' WHERE who = 'b'"))
    assert world.verify().differing == {"log": (3, 3)}
    world.close()


def test_keys_that_a_projection_gives_are_compared(tmp_path, monkeypatch):
    world = World(f"sqlite:///{tmp_path / 'given.db'}")
    world.plan = replace(world.plan, tables=("log",))
    with world.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE log (id integer PRIMARY KEY, n int) WITHOUT ROWID")

    def opened(self, data):
        self.run("INSERT INTO log VALUES (:id, :n)", id=ord(self.event.root), n=data)

    monkeypatch.setattr(Balances, "opened", opened)
    for root in "ab":
        world.handle(world.append(root, ("Opened", ord(root))))
    compared = world.verify()
    assert (compared.differing, compared.renumbered) == ({}, ())
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE log SET n = 195 - n"))
    assert world.verify().differing == {"log": (2, 2)}
    world.close()


def test_other_tables_of_sqlite_lose_no_row_that_they_refer_to(tmp_path, monkeypatch):
    world = World(f"sqlite:///{tmp_path / 'between.db'}")
    world.plan = replace(world.plan, tables=("orders",))
    with world.engine.begin() as connection:
        for made in (
            "CREATE TABLE customers (id text PRIMARY KEY)",
            "INSERT INTO customers VALUES ('c')",
            "CREATE TABLE orders (id text PRIMARY KEY, customer text REFERENCES customers)",
            "CREATE TABLE notes (about text REFERENCES orders)",
        ):
            connection.exec_driver_sql(made)

    def opened(self, _data):
        self.run("INSERT INTO orders VALUES (:id, 'c')", id=self.event.root)

    monkeypatch.setattr(Balances, "opened", opened)
    world.handle(world.append("a", ("Opened", None)))
    with world.engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO notes VALUES ('a')")
    world.rebuild()
    with world.engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO orders VALUES ('by hand', 'c')")
        connection.exec_driver_sql("INSERT INTO notes VALUES ('by hand')")
    with pytest.raises(RebuildError, match="notes would refer to rows of orders that are not"):
        world.rebuild()
    assert world.rows("SELECT id FROM orders ORDER BY id") == [("a",), ("by hand",)]
    world.close()


def test_a_rebuild_that_cannot_begin_leaves_no_file(tmp_path):
    world = World(f"sqlite:///{tmp_path / 'r.db'}")
    world.make()
    world.plan = replace(world.plan, tables=("accounts", "bookingz"))
    with pytest.raises(RebuildError, match="'bookingz' in `tables`"):
        world.rebuild()
    assert [one.name for one in tmp_path.iterdir() if "rebuild" in one.name] == []
    world.close()


def test_a_partitioned_table_may_refer_to_another_one_of_its_read_model(postgresql, monkeypatch):
    world = postgresql
    world.plan = replace(world.plan, tables=("orders", "lines"))
    with world.engine.begin() as connection:
        for made in (
            "CREATE TABLE orders (id text PRIMARY KEY)",
            "CREATE TABLE lines (id text REFERENCES orders, n int) PARTITION BY RANGE (n)",
            "CREATE TABLE lines_few PARTITION OF lines FOR VALUES FROM (0) TO (10)",
        ):
            connection.exec_driver_sql(made)

    def opened(self, _data):
        self.run("INSERT INTO orders VALUES (:id)", id=self.event.root)

    monkeypatch.setattr(Balances, "opened", opened)
    world.handle(world.append("a", ("Opened", None)))
    world.rebuild()
    assert world.rows("SELECT id FROM orders") == [("a",)]


def test_whoever_shuts_the_gate_waits_for_no_lock_for_ever(postgresql):
    limit = "SELECT current_setting('lock_timeout')"
    with postgresql.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL lock_timeout TO 0")  # as `options` of an address may
        gate.shut(connection, "h")
        assert connection.scalar(text(limit)) == "4500ms"
    with postgresql.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL lock_timeout TO '2s'")
        gate.pause(connection, "h")
        assert connection.scalar(text(limit)) == "2s"


@pytest.mark.parametrize("verb", ["apply", "places", "forgive", "spoil", "abandon"])
def test_a_rebuild_in_place_waits_for_live_runs_that_take_long(world, monkeypatch, caplog, verb):
    world.handle(world.fill(4, 4))
    right, fine, busy = world.digest(), getattr(SqlShadowTables, verb), [3]

    def kept_waiting(self, *given):
        if busy[0]:
            busy[0] -= 1
            try:
                raise OperationalError("", None, psycopg.errors.LockNotAvailable("lock timeout"))
            except OperationalError as cause:
                raise StoreUnavailable("a lock") from cause
        return fine(self, *given)

    monkeypatch.setattr(SqlShadowTables, verb, kept_waiting)
    with world.green(in_place=True) as green:
        green.begin()
        if verb in {"forgive", "spoil", "abandon"}:
            getattr(green, verb)()
    world.rebuild(in_place=True)
    assert (world.digest(), busy) == (right, [0])
    assert "rebuild_waits: a run of balances takes long" in caplog.text


def test_what_other_code_made_for_a_comparison_is_not_switched_over(world, monkeypatch):
    world.handle(world.append("a", ("Opened", None), ("Booked", 1)))
    right = world.digest()

    def wrong(self, data):
        self.run("UPDATE accounts SET balance = 1000")

    with monkeypatch.context() as deployed:
        deployed.setattr(Balances, "booked", wrong)
        assert world.verify().differing
    assert not world.verify().differing
    world.rebuild()
    assert world.digest() == right


def doubled(self, data):
    """What `Balances.booked` does, once more than it should."""
    self.run("UPDATE accounts SET balance = balance + :n", n=data * 2)


@pytest.mark.parametrize("ends", ["it lags", "it is stopped", "it is killed"])
def test_nothing_of_a_comparison_becomes_the_live_read_model(world, monkeypatch, ends):
    """Whoever compares has the code of then; it is mended before the rebuild."""
    world.handle(world.fill(6, 4))
    right = world.digest()
    right_code = Balances.booked
    monkeypatch.setattr(Balances, "booked", doubled)
    if ends == "it lags":
        world.append("late", ("Opened", None))
        clock = HandClock()
        with world.green() as green, pytest.raises(RebuildError, match="1 events behind"):
            Rebuild(plan=world.plan, store=world.store, green=green, clock=clock).verify()
    elif ends == "it is stopped":
        told = []
        stopped = world.verify(batch=3, stop=lambda: len(told) > 1, tell=told.append)
        assert not stopped.kept
    else:
        with world.green() as green:
            green.begin(verifies=True)
            events = world.store.scan(world.plan.domains, None, 9)
            assert isinstance(green.apply(events, head_after(events[-1])), Applied)
    monkeypatch.setattr(Balances, "booked", right_code)
    begun = []
    world.rebuild(begun=begun.append)
    assert (begun[0].resumed, begun[0].events) == (False, 0)
    if ends != "it lags":
        assert world.digest() == right


def test_a_rebuild_that_was_stopped_is_not_lost_by_a_comparison(world):
    world.handle(world.fill(6, 4))
    told = []
    world.rebuild(batch=3, stop=lambda: len(told) > 1, tell=told.append)
    with pytest.raises(RebuildError, match="was begun and has not ended: go on with it"):
        world.verify()
    begun = []
    world.rebuild(begun=begun.append)
    assert begun[0].resumed
    assert begun[0].events > 0


@pytest.mark.parametrize("in_place", [False, True], ids=["beside", "in place"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_method_that_ends_its_transaction_doubles_nothing(world, monkeypatch, in_place, end):
    world.handle(world.fill(4, 4))
    right, right_code = world.digest(), Balances.booked

    def ending(self, data):
        right_code(self, data)
        getattr(self.connection, end)()

    monkeypatch.setattr(Balances, "booked", ending)
    for _ in range(2):
        with pytest.raises(RebuildError, match="ended the transaction that it was given"):
            world.rebuild(in_place=in_place)
    monkeypatch.setattr(Balances, "booked", right_code)
    world.rebuild(in_place=in_place)
    assert world.digest() == right


def test_what_a_method_ended_is_noted_beside_a_live_run_that_takes_long(postgresql, monkeypatch):
    world = postgresql
    world.append("a", ("Opened", None), ("Booked", 1))
    with world.engine.connect() as live:

        def ending(self, _data):
            self.connection.commit()
            live.execute(select(gate.LETS_IN), gate.keys_of(world.handler))

        with monkeypatch.context() as wrong:
            wrong.setattr(Balances, "booked", ending)
            wrong.setattr(green_in_place, "_TRIES", 1)
            with pytest.raises(TransactionEnded, match=r"which begins anew then$"):
                world.rebuild(in_place=True)
    begun = []
    world.rebuild(in_place=True, begun=begun.append)
    assert not begun[0].resumed
    assert world.rows("SELECT balance FROM accounts") == [(1,)]


def test_live_runs_go_on_while_a_rebuild_in_place_looks_at_the_books(world):
    events = world.append("a", ("Opened", None), ("Booked", 1))

    world.lanes.skip_to(Lane(world.handler, Address("account", "bookless")), 1)

    def books():
        world.handle(events)
        yield world.store.heads(world.plan.domains, None, 9)

    with world.green(in_place=True) as green:
        green.begin()
        with pytest.raises(RebuildError, match="handled or passed 1 events that are in no"):
            green.clear(books(), force=False)
    assert world.lane_places() == {"a": 2, "bookless": 1}


@pytest.mark.parametrize(
    ("verb", "in_place", "said"),
    [
        ("switch_over", False, r"may be done: see with --verify before you run it again \("),
        ("switch_over", True, r"may be done: run it again, which ends it, or does all of it"),
        ("compare", False, r"^the database .+ did not serve a transaction"),
    ],
)
def test_only_a_switch_over_may_be_done_where_its_commit_is_lost(world, verb, in_place, said):
    def lost(_connection):
        raise OperationalError("COMMIT", None, psycopg.errors.AdminShutdown("shut down"))

    options = {"force": False} if verb == "switch_over" else {}
    with world.green(in_place=in_place) as green:
        green.begin()
        event.listen(green.space.connection, "commit", lost)
        with pytest.raises(StoreUnavailable, match=said):
            getattr(green, verb)(lambda _lacking: None, **options)


def test_events_that_no_book_has_are_found_before_anything_is_rebuilt(world):
    world.handle(world.fill(4, 4))
    world.lanes.skip_to(Lane(world.handler, Address("account", "bookless")), 3)
    told = []
    with pytest.raises(RebuildError, match="3 events that are in no event book"):
        world.rebuild(tell=told.append)
    assert [standing.done for standing in told] == [0]
    with world.green() as green:
        assert green.abandon() is None, "a comparison may begin"


@pytest.mark.parametrize("what", ["a comparison", "a spoiled one"])
@pytest.mark.parametrize("again", ["verify", "rebuild"])
def test_what_nobody_goes_on_with_may_be_of_other_tables(world, what, again):
    world.handle(world.append("a", ("Opened", None), ("Booked", 1)))
    with world.green() as green:
        green.begin(verifies=what == "a comparison")
        if what == "a spoiled one":
            green.spoil()
    with world.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE accounts ADD COLUMN owner text")
    begun = []
    getattr(world, again)(begun=begun.append)
    assert not begun[0].resumed


def test_verify_tells_what_the_rebuilt_one_lacks(world, monkeypatch):
    events = world.fill(4, 4)
    world.handle(events)
    right_code = Balances.booked

    def failing(self, data):
        if self.event.root == events[0].root:
            raise ValueError("no")
        right_code(self, data)

    monkeypatch.setattr(Balances, "booked", failing)
    compared = world.verify(keep_going=True)
    assert [one.address.root for one in compared.failures] == [events[0].root]
    assert compared.differing
    monkeypatch.setattr(Balances, "booked", right_code)
    world.lanes.skip_to(Lane(world.handler, Address("account", "bookless")), 3)
    compared = world.verify()
    assert (compared.unknown, compared.failures) == (3, ())


def test_verify_compares_while_live_events_arrive(world):
    world.handle(world.fill(10, 5))
    with Writers(world) as writers:
        compared = world.verify()
    assert not writers.errors
    assert not compared.differing


def test_a_live_read_model_that_lags_is_not_compared(world):
    world.fill(3, 3)
    clock = HandClock()
    with world.green() as green, pytest.raises(RebuildError, match="behind the event store"):
        Rebuild(plan=world.plan, store=world.store, green=green, clock=clock).verify()


def test_dead_letters_that_hold_the_live_read_model_up_are_named(world):
    world.handle(world.append("b", ("Opened", None)))
    world.handle(world.append("a", ("Opened", None), ("Booked", 1))[:1])
    lane = Lane(world.handler, Address("account", "a"))
    world.lanes.note(letter_of(lane, 1))
    world.lanes.note(letter_of(lane._replace(address=Address("account", "b")), 1))
    clock = HandClock()
    before = clock.now()
    with world.green() as green, pytest.raises(RebuildError, match=r"\(account/a at 1\)"):
        Rebuild(plan=world.plan, store=world.store, green=green, clock=clock).verify()
    assert clock.now() == before, "no waiting would help"


def test_foreign_keys_that_are_in_the_way_are_named(world):
    with world.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE notes (id int PRIMARY KEY,"
            " account text REFERENCES accounts (id) ON DELETE CASCADE)"
        )
    with pytest.raises(RebuildError, match=r"^(public\.)?notes refers to (public\.)?accounts"):
        world.rebuild()


def test_a_reference_from_elsewhere_that_can_wait_is_kept(world):
    with world.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE notes (account text REFERENCES accounts (id)"
            " DEFERRABLE INITIALLY IMMEDIATE)"
        )
    world.handle(world.append("a", ("Opened", None)))
    with world.engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO notes VALUES ('a')")
    world.rebuild()
    assert world.rows("SELECT * FROM notes") == [("a",)]


def test_the_live_projection_goes_on_after_the_switch(world):
    events = world.append("a", ("Opened", None), ("Booked", 1))
    world.handle(events)
    world.rebuild()
    world.handle(events)
    world.handle(world.append("a", ("Booked", 2)))
    assert world.rows("SELECT balance FROM accounts") == [(3,)]


def test_who_writes_for_long_puts_it_off(world):
    world.append("a", ("Opened", None))
    with world.engine.connect() as writer, world.green() as green:
        writer.exec_driver_sql("INSERT INTO sums VALUES ('other', 1)")
        green.begin()
        answer = green.switch_over(lambda _lacking: None, force=False)
        assert isinstance(answer, Busy)
        assert "lock" in answer.why
    assert world.rebuild().events == 1


@pytest.fixture
def postgresql(postgresql_copy):
    world = World(postgresql_copy)
    yield world
    world.close()


def test_views_and_grants_survive(postgresql, unique_name):
    world = postgresql
    with world.engine.begin() as connection:
        connection.exec_driver_sql("CREATE VIEW rich AS SELECT id FROM accounts WHERE balance > 1")
        connection.exec_driver_sql(f'CREATE ROLE "{unique_name}"')
        connection.exec_driver_sql(f'GRANT SELECT ON accounts TO "{unique_name}"')
    try:
        world.append("a", ("Opened", None), ("Booked", 5))
        world.rebuild()
        assert world.rows("SELECT * FROM rich") == [("a",)]
        asked = f"SELECT has_table_privilege('{unique_name}', 'accounts', 'SELECT')"
        assert world.rows(asked) == [(True,)]
    finally:
        with world.engine.begin() as connection:
            connection.exec_driver_sql(f'DROP OWNED BY "{unique_name}"')
            connection.exec_driver_sql(f'DROP ROLE "{unique_name}"')


def test_a_run_that_has_only_read_when_the_tables_are_switched_over_is_waited_for(postgresql):
    world = postgresql
    world.handle(world.append("a", ("Opened", None), ("Booked", 5)))
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE sums SET total = 100")
    (event,) = world.append("b", ("Opened", None))
    reading, go_on = threading.Event(), threading.Event()

    def work(connection):
        total = connection.scalar(text("SELECT total FROM sums"))
        reading.set()
        go_on.wait(60)
        connection.execute(text("UPDATE sums SET total = :n"), {"n": total + 1})

    step = Step(
        Lane(world.handler, Address("account", "b")), 0, event.id, "Opened", None, datetime.now(UTC)
    )
    answers = []
    live = threading.Thread(target=lambda: answers.append(world.lanes.run(step, work)))
    live.start()
    reading.wait(60)
    switching = threading.Thread(target=world.rebuild)
    switching.start()
    wait_until(
        lambda: world.rows("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    )
    go_on.set()
    live.join()
    switching.join()
    assert answers == [Moved(None)]
    assert world.rows("SELECT total FROM sums") == [(5,)]


def test_a_run_is_not_kept_waiting_where_its_read_model_is_replaced(postgresql):
    world = postgresql
    (event,) = world.append("a", ("Opened", None))
    ran = []
    step = Step(
        Lane(world.handler, Address("account", "a")), 0, event.id, "Opened", None, datetime.now(UTC)
    )
    with world.engine.begin() as connection:
        gate.shut(connection, world.handler)
        with pytest.raises(StoreUnavailable, match=r"projection\.balances is just being replaced"):
            world.lanes.run(step, ran.append)
    assert not ran
    assert isinstance(world.lanes.run(step, ran.append), Moved)


@pytest.mark.parametrize("in_place", [False, True], ids=["beside", "in place"])
def test_what_is_parked_while_waiting_events_are_counted_is_counted(postgresql, in_place):
    world = postgresql
    world.append("another", ("Opened", None))
    world.lanes.park(early_of(Lane(world.handler, Address("account", "cold")), 7), 10)
    lane = Lane(world.handler, Address("account", "hot"))
    amid = []

    @event.listens_for(Engine, "before_cursor_execute")
    def park(_connection, _cursor, statement, *_):
        """Two come into a lane in which nothing has waited, one of them is still being parked."""
        if statement.startswith("UPDATE ordering_lanes SET waiting=(") and not amid:
            amid.append(None)
            world.lanes.park(early_of(lane, 1), 10)
            amid[0] = world.engine.connect()
            amid[0].begin()
            waiting_events.park(amid[0], LaneMoves(world.engine), early_of(lane, 2), 10)

    def blocked():
        return world.rows(
            "SELECT 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )

    try:
        with ThreadPoolExecutor(1) as pool:
            rebuilding = pool.submit(world.rebuild, in_place=in_place)
            wait_until(lambda: rebuilding.done() or blocked())
            amid[0].commit()
    finally:
        event.remove(Engine, "before_cursor_execute", park)
        amid[0].close()
    assert rebuilding.result().events == 1
    assert world.lanes.look(lane) == Place(0, waiting=2)


def test_a_lane_that_is_moved_on_amid_a_switch_over_stays_there(postgresql):
    world = postgresql
    world.handle(world.append("a", ("Renamed", None), ("Renamed", None)))
    world.append("b", ("Renamed", None))

    def passing(lacking):
        """Let a worker pass events that the projection does not take, for which it runs nothing."""
        assert [(one.place, one.until) for one in lacking] == [(0, 2)]
        world.lanes.skip_to(Lane(world.handler, Address("account", "b")), 1)
        green.apply(world.store.scan(world.plan.domains, None, 2), None)
        world.lanes.skip_to(Lane(world.handler, Address("account", "a")), 3)

    with world.green() as green:
        green.begin()
        assert green.compare(passing).unknown == 0
    with world.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ordering_lanes SET next_sequence = 2 WHERE root = 'a'")
        connection.exec_driver_sql("DELETE FROM ordering_lanes WHERE root = 'b'")
    with world.green() as green:
        green.abandon()
        green.begin()
        assert green.switch_over(passing, force=False) == SwitchedOver(2)
    assert world.lane_places() == {"a": 3, "b": 1}


def test_a_lane_is_not_set_back_because_another_one_is_stuck(world):
    world.append("a", ("Opened", None), ("Booked", 666))
    world.handle(world.append("b", ("Opened", None), ("Booked", 5)))
    world.lanes.skip_to(Lane(world.handler, Address("account", "b")), 4)
    Balances.bad.add(666)
    world.rebuild(keep_going=True, force=True)
    assert world.lane_places() == {"a": 1, "b": 4}


def test_tables_that_a_projection_makes_itself_stay_after_a_rebuild_in_place(world, monkeypatch):
    tables = rebuild_world._TABLES[world.engine.dialect.name]

    def empty(self):
        for name in reversed(self.table_names()):
            self.run(f"DROP TABLE IF EXISTS {name}")
        for statement in tables:
            self.connection.exec_driver_sql(statement)

    def opened(self, _data):
        self.run("CREATE TABLE IF NOT EXISTS noted (id text PRIMARY KEY)")
        self.run("INSERT INTO accounts (id, balance) VALUES (:id, 0)", id=self.event.root)
        self.run("INSERT INTO noted VALUES (:id)", id=self.event.root)

    world.handle(world.append("a", ("Opened", None), ("Booked", 5)))
    monkeypatch.setattr(Balances, "_truncate_read_models", empty)
    monkeypatch.setattr(Balances, "opened", opened)
    world.rebuild(in_place=True)
    assert world.rows("SELECT id, balance FROM accounts") == [("a", 5)]
    assert world.rows("SELECT id FROM noted") == [("a",)]


@pytest.mark.parametrize("fault", ["emptied:1", "empty:1", "emptied:2"])
def test_a_read_model_of_which_nobody_noted_that_it_was_emptied_is_emptied(world, fault):
    world.handle(world.fill(5, 5))
    right, lanes = world.digest(), world.lane_places()
    assert killed(world, fault, "in_place")
    spoil(world)
    world.rebuild(in_place=True)
    assert world.digest() == right
    assert world.lane_places() == lanes


def test_a_rebuild_in_place_that_is_abandoned_leaves_nothing_parked_for_good(world):
    world.handle(world.append("a", ("Opened", None), ("Booked", 3)))
    world.append("a", ("Booked", 5))
    lane = Lane(world.handler, Address("account", "a"))
    stuck = Lane(world.handler, Address("account", "b"))
    with world.green() as green:
        assert green.abandon() is None
    world.lanes.park(early_of(lane, 4), 10)
    world.lanes.park(early_of(stuck, 1), 10)

    def stop():
        if world.lanes.look(lane).next_sequence < 1:
            world.lanes.park(early_of(lane, 1), 10)
        return world.lanes.look(lane).next_sequence >= 1

    world.rebuild(in_place=True, batch=1, stop=stop)
    due = world.lanes.due([world.handler], AT, MINUTE, 9)
    assert [one.sequence for one in due] == [1], "a batch settles what waits in its lanes"
    with world.engine.begin() as connection:
        connection.execute(update(ordering_waiting).values(lent_until=None))
    with world.green() as green:
        assert green.abandon() == Abandoned(whole=False)
    later = AT + timedelta(days=1)
    due = world.lanes.due([world.handler], later, MINUTE, 9)
    assert [one.sequence for one in due] == [1]
    assert world.lanes.look(lane) == Place(1, waiting=2)


def test_a_rebuild_in_place_does_not_give_up_events_that_no_book_has_by_itself(world):
    events = world.append("a", ("Opened", None), ("Booked", 3))
    world.handle(events)
    world.handle([replace(events[1], sequence=2, id="unbooked")])
    world.handle([replace(events[0], root="unbooked")])
    before = world.digest()
    with pytest.raises(RebuildError, match="2 events that are in no event book"):
        world.rebuild(in_place=True)
    assert world.digest() == before
    assert world.lane_places() == {"a": 3, "unbooked": 1}
    with world.green(in_place=True) as green:
        assert green.abandon() is None
    world.rebuild(in_place=True, force=True)
    assert world.rows("SELECT id, balance FROM accounts") == [("a", 3)]
