"""A breaker around a call: decorator, context manager, plain call; sync and async."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.memory.breaker import InProcessBreakers
from angzarr.errors import CircuitOpenError, ConfigurationError, GiveUp
from angzarr.resilience.breaker import BreakerSettings, BreakerState, Permit, Phase, base_of
from angzarr.resilience.breaker_guard import (
    _HERE,
    BreakerGuard,
    Guard,
    check_full_name,
    counted_within,
    guards,
    keyed,
    mark_counted,
)
from hand_clock import HandClock

TOUCHY = BreakerSettings(min_calls=1, failures_in_a_row=1, ramp_up=timedelta(0))


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def breakers(clock):
    return InProcessBreakers(default=TOUCHY, clock=clock)


@pytest.fixture
def make(breakers):
    def make(name="crm", errors=(Exception,), **options):
        return BreakerGuard(
            guard=Guard(name, errors), breakers=lambda: breakers,
            is_ill=lambda error: isinstance(error, OSError), **options,
        )  # fmt: skip

    return make


@pytest.fixture
def crm(make):
    return make()


def phase(breakers, name="crm"):
    return breakers.states().get(name, BreakerState()).phase


class Way:
    """One way to make a call through a guard."""

    def decorated(self, guard, function):
        return guard(function)()

    def entered(self, guard, function):
        with guard:
            return function()

    def called(self, guard, function):
        return guard.call(function)

    def decorated_async(self, guard, function):
        async def later():
            await asyncio.sleep(0)
            return function()

        return asyncio.run(guard(later)())

    def entered_async(self, guard, function):
        async def later():
            async with guard:
                await asyncio.sleep(0)
                return function()

        return asyncio.run(later())

    def called_async(self, guard, function):
        async def later():
            return function()

        return asyncio.run(guard.acall(later))


WAYS = [name for name in vars(Way) if not name.startswith("_")]


@pytest.fixture(params=WAYS)
def way(request):
    return getattr(Way(), request.param)


def fail(error):
    def failing():
        raise error

    return failing


def test_a_call_that_goes_well_returns_its_value(way, crm, breakers):
    assert way(crm, lambda: 7) == 7
    assert breakers.states()["crm"].tallies[0][1:] == (1, 0, 0)


def test_an_error_is_raised_as_it_is_and_opens_the_breaker(way, crm, breakers):
    error = ConnectionError("reset")
    with pytest.raises(ConnectionError) as raised:
        way(crm, fail(error))
    assert raised.value is error
    assert phase(breakers) is Phase.OPEN


def test_an_open_breaker_refuses_and_the_call_is_not_made(way, crm, breakers):
    breakers.isolate("crm", by="me")
    with pytest.raises(CircuitOpenError) as raised:
        way(crm, lambda: pytest.fail("must not run"))
    assert (raised.value.name, raised.value.retry_after) == ("crm", TOUCHY.open_for)


@pytest.mark.parametrize("error", [ValueError("a bug"), GiveUp("no")], ids=["healthy", "said"])
def test_what_says_nothing_of_the_dependency_does_not_open_it(way, crm, breakers, error):
    with pytest.raises(type(error)):
        way(crm, fail(error))
    assert phase(breakers) is Phase.CLOSED


def test_rules_that_fail_do_not_hide_the_error(way, breakers, caplog):
    def is_ill(_error):
        raise LookupError("a broken rule")

    guard = BreakerGuard(guard=Guard("crm"), breakers=lambda: breakers, is_ill=is_ill)
    with pytest.raises(ConnectionError):
        way(guard, fail(ConnectionError()))
    assert phase(breakers) is Phase.CLOSED
    assert "breaker_error_not_judged: crm" in caplog.text


def test_only_its_own_errors_count(way, make, breakers):
    with pytest.raises(ConnectionError):
        way(make(errors=(TimeoutError,)), fail(ConnectionError()))
    assert phase(breakers) is Phase.CLOSED


def test_a_probe_is_answered_for(way, crm, breakers, clock):
    with pytest.raises(ConnectionError):
        way(crm, fail(ConnectionError()))
    clock.sleep(TOUCHY.open_for)
    assert way(crm, lambda: 1) == 1
    assert phase(breakers) is Phase.HALF_OPEN
    assert way(crm, lambda: 1) == 1
    assert phase(breakers) is Phase.CLOSED


def test_a_probe_that_is_cut_short_is_free_for_another(way, crm, breakers, clock):
    with pytest.raises(ConnectionError):
        way(crm, fail(ConnectionError()))
    clock.sleep(TOUCHY.open_for)
    with pytest.raises(KeyboardInterrupt):
        way(crm, fail(KeyboardInterrupt()))
    assert phase(breakers) is Phase.HALF_OPEN
    assert isinstance(breakers.admit("crm", "next"), Permit)


def test_a_cancelled_probe_is_free_for_another(crm, breakers, clock):
    async def main():
        async with asyncio.timeout(0.01):
            async with crm:
                await asyncio.sleep(30)

    with pytest.raises(ConnectionError):
        crm.call(fail(ConnectionError()))
    clock.sleep(TOUCHY.open_for)
    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert isinstance(breakers.admit("crm", "next"), Permit)


@pytest.mark.parametrize("late", [True, False], ids=["still asked for", "just given"])
@pytest.mark.parametrize("entered", [True, False], ids=["entered", "called"])
def test_a_probe_is_given_back_if_who_asked_for_it_is_cancelled_meanwhile(
    make, breakers, clock, monkeypatch, late, entered
):
    asked, go_on, given_back = (threading.Event() for _ in range(3))
    admit, forgo = breakers.admit, breakers.forgo

    def admit_slowly(name, token, whose):
        answer = admit(name, token, whose)
        asked.set()
        assert not late or go_on.wait(60)
        return answer

    def forgo_and_tell(permit):
        forgo(permit)
        given_back.set()

    monkeypatch.setattr(breakers, "admit", admit_slowly)
    monkeypatch.setattr(breakers, "forgo", forgo_and_tell)

    async def calling(guard):
        if not entered:
            await guard.acall(asyncio.sleep, 30)
        async with guard:
            await asyncio.sleep(30)

    async def main():
        task = asyncio.create_task(calling(make()))
        await asyncio.sleep(0)
        if late:
            await asyncio.to_thread(asked.wait, 60)
        else:
            assert asked.wait(60)  # the task does not hear of it meanwhile
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    breakers.record(Permit("crm", 0), ok=False, took=timedelta(0))
    clock.sleep(TOUCHY.open_for)
    asyncio.run(main())
    assert given_back.wait(60)
    assert isinstance(admit("crm", "next"), Permit)


def test_a_probe_is_given_back_if_a_time_limit_strikes_while_it_is_asked_for(
    way, crm, breakers, clock, monkeypatch
):
    admit = breakers.admit

    def struck(name, token, whose):
        admit(name, token, whose)
        raise TimeoutError("soft time limit")

    with pytest.raises(ConnectionError):
        crm.call(fail(ConnectionError()))
    clock.sleep(TOUCHY.open_for)
    monkeypatch.setattr(breakers, "admit", struck)
    with pytest.raises(TimeoutError, match="soft"):
        way(crm, lambda: pytest.fail("must not run"))
    assert isinstance(admit("crm", "next"), Permit)


def test_a_fallback_gets_the_arguments(make, breakers):
    guard = make(fallback=lambda value, *, twice: (value, twice))
    breakers.isolate("crm", by="me")

    @guard
    def lookup(_value, *, twice):
        pytest.fail("must not run")

    @guard
    async def alookup(_value, *, twice):
        pytest.fail("must not run")

    assert lookup(1, twice=2) == (1, 2)
    assert asyncio.run(alookup(1, twice=2)) == (1, 2)


def test_an_async_fallback_is_awaited(make, breakers):
    async def cached():
        return "cached"

    breakers.isolate("crm", by="me")

    @make(fallback=cached)
    async def lookup():
        pytest.fail("must not run")

    assert asyncio.run(lookup()) == "cached"


def test_an_error_is_counted_by_the_inner_of_two_only(make, breakers):
    with pytest.raises(ConnectionError), make("outer"), make("inner"):
        raise ConnectionError
    assert (phase(breakers, "inner"), phase(breakers, "outer")) == (Phase.OPEN, Phase.CLOSED)


def test_an_error_that_is_raised_again_and_again_counts_each_time(make, breakers):
    error = ConnectionError("one object for all")
    for name in ("one", "two"):
        with pytest.raises(ConnectionError):
            make(name).call(fail(error))
        assert phase(breakers, name) is Phase.OPEN


def test_a_coroutine_function_is_no_plain_call(crm, breakers, clock):
    async def upsert():
        pytest.fail("must not run")

    with pytest.raises(ConnectionError):
        crm.call(fail(ConnectionError()))
    clock.sleep(TOUCHY.open_for)
    for _ in range(TOUCHY.successes_to_close + 1):
        with pytest.raises(ConfigurationError, match=r"use await \.acall\("):
            crm.call(upsert)
    assert phase(breakers) is Phase.HALF_OPEN
    assert isinstance(breakers.admit("crm", "next"), Permit)


def test_a_generator_function_is_not_decorated(crm):
    def rows():
        yield

    async def arows():
        yield

    for function in (rows, arows):
        with pytest.raises(ConfigurationError, match="write `with` or `async with`"):
            crm(function)


def test_one_guard_serves_many_threads_and_coroutines(crm, breakers):
    gate = threading.Barrier(8)

    def enter():
        with crm:
            gate.wait(60)

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def aenter():
        async with crm:
            await asyncio.sleep(0.001)

    async def main():
        await asyncio.gather(*(aenter() for _ in range(8)))

    asyncio.run(main())
    assert breakers.states()["crm"].tallies[0].calls == 16


def test_interleaved_generators_charge_their_own_breakers(make, breakers):
    def calling(guard):
        with guard:
            yield
            raise ConnectionError

    crm, ledger = (calling(make(name)) for name in ("crm", "ledger"))
    next(crm)
    next(ledger)
    with pytest.raises(ConnectionError):
        next(crm)
    assert (phase(breakers, "crm"), phase(breakers, "ledger")) == (Phase.OPEN, Phase.CLOSED)
    ledger.close()
    assert (phase(breakers, "crm"), phase(breakers, "ledger")) == (Phase.OPEN, Phase.CLOSED)


def test_a_probe_of_a_block_that_ends_in_another_context_is_free_for_another(crm, breakers, clock):
    async def calling():
        async with crm:
            yield

    async def main():
        probe = calling()
        await asyncio.create_task(anext(probe))
        with pytest.raises(KeyboardInterrupt, match="mine"):
            await probe.athrow(KeyboardInterrupt("mine"))

    with pytest.raises(ConnectionError):
        crm.call(fail(ConnectionError()))
    clock.sleep(TOUCHY.open_for)
    asyncio.run(main())
    assert isinstance(breakers.admit("crm", "next"), Permit)


def test_blocks_that_end_elsewhere_leave_nothing_behind(crm):
    def calling():
        with crm:
            yield

    elsewhere = contextvars.copy_context()
    for _ in range(5):
        call = calling()
        next(call)
        elsewhere.run(call.close)
    with crm:
        assert len(_HERE.get()) == len(crm._entered) == 1
    assert (_HERE.get(), crm._entered) == ((), {})


def test_a_decorated_function_keeps_its_name(crm):
    @crm
    def upsert():
        """Write it."""

    assert (upsert.__name__, upsert.__doc__) == ("upsert", "Write it.")


def test_the_probe_of_one_forked_process_is_not_another_ones():
    asked = []
    guard = BreakerGuard(
        guard=Guard("crm", (Exception,)), breakers=lambda: Asked(asked), is_ill=lambda _: True
    )
    reading, writing = os.pipe()
    for _child in range(2):
        child = os.fork()
        if child == 0:
            guard.call(str)
            os.write(writing, (asked[-1] + "\n").encode())
            os._exit(0)
        os.waitpid(child, 0)
    os.close(writing)
    with open(reading) as told:  # noqa: PTH123 - a pipe
        tokens = told.read().split()
    assert len(tokens) == len(set(tokens)) == 2


class Asked:
    """Breakers that let all through and note by which token they were asked."""

    def __init__(self, tokens):
        self.tokens = tokens

    def admit(self, name, token, _whose):
        self.tokens.append(token)
        return Permit(name, 0, token)

    def record(self, permit, *, ok, took):
        pass


def test_whoever_asks_again_keeps_his_turn_in_a_ramp_up(clock):
    slowly = BreakerSettings(min_calls=1, failures_in_a_row=1, ramp_up=timedelta(days=1))
    breakers = InProcessBreakers(default=slowly, clock=clock)
    breakers.isolate("crm", by="me")
    breakers.reset("crm", by="me")
    let_in = set()
    for number in range(40):
        guard = BreakerGuard(
            guard=Guard("crm"), breakers=lambda: breakers, is_ill=lambda _: False,
            whose=lambda number=number: f"event {number}", fallback=lambda: "refused",
        )  # fmt: skip
        answers = {guard.call(lambda: "let in") for _ in range(5)}
        assert len(answers) == 1
        let_in |= answers
    assert let_in == {"let in", "refused"}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, ()),
        ("crm", (Guard("crm"),)),
        (["crm", "mail", "crm"], (Guard("crm"), Guard("mail"))),
        ({"crm": OSError}, (Guard("crm", (OSError,)),)),
        ({"crm": (OSError, ValueError)}, (Guard("crm", (OSError, ValueError)),)),
    ],
)
def test_breakers_may_be_named_in_several_ways(named, expected):
    assert guards(named) == expected


@pytest.mark.parametrize(
    "named",
    [
        "",
        "wave:order",
        "a b",
        "x" * 201,
        "a\x1b[2J",
        "a\0",
        "\ud800",
        "a\u202e",
        "a\n",
        ["crm", ""],
        [1],
        {"": OSError},
    ],
)
def test_what_no_breaker_can_be_called_is_refused(named):
    with pytest.raises(ConfigurationError, match="not a name of a breaker"):
        guards(named)


@pytest.mark.parametrize("errors", [(), "OSError", (1,), int])
def test_what_is_no_exception_class_is_refused(errors):
    with pytest.raises(ConfigurationError, match="exception classes"):
        guards({"crm": errors})


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("acme", "crm:acme"),
        ("acme corp", "crm:acme%20corp"),
        ("a:b%", "crm:a%3Ab%25"),
        ("größe", "crm:größe"),
        ("\x1b[2J\u202e", "crm:%1B[2J%E2%80%AE"),
        ("\ud800", "crm:%ED%A0%80"),
        (7, "crm:7"),
        ("", "crm"),
        (None, "crm"),
    ],
)
def test_a_key_has_a_name_that_people_can_read(key, name):
    assert keyed("crm", key) == name


@given(st.text() | st.text("a% :\xa0\u202e\x1b", max_size=300), st.text(min_size=1))
def test_any_two_keys_have_names_of_their_own(one, other):
    names = {keyed("crm", one), keyed("crm", other)}
    assert len(names) == len({one, other})
    for name in names:
        assert check_full_name(name) == name
        assert base_of(name) == "crm"
        assert len(name) <= 204


@pytest.mark.parametrize("name", ["", "a b", "wave:order", "crm:", ":key", "crm:a b", "crm:a:b"])
def test_what_no_name_with_a_key_can_be_is_refused(name):
    with pytest.raises(ConfigurationError):
        check_full_name(name)


def test_no_key_makes_a_breaker_of_a_poison_wave():
    with pytest.raises(ConfigurationError, match="are those of poison waves"):
        keyed("wave", "order")


class Odd(Exception):
    """Gives anybody anything, and takes nothing."""

    given = None

    def __getattr__(self, name):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def __setattr__(self, name, value):
        raise TypeError(name)


@pytest.mark.parametrize("given", [None, "mark", OSError("away")])
def test_an_error_of_any_class_may_be_marked_and_asked(given, monkeypatch):
    monkeypatch.setattr(Odd, "given", given)
    error = Odd()
    mark_counted(error, 2)
    assert counted_within(error, 1) is False


def test_an_error_is_counted_within_the_calls_that_began_before():
    error = OSError()
    assert not counted_within(error, 1)
    mark_counted(error, 2)
    assert counted_within(error, 1)
    assert not counted_within(error, 2)
