"""What a handler or a task may name, and what is refused at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery import Task
from pydantic import BaseModel

from angzarr import Angzarr, CompensationAction, GiveUp, Limit, Saga, reacts_to
from angzarr.adapters.memory.limits import InProcessBudgets, InProcessLimits
from angzarr.delivery import Batch
from angzarr.delivery.context import NoCosts
from angzarr.delivery.invoke import handler_call
from angzarr.errors import ConfigurationError, DecodeError, DuplicateHandler
from angzarr.ordering.lane import Order
from angzarr.resilience.budget import BudgetSettings

CRM = Limit("crm", rate=50, concurrency=8)


@pytest.fixture
def make_app(monkeypatch):
    monkeypatch.delenv("ANGZARR_CONFIG", raising=False)
    made = []

    def make_app(**flow):
        made.append(Angzarr("limits", broker="memory://", store="memory://", flow=flow))
        return made[-1]

    yield make_app
    for app in made:
        app.close()


@pytest.fixture(params=["handler", "task"])
def register(request):
    """Register a handler or a plain task that names *limit*; return the limits it has."""

    def register(app, limit, name="h"):
        decorate = (
            app.handler("OrderPlaced", limit=limit, name=name)
            if request.param == "handler"
            else app.task(limit=limit, name=name)
        )

        def h(event):
            return event

        task = decorate(h)
        return app.handlers.get(task.name).limits

    return register


#: All that a bound call asks of its context.
UNBOUNDED = SimpleNamespace(costs=NoCosts(), delivery=None)


def test_a_limit_is_given_in_code_in_settings_or_in_both(make_app, register):
    app = make_app(limits={"crm": {"rate": 5}, "mail": {"concurrency": 2, "per": "tenant"}})
    assert register(app, [CRM, "mail"]) == (
        Limit("crm", rate=5.0, concurrency=8),
        Limit("mail", concurrency=2, per="tenant"),
    )


def test_a_limit_that_nobody_gave_is_refused_with_what_to_write(make_app, register):
    with pytest.raises(ConfigurationError, match="limit 'crm' limits nothing: give it a rate"):
        register(make_app(), "crm")


def test_two_limits_of_one_name_are_refused(make_app, register):
    app = make_app()
    register(app, CRM)
    assert register(app, CRM, name="same") == (CRM,)
    with pytest.raises(ConfigurationError, match="limit 'crm' is given twice with different"):
        register(app, Limit("crm", rate=1), name="other")


def test_settings_settle_which_of_two_limits_holds(make_app, register):
    app = make_app(limits={"crm": {"rate": 5, "concurrency": 1}})
    assert register(app, CRM) == register(app, Limit("crm", rate=9), name="other")


def test_who_names_no_limit_has_none(make_app, register):
    assert register(make_app(), None) == ()


def test_without_a_flow_store_each_process_has_its_own(make_app):
    app = make_app(budgets={"default": {"least": 1}, "crm": {"enabled": False}})
    assert isinstance(app._parts.flow.limits, InProcessLimits)
    assert isinstance(app._parts.flow.budgets, InProcessBudgets)
    assert app._parts.flow.budgets._default == BudgetSettings(least=1)
    assert [app._parts.flow.budgets.retry(["crm"], str(n)) for n in range(5)] == [None] * 5


def test_with_a_flow_store_the_fleet_shares_them(make_app):
    pytest.importorskip("redis")
    from angzarr.adapters.redis.budget import RedisBudgets
    from angzarr.adapters.redis.limit import RedisLimits

    app = make_app(store="redis://127.0.0.1:1/0", budgets={"crm": {"least": 3}})
    assert isinstance(app._parts.flow.limits, RedisLimits)
    assert isinstance(app._parts.flow.budgets, RedisBudgets)
    assert app._parts.flow.budgets._of("crm") == BudgetSettings(least=3)


def test_a_compensation_is_named_by_handler_or_name_and_must_exist(make_app):
    app = make_app()

    @app.handler("Sold", name="shop.unsell")
    def unsell(event):
        pass

    @app.handler("Sold", name="shop.sell", compensation=unsell)
    def sell(event):
        pass

    @app.task(name="shop.pack", compensation="shop.unsell")
    def pack(box):
        pass

    undoing = app.ops.compensations()
    assert undoing.of("shop.sell") == undoing.of("shop.pack") == "shop.unsell"
    assert undoing.of("shop.unsell") == undoing.of("nobody") == ""


@pytest.mark.parametrize(("name", "why"), [("nobody", "not registered"), ("shop.sell", "itself")])
def test_a_compensation_that_nobody_could_run_is_refused(make_app, name, why):
    app = make_app()

    @app.handler("Sold", name="shop.sell", compensation=name)
    def sell(event):
        pass

    with pytest.raises(ConfigurationError, match=why):
        app.ops.compensations()


def test_two_that_undo_each_other_are_refused(make_app):
    app = make_app()

    @app.handler("Sold", name="shop.sell", compensation="shop.unsell")
    def sell(event):
        pass

    @app.handler("Sold", name="shop.unsell", compensation="shop.sell")
    def unsell(event):
        pass

    with pytest.raises(ConfigurationError, match="names it in turn: name another"):
        app.ops.compensations()


def release(data):
    """Undo a step."""


async def recall(data):
    """Undo a step."""


def test_an_undo_function_is_known_by_its_module_and_name_or_as_told(make_app):
    app = make_app()
    assert app.undo(release) is release
    assert app.undo(name="shop.recall")(recall) is recall
    assert app.undo(release) is release, "once more is no second one"
    step = app._context.undos.step(CompensationAction("reserve stock", release, {"n": 1}))
    assert step == ("reserve stock", f"{__name__}.release", '{"n": 1}')
    assert app._context.undos.step(CompensationAction("ship", recall)).undo == "shop.recall"
    assert app._context.undos.asynchronous() == ["shop.recall"]


def test_two_undo_functions_of_one_name_are_refused(make_app):
    app = make_app()
    app.undo(name="shop.undo")(release)
    with pytest.raises(DuplicateHandler, match=r"shop\.undo.* rename one"):
        app.undo(name="shop.undo")(recall)


@pytest.mark.parametrize("function", [lambda: None, lambda _a, _b: None, lambda *, key: key])
def test_what_takes_no_single_value_cannot_undo_a_step(make_app, function):
    with pytest.raises(ConfigurationError, match="called with one value"):
        make_app().undo(name="shop.undo")(function)


def test_an_app_that_runs_eagerly_undoes_in_place(make_app):
    app, undone = make_app(), []
    app.conf.task_always_eager = True
    app.undo(name="shop.undo")(undo := undone.append)

    @app.handler("Sold", name="shop.sell")
    def sell(event, ctx):
        for step in ("one", "two"):
            ctx.register_compensation(CompensationAction(step, undo, step))
        raise GiveUp("no")

    assert sell.apply(args=({},)).failed()
    assert undone == ["two", "one"]


# -- in order ----------------------------------------------------------------------------------


class Placed(BaseModel):
    order_id: str


def test_a_handler_may_take_events_in_order(make_app):
    app = make_app()
    app.handler(Placed, domain="order", ordered_by="root", name="h")(release)
    app.handler("Paid", domain="order", ordered_by="root", first_sequence=1, name="g")(release)
    app.handler(Placed, domain="order", name="f")(release)
    h, g, f = (app.handlers.get(name) for name in "hgf")
    assert h.order == Order(domains=frozenset({"order"}), types=frozenset({"Placed"}))
    assert g.order == Order(domains=frozenset({"order"}), types=frozenset({"Paid"}), first=1)
    assert f.order is None
    assert app.handlers.ordered("order") == (h, g)
    assert app.handlers.of_type("Placed") == (f,)
    assert app.handlers.ordered_of_type("Placed") == (h,)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"ordered_by": "root"}, "needs the domain"),
        ({"ordered_by": "domain", "domain": "order"}, 'ordered_by must be "root"'),
        ({"ordered_by": True, "domain": "order"}, 'ordered_by must be "root"'),
        ({"first_sequence": 1, "domain": "order"}, 'pass ordered_by="root" too'),
        (
            {"ordered_by": "root", "domain": "order", "first_sequence": -1},
            "whole number from 0, .*; got -1",
        ),
        (
            {"ordered_by": "root", "domain": "order", "first_sequence": "1"},
            "whole number from 0, .*; got '1'",
        ),
    ],
)
def test_an_order_that_cannot_be_kept_is_refused_at_once(make_app, said, why):
    app = make_app()
    with pytest.raises(ConfigurationError, match=why):
        app.handler(Placed, **said)
    assert len(list(app.handlers)) == len(list(make_app().handlers))


def test_a_plain_task_has_no_order(make_app):
    app = make_app()
    for said in ({"ordered_by": "root"}, {"first_sequence": 1}):
        with pytest.raises(ConfigurationError, match="pass ordered_by and first_sequence to @app"):
            app.task(**said)

    class Ordered(app.Task):
        name = "ordered"
        ordered_by = "root"

        def run(self):
            pass

    with pytest.raises(ConfigurationError, match="only events have an order"):
        app.register_task(Ordered())


def test_what_is_no_single_handler_has_no_order(make_app):
    app = make_app()
    with pytest.raises(ConfigurationError, match="only events have an order"):

        @app.saga("s", ordered_by="root")
        class S(Saga):
            @reacts_to(Placed)
            def placed(self, event, ctx):
                pass


def test_an_ordered_handler_is_bound_to_its_own_types_only(make_app):
    app, seen = make_app(), []
    order = Order(domains=frozenset({"order"}), types=frozenset({"Placed", "Paid"}), moves=True)

    def bind(delivery, _context):
        seen.append(delivery.event.type)
        return lambda: "run"

    app._registry.take("p", bind, release, domain="order", order=order, fallback=bind)
    handler = app.handlers.get("p")
    for bound in (handler.bind, handler.fallback):
        assert bound(of_type("Placed"), None)() == "run"
        assert bound(of_type("Shipped"), None)() is None
        assert bound(of_type("p"), None)() is None
    assert seen == ["Placed", "Placed"]


def of_type(name):
    return SimpleNamespace(event=SimpleNamespace(type=name), handler="p")


def test_data_of_other_types_is_not_even_read(make_app):
    app = make_app()
    app.handler(Placed, domain="order", ordered_by="root", name="p", fallback=release)(release)
    strange = SimpleNamespace(args=(), kwargs={"x": 1}, **vars(of_type("Shipped")))
    assert handler_call(strange, app.handlers.get("p"), UNBOUNDED).call() is None
    with pytest.raises(DecodeError):
        handler_call(replace_type(strange, "Placed"), app.handlers.get("p"), UNBOUNDED)


def replace_type(delivery, name):
    return SimpleNamespace(**{**vars(delivery), **vars(of_type(name))})


def test_apply_runs_an_ordered_handler_too(make_app):
    app = make_app()

    def placed(event: Placed):
        return event.order_id

    task = app.handler(Placed, domain="order", ordered_by="root", name="p")(placed)
    assert task.apply(({"order_id": "o-1"},)).get() == "o-1"


def test_what_undoes_a_handler_takes_the_event_whatever_was_before_it(make_app):
    app = make_app()
    app.handler("Sold", name="unsell")(release)
    app.handler("Sold", name="sell", domain="shop", ordered_by="root", compensation="unsell")(
        release
    )
    assert app.ops.compensations().of("sell") == "unsell"
    app.handler("Sold", name="unpack", domain="shop", ordered_by="root")(release)
    app.handler("Sold", name="pack", compensation="unpack")(release)
    with pytest.raises(ConfigurationError, match="'unpack', takes events in order: name another"):
        app.ops.compensations()


HUNDRED = Batch(size=100, wait=0.05)


class Parcel(BaseModel):
    n: int


def bound(app, name, data):
    """Return what the handler *name* binds *data* to."""
    handler = app.handlers.get(name)
    delivery = SimpleNamespace(args=[data], kwargs={}, event=SimpleNamespace(type="Parcel"))
    return handler.bind(delivery, UNBOUNDED)


def test_a_batch_handler_gets_a_list_of_what_its_annotation_says(make_app):
    app, seen = make_app(), []

    @app.handler(Parcel, batch=HUNDRED, name="h")
    def handle(parcels: list[Parcel]) -> None:
        seen.extend(parcels)

    assert app.handlers.get("h").batch == HUNDRED
    bound(app, "h", {"n": 1})()
    assert seen == [Parcel(n=1)]


def test_a_batch_handler_without_an_annotation_gets_a_list_of_its_event(make_app):
    app, seen = make_app(), []
    app.handler(Parcel, batch=HUNDRED, name="h")(seen.extend)
    bound(app, "h", {"n": 1})()
    assert seen == [Parcel(n=1)]


def test_an_event_that_does_not_fit_is_found_before_the_handler_is_called(make_app):
    app = make_app()
    app.handler(Parcel, batch=HUNDRED, name="h")(lambda _parcels: None)
    with pytest.raises(DecodeError):
        bound(app, "h", {"n": "many"})


def test_called_directly_a_batch_handler_is_its_function(make_app):
    app = make_app()

    def handle(parcels):
        return len(parcels)

    task = app.handler(Parcel, batch=HUNDRED, name="h")(handle)
    assert task([Parcel(n=1), Parcel(n=2)]) == 2


def test_an_eager_call_is_a_batch_of_one(make_app):
    app, seen = make_app(), []

    @app.handler(Parcel, batch=HUNDRED, name="h")
    def handle(parcels):
        seen.append(parcels)

    handle.apply(({"n": 1},))
    assert seen == [[Parcel(n=1)]]


def test_a_single_event_as_annotation_of_a_batch_is_refused(make_app):
    def handle(parcel: Parcel) -> None: ...

    with pytest.raises(ConfigurationError, match=r"handle\(events: list\[OrderPlaced\]\)"):
        make_app().handler(Parcel, batch=HUNDRED)(handle)


class OwnCall(Task):
    abstract = True

    def __call__(self, *args, **kwargs):
        return self.run(*args, **kwargs)


class OwnStart(Task):
    abstract = True

    def before_start(self, task_id, args, kwargs): ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ordered_by": "root", "domain": "order"}, "cannot have ordered_by: a batch takes events"),
        ({"fallback": lambda _event: None}, "cannot have fallback: "),
        ({"limit": CRM}, "cannot have limit: "),
        ({"base": OwnCall}, "its __call__ runs around one event"),
        ({"base": OwnStart}, "its before_start runs around one event"),
    ],
)
def test_what_a_batch_cannot_keep_is_refused_with_a_reason(make_app, options, said):
    with pytest.raises(ConfigurationError, match=said):
        make_app().handler(Parcel, batch=HUNDRED, **options)


def test_what_is_no_batch_is_refused(make_app):
    with pytest.raises(ConfigurationError, match=r"batch must be a Batch, as in Batch\(size"):
        make_app().handler(Parcel, batch=100)


def test_a_plain_task_has_no_batch(make_app):
    with pytest.raises(ConfigurationError, match="batch"):
        make_app().task(batch=HUNDRED)
