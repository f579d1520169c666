"""A projection on real databases: what it writes and how far it has come are one transaction."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from datetime import timedelta

import pytest
import sqlalchemy as sa
from pydantic import BaseModel
from tests.apps import apps

from angzarr import Projection, handles
from angzarr.delivery.delivery import DeadLettered, Duplicate, Handled, Parked, Skipped, read
from angzarr.events import headers as names
from angzarr.events.event import Event, event_type_of, task_id_for, to_json
from angzarr.events.publication import celery_message
from angzarr.resilience import NoRetry

TASK = "projection.sums"
SUMS = sa.Table(
    "sums_of_tests",
    sa.MetaData(),
    sa.Column("root", sa.String(50), primary_key=True),
    sa.Column("n", sa.Integer, nullable=False),
)


class Added(BaseModel):
    n: int


class Broken(BaseModel):
    n: int = 0


class Lost(BaseModel):
    pass


class Sums(Projection):
    retry_policy = NoRetry()
    tables = (SUMS,)

    @handles(Added)
    def added(self, event: Added) -> None:
        here = SUMS.c.root == self.event.root
        if not self.connection.execute(
            SUMS.update().where(here).values(n=SUMS.c.n + event.n)
        ).rowcount:
            self.connection.execute(SUMS.insert().values(root=self.event.root, n=event.n))

    @handles(Broken)
    def broken(self, _event: Broken) -> None:
        self.added(Added(n=1000))
        raise TimeoutError("slow")


class Watching:
    def __init__(self):
        self.seen = []

    def attempt(self, _delivery):
        return nullcontext()

    def settled(self, delivery, outcome):
        self.seen.append((delivery.handler, type(outcome)))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sums.db"
    return request.getfixturevalue("postgresql_url")


@pytest.fixture
def database(url):
    engine = sa.create_engine(url)
    SUMS.create(engine)
    yield engine
    SUMS.drop(engine)
    engine.dispose()


@pytest.fixture
def hook():
    return Watching()


@pytest.fixture
def app(url, database, hook, tmp_path):
    facts = {"url": f"sqlite:///{tmp_path}/facts.db"}
    with apps(broker="memory://", store="memory://", facts=facts) as make:
        app = make(ordering={"url": url}, hooks=[hook])
        app.projection("sums", domains="order")(type("MySums", (Sums,), {}))
        yield app
        app._parts.ordering.lanes.reset(TASK)


@pytest.fixture
def take(app):
    """Have *payload* taken, the event number *sequence* of a root."""
    roots = uuid.uuid4().hex

    def take(payload, sequence, root="r"):
        event = Event(
            id=f"{roots}-{root}-{sequence}", type=event_type_of(payload), data=to_json(payload),
            domain="order", root=f"{roots}-{root}", sequence=sequence,
        )  # fmt: skip
        message = celery_message(TASK, task_id_for(event.id, TASK), event, "q", origin="test")
        token = uuid.uuid4().hex
        delivery = read(
            message, args=[event.data], kwargs={}, token=token, owner=app._runtime.owner
        )
        return app._runtime.executor().take(delivery)

    return take


def written(database):
    with database.connect() as connection:
        return sorted(connection.execute(sa.select(SUMS.c.n)).scalars())


def test_what_is_written_and_how_far_it_has_come_go_together(app, take, database):
    assert isinstance(take(Added(n=1), 0), Handled)
    assert isinstance(take(Added(n=5), 0, root="other"), Handled)
    assert isinstance(take(Lost(), 1), Skipped)
    assert isinstance(take(Added(n=2), 2), Handled)
    assert isinstance(take(Added(n=2), 2), Duplicate)
    assert written(database) == [3, 5]
    checkpoint = app._parts.ordering.checkpoints.get(TASK)
    assert (checkpoint.events_processed, checkpoint.last_event_type) == (4, "Added")


def test_a_failure_writes_nothing_is_told_and_holds_up_its_aggregate_alone(
    app, take, database, hook
):
    take(Added(n=1), 0)
    dead = take(Broken(), 1)
    assert isinstance(dead, DeadLettered)
    assert isinstance(take(Added(n=2), 2), Parked)
    assert isinstance(take(Added(n=5), 0, root="other"), Handled)
    assert written(database) == [1, 5]
    assert (TASK, DeadLettered) in hook.seen
    queue = app.ops.open_dead_letter_queue()
    (receipt,) = queue.receive(["order"], limit=2, wait=timedelta(seconds=5))
    queue.done([receipt])
    assert (receipt.letter.handler, receipt.letter.component_type) == (TASK, "projector")


def test_an_eager_run_is_seen_and_moves_nothing(app, take, database):
    headers = {names.EVENT_TYPE: "Added", names.ROOT: "eager"}
    app.tasks[TASK].apply(args=[{"n": 7}], headers=headers, throw=True)
    failed = app.tasks[TASK].apply(args=[{}], headers=headers | {names.EVENT_TYPE: "Broken"})
    assert isinstance(failed.result, TimeoutError)
    assert written(database) == [7]
    assert app._parts.ordering.checkpoints.get(TASK) is None


def test_a_reset_empties_the_read_model_in_the_transaction_that_it_is_given(app, take, database):
    take(Added(n=1), 0)
    kind = app._context.projections["sums"]
    with app._parts.ordering.lanes.transaction() as connection:
        kind(connection).reset()
    assert written(database) == []
