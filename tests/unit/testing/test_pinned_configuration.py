"""Pinned configurations: prices change in flight, and every run of an event sees the same (F3)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from celery import chain
from pydantic import BaseModel

from angzarr import Angzarr, Context, GiveUp, Policy, Postpone
from angzarr.analysis.ledger.entry import Status
from angzarr.delivery import Batch, BatchContext, BatchResult
from angzarr.errors import ConfigurationError, ConfigurationVersionMissing
from angzarr.events.publication import Publication

HOUR = timedelta(hours=1)
HOURS = Policy(name="hours", base=HOUR, max_delay=9 * HOUR, max_attempts=4)


class Due(BaseModel):
    bill: str = "b-1"


class Billed(BaseModel):
    bill: str = "b-1"


class Bulk(BaseModel):
    bill: str = "b-1"


class Shop:
    """An app whose handlers note what they read, and then do what the test says."""

    def __init__(self) -> None:
        #: Handler, event and the prices that it saw, in order.
        self.seen: list[tuple[str, str, object]] = []
        self.then: list[Callable[[Context], object]] = []
        self.early: list[Callable[[Context], object]] = []
        self.app = app = Angzarr(
            "billing", broker="memory://", ledger="sqlite:///none.db", set_as_current=False
        )

        @app.handler(Due, domain="billing", name="shop.bill", policy=HOURS)
        def bill(due: Due, ctx: Context) -> object:
            if self.early:
                self.early.pop(0)(ctx)
            self.note("bill", ctx, ctx.config("pricing"))
            if self.then:
                self.then.pop(0)(ctx)
            return due.bill

        @app.handler(Billed, domain="billing", name="shop.mail")
        async def mail(_billed: Billed, ctx: Context) -> None:
            self.note("mail", ctx, await ctx.aconfig("pricing"))

        @app.handler(Bulk, domain="billing", name="shop.bulk", batch=Batch(size=10, wait=60))
        def bulk(_events: list[Bulk], ctx: BatchContext) -> BatchResult:
            for one in ctx.contexts:
                self.note("bulk", one, one.config("pricing"))
            return BatchResult({})

    def note(self, handler: str, ctx: Context, prices: object) -> None:
        self.seen.append((handler, ctx.event.id, prices))

    @property
    def prices(self) -> list[object]:
        return [prices for _, _, prices in self.seen]


@pytest.fixture
def shop():
    return Shop()


@pytest.fixture
def app_under_test(shop):
    return shop.app


@pytest.fixture
def worker(angzarr_worker):
    """A worker whose prices have a first version."""
    assert angzarr_worker.put_config("pricing", 1) == "1"
    return angzarr_worker


def raises(error, before: Callable[[], object] = lambda: None):
    """Let a handler change something, and then fail."""

    def fail(_ctx: Context) -> None:
        before()
        raise error

    return fail


def changed(worker):
    return lambda: worker.put_config("pricing", 2)


def test_a_handler_reads_the_current_version(worker, shop):
    worker.publish(Due())
    worker.put_config("pricing", 2)
    worker.publish(Due())
    worker.pin_config("pricing", "1")
    worker.publish(Due())
    assert shop.prices == [1, 2, 1]


def test_a_retry_sees_the_version_that_the_first_run_read(worker, shop):
    shop.then = [raises(ConnectionError("away"), changed(worker)), raises(ConnectionError("away"))]
    done = worker.publish(Due())
    assert [one.outcome for one in done] == ["retried", "retried", "handled"]
    assert shop.prices == [1, 1, 1]


def test_a_postponed_run_sees_it_too(worker, shop):
    shop.then = [raises(Postpone(30 * HOUR), changed(worker))]
    done = worker.publish(Due())
    assert [one.outcome for one in done] == ["postponed", "handled"]
    assert shop.prices == [1, 1]


def test_a_first_read_that_comes_late_pins_what_is_current_then(worker, shop):
    shop.early = [raises(ConnectionError("before it read"), changed(worker))]
    worker.publish(Due())
    assert shop.prices == [2]


def test_a_run_that_is_cut_off_leaves_its_version_to_the_next(worker, shop):
    shop.then = [raises(KeyboardInterrupt(), changed(worker))]
    with pytest.raises(KeyboardInterrupt):
        worker.publish(Due(), id="e-1")
    worker.run_until_settled()
    assert shop.prices == [1, 1]


def test_a_letter_carries_what_its_first_read_pinned(worker, shop, dead_letters):
    shop.then = [raises(GiveUp("no"), changed(worker))]
    worker.publish(Due())
    letter = dead_letters.only().full
    assert letter.event.config_pins == {"pricing": "1"}
    assert letter.message.headers["angzarr-config-pins"] == '{"pricing": "1"}'


def test_a_letter_after_a_cut_run_that_did_not_read_again_carries_it(worker, shop, dead_letters):
    shop.then = [raises(KeyboardInterrupt(), changed(worker))]
    with pytest.raises(KeyboardInterrupt):
        worker.publish(Due(), id="e-1")
    shop.early = [raises(GiveUp("before it read"))]
    worker.run_until_settled()
    assert dead_letters.only().full.event.config_pins == {"pricing": "1"}


def test_a_replay_weeks_later_sees_the_old_version(worker, shop, ledger, fake_clock):
    shop.then = [raises(GiveUp("no"), changed(worker))]
    worker.publish(Due())
    (entry,) = ledger.analyse()
    fake_clock.advance(days=63)
    assert ledger.replay(entry).status == Status.RESOLVED
    worker.publish(Due())
    assert shop.prices == [1, 1, 2]


def test_what_was_pinned_when_it_was_published_is_what_every_run_sees(worker, shop, dead_letters):
    changed(worker)()
    shop.then = [raises(GiveUp("no"))]
    worker.publish(Due(), config_pins={"pricing": "1"})
    assert shop.prices == [1]
    assert dead_letters.only().full.event.config_pins == {"pricing": "1"}


def test_a_publisher_may_pin_to_what_is_current(worker, shop, fake_clock):
    worker.app.publish(Due(), config_pins=["pricing"])
    worker.app.publish_many(
        [Due(), Publication(Due(), config_pins=("pricing",))], config_pins=["pricing"]
    )
    changed(worker)()
    worker.run_until_settled()
    assert shop.prices == [1, 1, 1]


def test_a_pin_of_what_has_no_version_publishes_nothing(worker, shop):
    for publish in (
        lambda: worker.app.publish(Due(), config_pins=["tax"]),
        lambda: worker.app.publish_many([Due(), Due()], config_pins=["tax"]),
    ):
        with pytest.raises(ConfigurationVersionMissing, match="'tax' has no version: put one"):
            publish()
    assert worker.run_until_settled() == []


class TestPinnedAtPublish:
    @pytest.fixture
    def angzarr_settings(self):
        return {"configuration": {"pin_at_publish": {"Due": ["pricing"]}}}

    def test_events_of_a_type_are_always_pinned(self, worker, shop):
        worker.app.publish(Due())
        worker.app.publish_many([Due()])
        worker.app.publish(Billed())
        changed(worker)()
        worker.run_until_settled()
        assert [(name, prices) for name, _, prices in shop.seen] == [
            ("bill", 1), ("bill", 1), ("mail", 2),
        ]  # fmt: skip

    def test_what_the_publisher_says_wins(self, worker, shop):
        changed(worker)()
        worker.publish(Due(), config_pins={"pricing": "1"})
        assert shop.prices == [1]


def test_a_missing_version_is_an_error_of_its_own_and_no_other_stands_in(
    worker, shop, dead_letters
):
    (one,) = worker.publish(Due(), config_pins={"pricing": "9"})
    assert (one.outcome, shop.seen) == ("dead_lettered", [])
    letter = dead_letters.only()
    assert letter.error_type == "angzarr.errors.ConfigurationVersionMissing"
    assert (letter.error_code, letter.category) == ("CONFIGURATION", "client")
    assert "version '9' of configuration 'pricing' is not in the store" in letter.error_message


def test_a_missing_version_is_filed_as_a_configuration_error(worker, shop, ledger):
    worker.publish(Due(), config_pins={"pricing": "9"})
    (entry,) = ledger.analyse()
    assert entry.failure_class == "configuration_error"
    assert entry.status == Status.HELD
    worker.put_config("pricing", "back", version="9")
    assert ledger.replay(entry).status == Status.RESOLVED
    assert shop.prices == ["back"]


def test_what_a_handler_publishes_sees_the_version_of_its_flow(worker, shop):
    def follow(ctx):
        worker.app.publish(Billed(), id="e-2")
        changed(worker)()

    shop.then = [follow]
    worker.publish(Due(), id="e-1")
    assert shop.seen == [("bill", "e-1", 1), ("mail", "e-2", 1)]


def test_the_next_step_of_a_chain_and_a_link_see_it(worker, shop):
    app = worker.app
    step = app.tasks["shop.mail"].si({"bill": "b"})
    shop.then = [lambda _ctx: changed(worker)()]
    first = app.tasks["shop.bill"].si({"bill": "b"})
    first.link(app.tasks["shop.mail"].si({"bill": "c"}))
    chain(first, step).apply_async()
    worker.run_until_settled()
    assert [(name, prices) for name, _, prices in shop.seen] == [
        ("bill", 1), ("mail", 1), ("mail", 1),
    ]  # fmt: skip


def test_each_event_of_a_batch_has_a_version_of_its_own(worker, shop):
    changed(worker)()
    for number, pins in enumerate((None, {"pricing": "1"}, {"pricing": "2"})):
        worker.app.publish(Bulk(), id=f"e-{number}", config_pins=pins)
    worker.run_until_settled()
    assert shop.seen == [("bulk", "e-0", 2), ("bulk", "e-1", 1), ("bulk", "e-2", 2)]


def test_a_handler_may_change_the_value_that_it_got(worker, shop):
    worker.put_config("pricing", {"net": [1]})
    read = []

    def spoil(ctx):
        ctx.config("pricing")["net"].append(2)
        read.append((ctx.config("pricing"), ctx.config_version("pricing")))

    shop.then = [spoil]
    worker.publish(Due())
    assert read == [({"net": [1]}, "2")]


def test_the_loop_is_not_blocked_by_a_read():
    shop, told = Shop(), []

    @shop.app.handler(Due, domain="billing", name="shop.blocks")
    async def blocks(_due: Due, ctx: Context) -> None:
        try:
            ctx.config("pricing")
        except ConfigurationError as error:
            told.append(str(error))

    shop.app.tasks["shop.blocks"].apply(args=[{"bill": "b"}]).get()
    assert told == [
        "ctx.config would block the event loop while it reads: use await ctx.aconfig(…)"
    ]
