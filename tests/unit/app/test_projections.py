"""What an app does to keep read models: names, domains, policies, and the call of a delivery."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from pydantic import BaseModel
from tests.hand_clock import HandClock

from angzarr import Projection, Saga, handles
from angzarr.aggregates.book import Address
from angzarr.analysis.ledger.failure import facts_of
from angzarr.delivery.context import Context
from angzarr.delivery.delivery import DeadLettered, Retried, read
from angzarr.delivery.delivery_facts import fact_of
from angzarr.errors import (
    ConfigurationError,
    DecodeError,
    DuplicateHandler,
    InvalidDomainName,
    Postpone,
)
from angzarr.events import headers as names
from angzarr.events.event import Message
from angzarr.ordering.lane import Elsewhere, Lane, Moved, Order, Step
from angzarr.ordering.lanes import Turn
from angzarr.resilience import ExponentialBackoff, Filtered, NoRetry
from angzarr.runtime.processes import OncePerProcess
from angzarr.wiring.delivery import build_judge

TASK = "projection.totals"


class OrderPlaced(BaseModel):
    total: int


class OrderShipped(BaseModel):
    pass


class Totals(Projection):
    @handles(OrderPlaced)
    def placed(self, event: OrderPlaced) -> str:
        self.connection.append((self.event.root, event.total))
        return "not heeded"

    @handles(OrderShipped)
    def shipped(self, _event: OrderShipped) -> None:
        raise TimeoutError


class Lanes:
    """Lanes with a list for a database."""

    def __init__(self):
        self.written = []
        self.moved = []
        self.elsewhere = False

    @contextmanager
    def transaction(self):
        before = list(self.written)
        try:
            yield self.written
        except BaseException:
            self.written[:] = before
            raise

    def run(self, step, work):
        if self.elsewhere:
            return Elsewhere(9)
        with self.transaction() as connection:
            work(connection)
        self.moved.append(step.sequence)
        return Moved(None)

    def close(self):
        pass


@pytest.fixture
def lanes():
    return Lanes()


@pytest.fixture
def app(make_app, lanes):
    app = make_app()
    app._parts._ordering = OncePerProcess(lambda: SimpleNamespace(lanes=lanes, close=lanes.close))
    return app


@pytest.fixture
def make(app):
    """Register a class of its own, which says *said*."""

    def make(name="totals", bases=(Totals,), domains="order", said=None, **options):
        kind = type("MyTotals", bases, said or {})
        return app.projection(name, domains=domains, **options)(kind)

    return make


def delivery_of(event_type="OrderPlaced", *args, attempt=None, **kwargs):
    message = Message(
        body=b"", content_type="application/json", content_encoding="utf-8", queue="q",
        headers={
            "id": "m-1", "task": TASK, names.EVENT_ID: "e-1", names.EVENT_TYPE: event_type,
            names.DOMAIN: "order", names.ROOT: "o-1", names.SEQUENCE: 0,
        } | ({names.ATTEMPT: attempt} if attempt else {}),
    )  # fmt: skip
    return read(message, args=args or [{"total": 7}], kwargs=kwargs, token="t", owner="o")


def bound(app, delivery, turn=None):
    handler = app.handlers.get(TASK)
    context = Context(
        delivery=delivery,
        make_policy=lambda: handler.policy,
        make_log=lambda _fields: None,
        turn=turn,
    )
    return handler.bind(delivery, context)


def turn_of(lanes):
    lane = Lane(TASK, Address("order", "o-1", ""))
    step = Step(lane, 0, "e-1", "OrderPlaced", None, datetime(2026, 1, 1, tzinfo=UTC))
    return Turn(lanes, step)


# -- as a handler --------------------------------------------------------------------------


def test_a_projection_is_one_ordered_handler_of_all_its_domains(app, make):
    kind = make(domains=["order", "parcel"], queue="views", first_sequence=1, breaker="db")
    handler = app.handlers.get(TASK)
    assert handler.order == Order(
        domains=frozenset({"order", "parcel"}),
        types=frozenset({"OrderPlaced", "OrderShipped"}),
        first=1,
        moves=True,
    )
    assert (handler.domain, handler.queue, handler.event_type) == ("order", "views", None)
    assert (handler.decode, handler.idempotent, handler.component_type) == (None, True, "projector")
    assert [guard.name for guard in handler.breakers] == ["db"]
    for domain in ("order", "parcel"):
        assert app.handlers.ordered(domain) == (handler,)
    assert app._context.projections == {"totals": kind}
    assert kind.name == "totals"


def test_celerys_options_go_to_its_task(app, make):
    make(soft_time_limit=30)
    assert app.tasks[TASK].soft_time_limit == 30


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        ({"name": "Totals"}, InvalidDomainName, "Totals"),
        ({"domains": "Order"}, InvalidDomainName, "Order"),
        ({"domains": []}, ConfigurationError, "a projection needs a domain"),
        (
            {"first_sequence": -1},
            ConfigurationError,
            "first_sequence must be a whole number from 0",
        ),
        (
            {"first_sequence": "0"},
            ConfigurationError,
            "first_sequence must be a whole number from 0",
        ),
        ({"domain": "order"}, ConfigurationError, "no option domain: say domains"),
        ({"policy": "webhook"}, ConfigurationError, "no option policy: say retry_policy"),
        ({"fallback": print}, ConfigurationError, "no option fallback"),
        ({"compensation": "x"}, ConfigurationError, "no option compensation: rebuild it"),
        ({"retry_policy": "often"}, ConfigurationError, "no backoff policy 'often'"),
        ({"bases": (Projection,)}, ConfigurationError, "MyTotals handles nothing"),
        ({"bases": (Saga,)}, ConfigurationError, "MyTotals is not a Projection: derive it from"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, dict) else "",
)
def test_what_cannot_work_is_refused_at_once(app, make, said, error, why):
    with pytest.raises(error, match=why):
        make(**said)
    assert len(app.handlers) == 0
    assert app._context.projections == {}


def test_a_name_is_that_of_one_class(app, make):
    kind = make()
    with pytest.raises(ConfigurationError, match=r"'totals' is the name of .*MyTotals and of .*My"):
        make()
    with pytest.raises(DuplicateHandler, match=TASK):
        app.projection("totals", domains="order")(kind)
    with pytest.raises(ConfigurationError, match="is registered as 'totals' and as 'sums'"):
        app.projection("sums", domains="order")(kind)


# -- a delivery ----------------------------------------------------------------------------


def test_what_is_written_and_the_move_are_one_transaction(app, make, lanes):
    make()
    turn = turn_of(lanes)
    assert bound(app, delivery_of(), turn)() is None
    assert (lanes.written, lanes.moved, turn.moved) == ([("o-1", 7)], [0], Moved(None))


def test_what_fails_writes_nothing_and_moves_nothing(app, make, lanes):
    class Halfway(Totals):
        def placed(self, event):
            super().placed(event)
            raise TimeoutError

    make(bases=(Halfway,))
    with pytest.raises(TimeoutError):
        bound(app, delivery_of(), turn_of(lanes))()
    assert (lanes.written, lanes.moved) == ([], [])


def test_a_lane_that_somebody_else_moved_uses_no_attempt(app, make, lanes):
    make()
    lanes.elsewhere = True
    with pytest.raises(Postpone):
        bound(app, delivery_of(), turn_of(lanes))()
    assert lanes.written == []


def test_data_that_do_not_fit_are_refused_before_the_claim(app, make):
    make()
    with pytest.raises(DecodeError, match="total"):
        bound(app, delivery_of("OrderPlaced", {"total": "much"}))
    with pytest.raises(DecodeError, match="this message has 2 arguments"):
        bound(app, delivery_of("OrderPlaced", 1, 2))


def test_an_event_of_another_type_does_nothing(app, make, lanes):
    make()
    bound(app, delivery_of("OrderLost", {"total": "not looked at"}))()
    assert lanes.written == []


# -- eagerly -------------------------------------------------------------------------------


def test_an_eager_run_writes_and_moves_nothing(app, make, lanes):
    make()
    headers = {names.EVENT_TYPE: "OrderPlaced", names.ROOT: "o-1"}
    app.tasks[TASK].apply(args=[{"total": 7}], headers=headers, throw=True)
    assert (lanes.written, lanes.moved) == ([("o-1", 7)], [])


def test_an_eager_run_that_fails_writes_nothing(app, make, lanes):
    make()
    result = app.tasks[TASK].apply(args=[{}], headers={names.EVENT_TYPE: "OrderShipped"})
    assert isinstance(result.result, TimeoutError)
    assert lanes.written == []


def test_an_eager_run_need_not_name_the_only_type(app, lanes):
    @app.projection("totals", domains="order")
    class Single(Projection):
        @handles(OrderPlaced)
        def placed(self, event: OrderPlaced) -> None:
            self.connection.append((self.event.type, event.total))

    app.tasks[TASK].apply(args=[{"total": 7}], throw=True)
    assert lanes.written == [("OrderPlaced", 7)]


def test_the_task_is_not_called_as_a_function(app, make):
    make()
    with pytest.raises(ConfigurationError, match="runs in a worker, by a message"):
        app.tasks[TASK]({"total": 7})


# -- retries -------------------------------------------------------------------------------


def ends(app, error, event_type="OrderPlaced"):
    """Return the delays of the retries after *error*, and the letter at last."""
    handler, judge = app.handlers.get(TASK), build_judge(app._context, HandClock())
    delays = []
    for attempt in range(1, 20):
        delivery = delivery_of(event_type, attempt=attempt)
        outcome, _ = judge.failed(delivery, handler, error)
        if not isinstance(outcome, Retried):
            return delays, outcome
        delays.append(outcome.delay.total_seconds())
    raise AssertionError("it is retried for ever")


def test_who_says_nothing_has_three_retries_hence_four_runs(app, make):
    make()
    delays, dead = ends(app, TimeoutError())
    assert delays == [2, 4, 8]
    assert (dead.letter.reason, dead.letter.attempts) == ("exhausted", 4)


def test_settings_may_say_what_the_policy_of_projections_is(make_app):
    app = make_app(retry={"policies": {"projection": {"max_attempts": 2}}})
    app.projection("totals", domains="order")(type("MyTotals", (Totals,), {}))
    assert ends(app, TimeoutError())[0] == [2]


def test_the_class_and_before_it_the_decorator_say_another_one(app, make):
    make(said={"retry_policy": ExponentialBackoff(max_retries=1, first_delay=5)})
    assert ends(app, TimeoutError())[0] == [5]
    make("sums", said={"retry_policy": "webhook"}, retry_policy=NoRetry())
    assert app.handlers.get("projection.sums").policy == NoRetry()


def test_the_old_attributes_are_warned_of_where_the_class_stands(app):
    with pytest.warns(DeprecationWarning, match="Old.MAX_RETRIES: deprecated; write") as warned:

        @app.projection("totals", domains="order")
        class Old(Totals):
            MAX_RETRIES = 3

    assert warned[0].filename == __file__
    assert ends(app, TimeoutError())[0] == [2, 4]


def test_a_type_of_event_may_have_a_policy_of_its_own(app, make):
    make(said={"retry_policies": {OrderShipped: NoRetry(), "OrderPlaced": "fact_append"}})
    assert ends(app, TimeoutError(), "OrderShipped")[0] == []
    assert app.handlers.get(TASK).policies["OrderPlaced"].name == "fact_append"
    assert len(ends(app, TimeoutError())[0]) == 2


def test_an_operator_who_names_the_handler_overrides_all_that_it_says(make_app):
    app = make_app(retry={"rules": [{"policy": "no_retry", "handler": TASK}]})
    kind = type("MyTotals", (Totals,), {"retry_policies": {OrderPlaced: "webhook"}})
    app.projection("totals", domains="order")(kind)
    assert ends(app, TimeoutError())[0] == []


def test_what_a_filter_does_not_name_is_a_letter_at_once(app, make):
    make(said={"retry_policy": Filtered(ExponentialBackoff(), retry_on=(TimeoutError,))})
    assert ends(app, TimeoutError())[0] == [2, 4, 8]
    delays, dead = ends(app, ConnectionError())
    assert (delays, dead.letter.reason) == ([], "refused")


def test_a_filter_may_name_what_nobody_classified_but_not_what_is_known_to_be_in_vain(app, make):
    class NotThereYet(Exception):
        pass

    named = (NotThereYet, UnicodeDecodeError)
    make(said={"retry_policy": Filtered(ExponentialBackoff(), retry_on=named)})
    assert ends(app, NotThereYet())[0] == [2, 4, 8]
    assert ends(app, KeyError())[0] == []
    assert ends(app, UnicodeDecodeError("utf-8", b"", 0, 1, "no"))[0] == []


# -- the failure is told -------------------------------------------------------------------


def test_fact_letter_and_ledger_name_the_projection(app, make):
    make()
    _, dead = ends(app, TimeoutError("slow"))
    assert isinstance(dead, DeadLettered)
    fact = fact_of(delivery_of(), dead, datetime(2026, 1, 1, tzinfo=UTC))
    assert (fact.tool_id, fact.subtype) == (TASK, "max_retries_exceeded")
    assert (dead.letter.handler, dead.letter.component_type) == (TASK, "projector")
    filed = facts_of(dead.letter)
    assert (filed["handler_name"], filed["component_type"]) == (TASK, "projector")
