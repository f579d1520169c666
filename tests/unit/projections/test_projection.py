"""What a projection is: its methods, its policies, its tables and how they are emptied."""

from __future__ import annotations

import logging
from typing import ClassVar

import pytest
import sqlalchemy as sa
from pydantic import BaseModel

from angzarr import Projection, applies, handles, reacts_to, rejected
from angzarr.aggregates import MergeStrategy, merge_strategy
from angzarr.errors import ConfigurationError, DecodeError
from angzarr.events.event import Event
from angzarr.projections.projection import DEFAULT, handler_name, policy_of
from angzarr.resilience import ExponentialBackoff, NoRetry
from angzarr.resilience.backoff import waits
from angzarr.resilience.policies import POLICIES


class OrderPlaced(BaseModel):
    total: int = 0


class OrderShipped(BaseModel):
    pass


METADATA = sa.MetaData()
TOTALS = sa.Table("order_totals", METADATA, sa.Column("root", sa.Text, primary_key=True))
LINES = sa.Table("Lines", METADATA, sa.Column("of", sa.ForeignKey(TOTALS.c.root)))


class Totals(Projection):
    name = "totals"
    tables = ("order_totals", LINES)

    @handles(OrderPlaced)
    def placed(self, event: OrderPlaced) -> int:
        self.connection.append((self.event.root, event.total))
        return event.total


def placed(data=None):
    return Event(id="e-1", type="OrderPlaced", data=data or {}, domain="order", root="o-1")


def project(kind, event=None, connection=None):
    event = event or placed()
    kind(connection, event).project(kind.decoded(event))


@pytest.fixture
def connection():
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        METADATA.create_all(connection)
        connection.execute(TOTALS.insert().values(root="o-1"))
        connection.execute(LINES.insert().values(of="o-1"))
        yield connection
    engine.dispose()


# -- an event ------------------------------------------------------------------------------


def test_a_method_has_its_data_the_event_and_the_connection():
    written = []
    project(Totals, placed({"total": 7}), written)
    assert written == [("o-1", 7)]


def test_data_that_do_not_fit_are_refused_before_anything_is_made():
    with pytest.raises(DecodeError, match="total"):
        Totals.decoded(placed({"total": "much"}))


def test_what_a_method_raises_goes_through():
    class Failing(Projection):
        @handles("OrderPlaced")
        def placed(self, _event):
            raise TimeoutError("slow")

    with pytest.raises(TimeoutError, match="slow"):
        project(Failing)


def test_work_that_was_not_done_yet_is_an_error():
    async def later():
        pass

    class Late(Projection):
        @handles("OrderPlaced")
        def placed(self, event):
            return (n for n in event)

        @handles("OrderShipped")
        def shipped(self, _event):
            return later()

    for event_type, what in (("OrderPlaced", "generator"), ("OrderShipped", "coroutine")):
        event = Event(id="e", type=event_type, data={})
        with pytest.raises(ConfigurationError, match=f"returned a {what}, which has written noth"):
            project(Late, event)


# -- classes that cannot work --------------------------------------------------------------


def refused(kind):
    with pytest.raises(ConfigurationError) as error:
        kind.check()
    return str(error.value)


def test_a_class_that_can_work_is_taken():
    Totals.check()


def test_a_projection_handles_something():
    class Idle(Projection):
        pass

    assert "Idle handles nothing: mark a method with @handles(SomeEvent)" in refused(Idle)


@pytest.mark.parametrize(
    "mark", [applies(OrderShipped), reacts_to(OrderShipped), rejected("order", OrderShipped)]
)
def test_the_marks_of_others_are_refused(mark):
    class Confused(Totals):
        @mark
        def other(self, _event):
            pass

    assert "is a projection and cannot use @" in refused(Confused)


def test_a_merge_strategy_is_for_commands():
    class Merging(Projection):
        @handles(OrderPlaced)
        @merge_strategy(MergeStrategy.STRICT)
        def placed(self, _event):
            pass

    assert "Merging.placed has a merge strategy" in refused(Merging)


def test_a_method_that_overrides_one_with_another_colour_is_refused():
    class Coroutine(Totals):
        async def placed(self, _event):
            pass

    class Generator(Totals):
        def placed(self, _event):
            yield

    for kind in (Coroutine, Generator):
        assert "placed must be written with def, and without yield" in refused(kind)


def test_a_policy_for_what_is_not_handled_is_refused():
    class Patient(Totals):
        retry_policies: ClassVar = {OrderShipped: NoRetry()}

    assert "Patient.retry_policies: it does not handle 'OrderShipped'" in refused(Patient)


def test_policies_without_types_are_refused():
    listed = type("Listed", (Totals,), {"retry_policies": [NoRetry()]})
    assert refused(listed) == "Listed.retry_policies maps types of events to policies"


def test_policies_go_by_the_name_of_the_type():
    class Patient(Totals):
        retry_policies: ClassVar = {OrderPlaced: POLICIES["crm_sync"], "Other": "webhook"}

    found = Patient.policies_by_type()
    assert found["OrderPlaced"].max_attempts == 10
    assert found["Other"] == "webhook"


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ("order_totals", 'write tables = ("order_totals",)'),
        (("order totals",), "'order totals' is neither a table's name nor a Table"),
        (("x; DROP TABLE y",), "is neither a table's name nor a Table"),
        ((7,), "7 is neither a table's name nor a Table"),
        (("reporting.totals",), "reporting.totals names a schema"),
        ((sa.Table("totals", sa.MetaData(), schema="reporting"),), "names a schema"),
    ],
    ids=["text", "space", "hostile", "number", "schema", "schema-of-a-table"],
)
def test_tables_are_names_without_a_schema(tables, said):
    assert said in refused(type("Odd", (Totals,), {"tables": tables}))


def test_a_projection_has_the_handler_of_its_name():
    assert handler_name("order-totals") == "projection.order-totals"


# -- reset ---------------------------------------------------------------------------------


def test_a_reset_empties_the_tables_and_says_so(connection, caplog):
    with caplog.at_level(logging.WARNING, "angzarr.projections"):
        Totals(connection).reset()
    for table in (TOTALS, LINES):
        assert connection.execute(sa.select(table)).all() == []
    assert caplog.messages == ["projection_reset: the read model of totals is emptied"]


def test_a_read_model_that_is_no_table_is_emptied_by_the_class_itself():
    class Files(Totals):
        def _truncate_read_models(self):
            self.connection.clear()

    written = [1]
    Files(written).reset()
    assert written == []


def test_a_reset_without_tables_says_what_is_missing(connection):
    class Bare(Totals):
        tables = ()

    with pytest.raises(ConfigurationError, match="Bare has no tables, so it cannot be emptied"):
        Bare(connection).reset()
    with pytest.raises(ConfigurationError, match="Totals has tables and no database"):
        Totals(None).reset()


def a_class(**said):
    return type("Totals", (Projection,), said)


def seconds(policy):
    return [wait.earliest.total_seconds() for wait in waits(policy)]


def test_who_says_nothing_has_four_runs():
    assert policy_of(a_class()) == DEFAULT
    assert seconds(POLICIES[DEFAULT]) == [2, 4, 8]


def test_the_decorators_word_comes_before_that_of_the_class():
    assert policy_of(a_class(retry_policy="webhook")) == "webhook"
    assert policy_of(a_class(retry_policy="webhook"), NoRetry()) == NoRetry()


@pytest.mark.parametrize(
    ("old", "delays", "spelled"),
    [
        ({"MAX_RETRIES": 3}, [2, 4], "max_retries=2, first_delay=2"),
        ({"MAX_RETRIES": 1}, [], "max_retries=0, first_delay=2"),
        ({"RETRY_BACKOFF_BASE": 0.5}, [0.5, 1], "max_retries=2, first_delay=0.5"),
        (
            {"MAX_RETRIES": 3, "RETRY_BACKOFF_BASE": 90},
            [90, 90],
            "max_retries=2, first_delay=90, max_delay=90",
        ),
    ],
)
def test_the_old_attributes_count_runs_and_say_how_they_are_written_today(old, delays, spelled):
    with pytest.warns(DeprecationWarning, match="deprecated") as warned:
        policy = policy_of(a_class(**old))
    assert seconds(policy) == delays
    (warning,) = warned
    assert str(warning.message).endswith(f"write retry_policy = ExponentialBackoff({spelled})")
    assert warning.filename == __file__
    names = {"ExponentialBackoff": ExponentialBackoff}
    assert eval(f"ExponentialBackoff({spelled})", names) == policy  # noqa: S307 - our own advice


def test_the_old_attributes_yield_to_a_policy():
    with pytest.warns(DeprecationWarning, match=r"Totals.MAX_RETRIES: not heeded beside retry_po"):
        assert policy_of(a_class(MAX_RETRIES=3, retry_policy="webhook")) == "webhook"
    with pytest.warns(DeprecationWarning, match="not heeded"):
        assert policy_of(a_class(MAX_RETRIES=3), NoRetry()) == NoRetry()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "old",
    [
        {"MAX_RETRIES": 0},
        {"MAX_RETRIES": True},
        {"MAX_RETRIES": "3"},
        {"RETRY_BACKOFF_BASE": -1},
        {"RETRY_BACKOFF_BASE": float("inf")},
        {"RETRY_BACKOFF_BASE": "2"},
    ],
)
def test_old_attributes_that_cannot_be_are_refused(old):
    with pytest.raises(ConfigurationError, match=f"Totals.{next(iter(old))}"):
        policy_of(a_class(**old))
