"""A batch takes the steps of the executor, once for all of its events."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.delivery.async_runner import Interrupt
from angzarr.delivery.batch import Batch, BatchCall, BatchItem, BatchResult
from angzarr.delivery.batch_executor import BatchExecutor
from angzarr.delivery.costs import CostBudgets
from angzarr.delivery.delivery import (
    DeadLettered,
    Duplicate,
    Handled,
    Postponed,
    Retried,
    Skipped,
)
from angzarr.delivery.invoke import Hooks
from angzarr.errors import DecodeError, GivenBack, GiveUp, Postpone, Skip, StoreUnavailable
from angzarr.events import headers as names
from angzarr.facts.cost_budget import CostBudget
from angzarr.resilience.idempotency import AlreadyCompleted, Complete
from angzarr.resilience.switches import Selector, SwitchAction


class Site:
    """A world with one batch handler, which notes its calls."""

    def __init__(self, world, answer=lambda _events: None, **options):
        self.world = world
        self.calls = []
        self.claims = []
        self.endings = []

        def handle(events):
            self.calls.append(list(events))
            return answer(events)

        call = BatchCall(handle, takes_context=False)

        def bind(delivery, context):
            if delivery.args[0] == "unreadable":
                raise DecodeError("it does not fit")
            return BatchItem(call, delivery.args[0], context)

        world.handler(None, bind=bind, batch=Batch(size=10, wait=1), **options)
        claim, settle_all = world.store.claim, world.store.settle_all

        def noted_claim(claims):
            self.claims.append(len(claims))
            return claim(claims)

        def noted_settle_all(ends):
            self.endings.append([type(end.ending) for end in ends])
            return settle_all(ends)

        world.store.claim, world.store.settle_all = noted_claim, noted_settle_all

    def delivery(self, data, event_id=None, **headers):
        return self.world.delivery(data=data, event_id=event_id or f"id-{data}", **headers)

    def take(self, *deliveries):
        given = [one if not isinstance(one, str) else self.delivery(one) for one in deliveries]
        return BatchExecutor(self.world.road()).take(given)

    def outcomes(self, *deliveries):
        return [type(one.result()) for one in self.take(*deliveries)]


def test_all_are_handled_by_one_call_one_claim_and_one_completion(world):
    site = Site(world)
    assert site.outcomes("a", "b", "c") == [Handled, Handled, Handled]
    assert site.calls == [["a", "b", "c"]]
    assert site.claims == [3]
    assert site.endings == [[Complete, Complete, Complete]]
    assert world.journal.entries == ["followers"] * 3 + ["fact before ack"] * 3  # then they end
    assert [fact.subtype for fact in world.journal.facts] == ["handled"] * 3


def test_an_error_counts_for_each_event_as_its_own(world):
    def fail(_events):
        raise ConnectionError("down")

    site = Site(world, fail)
    assert site.outcomes("a", "b") == [Retried, Retried]
    attempts = [copy.headers[names.ATTEMPT] for copy, _ in world.journal.copies]
    assert attempts == [2, 2]
    assert {copy.headers[names.EVENT_ID] for copy, _ in world.journal.copies} == {"id-a", "id-b"}


def test_only_those_fail_that_the_result_names(world):
    errors = {0: ConnectionError("down"), 2: GiveUp("never"), 3: Skip("not for us")}
    site = Site(world, lambda _events: BatchResult(errors))
    assert site.outcomes("a", "b", "c", "d") == [Retried, Handled, DeadLettered, Skipped]
    assert [letter.event.id for letter in world.journal.letters] == ["id-c"]
    assert isinstance(world.store.claim([site.delivery("b").claim])[0], AlreadyCompleted)


def test_who_has_spent_its_budget_is_left_out_of_its_batch(world):
    spent = {"rich": Decimal(1), "broke": Decimal(10)}
    world.cost_budgets = CostBudgets(
        budgets=[CostBudget(name="b", amount=Decimal(10), currency="EUR", tenant="*")],
        spent=lambda scope: spent[scope.tenant_id],
        clock=world.clock,
    )
    site = Site(world)
    given = [
        site.delivery("a", **{names.TENANT_ID: "rich"}),
        site.delivery("b", **{names.TENANT_ID: "broke"}),
        site.delivery("c", **{names.TENANT_ID: "rich"}),
    ]
    assert site.outcomes(*given) == [Handled, DeadLettered, Handled]
    assert site.calls == [["a", "c"]]
    assert [letter.category for letter in world.journal.letters] == ["budget"]


def test_an_event_that_fails_its_whole_batch_takes_no_other_with_it(world):
    def fail(events):
        if "b" in events:
            raise ValueError("b")

    site = Site(world, fail)
    assert site.outcomes("a", "b", "c") == [Handled, DeadLettered, Handled]
    assert site.calls == [["a", "b", "c"], ["a"], ["b"], ["c"]]


def test_a_directive_that_is_raised_for_all_counts_for_those_that_raise_it_alone(world):
    def fail(events):
        if "b" in events:
            raise Skip("not b")

    site = Site(world, fail)
    assert site.outcomes("a", "b", "c") == [Handled, Skipped, Handled]


def test_what_may_not_run_twice_is_not_run_alone_after_its_batch_failed(world):
    def fail(events):
        if "b" in events:
            raise ValueError("b")

    site = Site(world, fail, idempotent=False)
    assert site.outcomes("a", "b", "c") == [DeadLettered] * 3
    assert site.calls == [["a", "b", "c"]]


def test_a_permit_is_given_back_before_events_run_alone(world):
    def fail(events):
        if "b" in events:
            raise ValueError("b")

    site = Site(world, fail, breaker="crm")
    assert site.outcomes("a", "b", "c") == [Handled, DeadLettered, Handled]


def test_a_wrong_answer_fails_all_and_loses_none(world):
    site = Site(world, lambda _events: {"batchItemFailures": []})
    assert site.outcomes("a", "b") == [DeadLettered, DeadLettered]
    assert all("must return None" in one.error_message for one in world.journal.letters)


def test_a_duplicate_in_one_batch_runs_once(world):
    site = Site(world)
    found = site.take(site.delivery("a"), site.delivery("a"), site.delivery("b"))
    assert [type(one.result()) for one in found] == [Handled, Postponed, Handled]
    assert site.calls == [["a", "b"]]
    assert site.outcomes("a") == [Duplicate]


def test_what_was_handled_before_is_left_out(world):
    site = Site(world)
    site.take("a")
    assert site.outcomes("a", "b", "c") == [Duplicate, Handled, Handled]
    assert site.calls == [["a"], ["b", "c"]]


def test_what_cannot_be_read_is_a_letter_and_the_others_go_on(world):
    site = Site(world)
    assert site.outcomes("a", "unreadable", "c") == [Handled, DeadLettered, Handled]
    assert site.calls == [["a", "c"]]


def test_the_last_start_of_an_event_runs_by_itself(world):
    site = Site(world)
    world.died(2, data="a", event_id="id-a")
    assert site.outcomes("a", "b", "c") == [Handled] * 3
    assert site.calls == [["a"], ["b", "c"]]


def test_poison_is_a_letter_and_the_others_go_on(world):
    site = Site(world)
    world.died(3, data="a", event_id="id-a")
    assert site.outcomes("a", "b", "c") == [DeadLettered, Handled, Handled]
    assert site.calls == [["b", "c"]]


def test_a_batch_is_one_call_to_its_breaker(world):
    def fail(_events):
        raise ConnectionError("down")

    site = Site(world, fail, breaker="crm")
    told = []
    record = world.breakers.record
    world.breakers.record = lambda permit, **how: told.append(how["ok"]) or record(permit, **how)
    site.take("a", "b", "c")
    assert told == [False]


def test_one_ill_event_makes_the_call_ill(world):
    site = Site(world, lambda _events: BatchResult({2: ConnectionError("down")}), breaker="crm")
    told = []
    record = world.breakers.record
    world.breakers.record = lambda permit, **how: told.append(how["ok"]) or record(permit, **how)
    site.take("a", "b", "c")
    assert told == [False]


def test_an_open_breaker_postpones_all(world):
    site = Site(world, breaker="crm")
    world.breakers.isolate("crm", by="ada")
    assert site.outcomes("a", "b") == [Postponed, Postponed]
    assert site.calls == []


def test_a_switch_holds_only_those_that_it_names(world):
    site = Site(world)
    world.switches.put(Selector(tenant="t1"), SwitchAction.DROP, by="ada", reason="gone")
    found = site.outcomes("a", site.delivery("b", **{names.TENANT_ID: "t1"}), "c")
    assert found == [Handled, Skipped, Handled]
    assert site.calls == [["a", "c"]]


def test_a_stopping_worker_gives_all_back_and_frees_their_claims(world):
    site = Site(world)
    world.closed = True
    for one in site.take("a", "b"):
        with pytest.raises(GivenBack):
            one.result()
    assert site.calls == []
    world.closed = False
    assert site.outcomes("a", "b") == [Handled, Handled]


def test_a_cut_handler_gives_all_back_and_counts_no_start(world):
    def cut(_events):
        raise Interrupt

    site = Site(world, cut)
    for one in site.take("a", "b"):
        with pytest.raises(GivenBack, match="cut short"):
            one.result()
    assert [one.starts for one in world.store.claim([site.delivery("a").claim])] == [1]


def test_what_ends_the_process_is_passed_on(world):
    def end(_events):
        raise SystemExit

    site = Site(world, end, breaker="crm")
    with pytest.raises(SystemExit):
        site.take("a", "b")
    assert world.journal.copies == world.journal.letters == []


def test_claims_are_asked_for_one_by_one_where_the_call_for_all_fails(world):
    site = Site(world)
    executor = world.road()

    def fail(_deliveries):
        raise RuntimeError("a bug")

    executor = replace(executor, claimer=_Failing(executor.claimer, fail))
    found = BatchExecutor(executor).take([site.delivery("a"), site.delivery("b")])
    assert [type(one.result()) for one in found] == [Handled, Handled]
    assert site.claims == [1, 1]


class _Failing:
    def __init__(self, claimer, ask_all):
        self._claimer, self.ask_all = claimer, ask_all

    def __getattr__(self, name):
        return getattr(self._claimer, name)


def test_completions_are_made_one_by_one_where_the_call_for_all_fails(world):
    site = Site(world)

    settle_all = world.store.settle_all

    def away(ends):
        if len(ends) > 1:
            raise StoreUnavailable("away")
        return settle_all(ends)

    world.store.settle_all = away
    assert site.outcomes("a", "b") == [Handled, Handled]
    assert world.journal.entries.count("complete") == 2
    assert isinstance(world.store.claim([site.delivery("a").claim])[0], AlreadyCompleted)


def test_a_delivery_that_was_taken_over_is_fenced_and_the_others_are_handled(world):
    def lose(_events):
        world.leases.end("w1")
        assert world.store.claim([site.world.delivery(data="a", event_id="id-a", owner="w2").claim])
        world.leases.renew("w1", timedelta(days=1))

    site = Site(world, lose)
    found = site.take("a", "b")
    assert found[0].result() is None
    assert isinstance(found[1].result(), Handled)
    assert "fenced" in {fact.subtype for fact in world.journal.facts}


def test_short_waits_of_many_events_are_not_slept_one_after_the_other(world):
    errors = {n: Postpone(timedelta(milliseconds=80)) for n in range(10)}
    site, began = Site(world, lambda _events: BatchResult(errors)), world.clock.now()
    assert site.outcomes(*"abcdefghij") == [Postponed] * 10
    assert world.clock.now() == began
    assert {due - began for _, due in world.journal.copies} == {timedelta(milliseconds=180)}


def test_the_rest_of_many_waits_is_slept_once(world):
    site, began = Site(world), world.clock.now()
    given = [site.delivery(data, **{names.REST: rest}) for data, rest in (("a", 40), ("b", 90))]
    assert site.outcomes(*given, "c") == [Handled] * 3
    assert world.clock.now() - began == timedelta(milliseconds=90)


def test_hooks_see_the_call_and_each_delivery(world):
    seen = []

    class Watch:
        def attempt(self, _delivery):
            raise AssertionError

        @contextmanager
        def batch(self, deliveries):
            seen.append([delivery.event.id for delivery in deliveries])
            yield
            seen.append("called")

        def settled(self, delivery, outcome):
            seen.append((delivery.event.id, type(outcome)))

    world.hooks = Hooks((Watch(),))
    Site(world).take("a", "b")
    assert seen == [["id-a", "id-b"], "called", ("id-a", Handled), ("id-b", Handled)]


def test_a_hook_that_fails_or_knows_no_batches_harms_none(world):
    class Single:
        def attempt(self, _delivery):
            raise AssertionError

        def settled(self, _delivery, _outcome): ...

    class Broken(Single):
        def batch(self, _deliveries):
            raise OSError

    world.hooks = Hooks((Single(), Broken()))
    assert Site(world).outcomes("a", "b") == [Handled, Handled]


#: What may become of an event: the error that its handler has for it, if any.
FATES = {
    "ok": None,
    "down": ConnectionError("down"),
    "bug": ValueError("a bug"),
    "never": GiveUp("never"),
    "not ours": Skip("not ours"),
    "later": Postpone(timedelta(seconds=5)),
}


def outcomes_alone(world, fates):
    """Return how events end that a handler takes one by one."""

    def handle(data, _context):
        error = FATES.get(data.partition(" ")[2])
        if error is not None:
            raise error

    def bind(delivery, context):
        if "unreadable" in delivery.args[0]:
            raise DecodeError("it does not fit")
        return lambda: handle(delivery.args[0], context)

    world.handler(None, bind=bind)
    prepare(world, fates)
    found = [world.take(data=data, event_id=data) for data in named(fates)]
    return [type(one) for one in found]


def outcomes_together(world, fates):
    """Return how they end in one batch."""

    def answer(events):
        errors = {n: FATES.get(data.partition(" ")[2]) for n, data in enumerate(events)}
        return BatchResult({n: error for n, error in errors.items() if error is not None})

    site = Site(world, answer)
    bind = world.handlers.get("h").bind

    def reading(delivery, context):
        if "unreadable" in delivery.args[0]:
            raise DecodeError("it does not fit")
        return bind(delivery, context)

    object.__setattr__(world.handlers.get("h"), "bind", reading)
    prepare(world, fates)
    return site.outcomes(*(site.delivery(data, data) for data in named(fates)))


def named(fates):
    return [f"{number} {fate}" for number, fate in enumerate(fates)]


def prepare(world, fates):
    for data, fate in zip(named(fates), fates, strict=True):
        if fate == "done":
            delivery = world.delivery(data=data, event_id=data)
            world.store.claim([delivery.claim])
            world.store.settle(delivery.key, delivery.token, Complete(result="null"))
        elif fate == "poison":
            world.died(3, data=data, event_id=data)


@given(st.lists(st.sampled_from([*FATES, "done", "poison", "unreadable"]), min_size=1, max_size=8))
def test_each_event_of_a_batch_ends_as_it_would_alone(make_world, fates):
    assert outcomes_together(make_world(), fates) == outcomes_alone(make_world(), fates)
