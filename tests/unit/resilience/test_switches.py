"""Which switch holds for a delivery, and how long a paused one waits."""

from __future__ import annotations

from datetime import timedelta
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.resilience.switches import (
    LONGEST,
    LONGEST_WAIT,
    SHORTEST_WAIT,
    Selector,
    Switch,
    SwitchAction,
    SwitchSet,
    check_switch,
    wait_of,
)
from hand_clock import START

SECOND = timedelta(seconds=1)
PAUSE, DROP = SwitchAction.PAUSE, SwitchAction.DROP

handlers = st.sampled_from(["shop.sync", "shop.bill", "mail.send"])
patterns = st.sampled_from(["shop.*", "*", "*.send", "shop.[bs]*", "shop.syn?", "none.*"])
names = st.sampled_from(["a", "b"])
maybe_name = st.none() | names
selectors = st.builds(Selector, st.none() | handlers | patterns, maybe_name, maybe_name, maybe_name)
subjects = st.builds(Selector, handlers, maybe_name, maybe_name, maybe_name)
moments = st.integers(-100, 100).map(lambda seconds: START + seconds * SECOND)
switches = st.builds(
    Switch,
    selector=selectors,
    action=st.sampled_from(SwitchAction),
    by=st.just("ada"),
    reason=st.just("why"),
    at=moments,
    until=st.none() | moments,
)
sets = st.lists(switches, max_size=12, unique_by=lambda switch: switch.selector)


def switch(action=PAUSE, *, at=START, until=None, **selector):
    return Switch(
        selector=Selector(**selector), action=action, by="ada", reason="why", at=at, until=until
    )


def means(selector: Selector, subject: Selector) -> bool:
    """Say the same as the rules, by the book."""
    return all(
        part is None or (name is not None and fnmatchcase(name, part))
        for part, name in zip(selector, subject, strict=True)
    )


@given(sets, subjects, moments)
def test_a_switch_holds_if_all_it_says_fits_and_it_has_not_ended(given_, subject, now):
    holding = [
        one
        for one in given_
        if means(one.selector, subject) and (one.until is None or now < one.until)
    ]
    found = SwitchSet(given_).of(subject, now)
    assert (found in holding) if holding else (found is None)


@given(sets, subjects, moments)
def test_a_pause_wins_over_every_drop(given_, subject, now):
    found = SwitchSet([*given_, switch(handler="*", tenant=None)]).of(subject, now)
    assert found is not None
    assert found.action is PAUSE


@given(sets, subjects, moments, st.randoms())
def test_the_order_in_which_switches_were_told_changes_nothing(given_, subject, now, random):
    shuffled = random.sample(given_, len(given_))
    assert SwitchSet(given_).of(subject, now) == SwitchSet(shuffled).of(subject, now)


def test_a_delivery_without_a_tenant_is_not_meant_by_a_switch_that_names_one():
    both = SwitchSet([switch(DROP, tenant="acme"), switch(PAUSE, domain="order")])
    assert both.of(Selector("h", "t", None, "order"), START).action is PAUSE
    assert both.of(Selector("h", "t", None, "other"), START) is None


def test_a_switch_ends_at_its_time_and_not_before():
    soon = SwitchSet([switch(until=START + SECOND)])
    subject = Selector("h", "t", None, None)
    assert soon.of(subject, START + 0.999 * SECOND) is not None
    assert soon.of(subject, START + SECOND) is None


def test_a_selector_without_any_name_means_all():
    everything = SwitchSet([switch()])
    assert everything.of(Selector("h", "t", "acme", "order"), START) is not None
    assert str(Selector()) == "all"


@given(selectors, selectors)
def test_one_selector_has_one_id(one, other):
    assert (one.id == other.id) == (one == other)


# -- waiting ---------------------------------------------------------------------------------


@given(st.integers(-1000, 100_000), st.floats(0, 1))
def test_a_wait_is_bounded_whatever_the_clocks_say(age, chance):
    wait = wait_of(switch(), START + age * SECOND, chance)
    assert SHORTEST_WAIT <= wait <= LONGEST_WAIT


@given(st.integers(0, 1000), st.integers(0, 1000), st.floats(0, 1))
def test_the_longer_it_is_paused_the_longer_is_the_wait(age, more, chance):
    earlier, later = START + age * SECOND, START + (age + more) * SECOND
    assert wait_of(switch(), earlier, chance) <= wait_of(switch(), later, chance)


@given(st.integers(1, 1000), st.floats(0, 1))
def test_nobody_waits_long_behind_an_end_that_is_known(left, chance):
    ends = START + left * SECOND
    ends_by_itself = switch(at=START - 1000 * SECOND, until=ends)
    assert wait_of(ends_by_itself, START, chance) <= left * SECOND + SHORTEST_WAIT


def test_those_who_wait_are_spread():
    paused = switch(at=START - 1000 * SECOND)
    assert wait_of(paused, START, 0.0) == LONGEST_WAIT / 2
    assert wait_of(paused, START, 1.0) == LONGEST_WAIT


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "action", "by", "reason", "said"),
    [
        (Selector(tenant=""), PAUSE, "ada", "", "must not be empty"),
        (Selector(), PAUSE, "", "", "must not be empty"),
        (Selector(), DROP, "ada", "", "a drop needs a reason"),
        (Selector(handler="h" * (LONGEST + 1)), PAUSE, "ada", "", "at most 500 characters"),
        (Selector(), PAUSE, "ada", "r" * (LONGEST + 1), "at most 500 characters"),
        (Selector(tenant="\udcff"), PAUSE, "ada", "", "UTF-8"),
        (Selector(tenant="a\x1b[31m"), PAUSE, "ada", "", "one line without control characters"),
        (Selector(), PAUSE, "ada\x00", "", "one line without control characters"),
        (Selector(), PAUSE, "ada", "a\nflow_resumed", "one line without control characters"),
        (Selector(), PAUSE, "ada", "a\u2028b", "one line without control characters"),
    ],
)
def test_what_is_no_switch_is_refused(selector, action, by, reason, said):
    with pytest.raises(ConfigurationError, match=said):
        check_switch(selector, action, by, reason)


@pytest.mark.parametrize(
    "until",
    [timedelta(0), -SECOND, timedelta.max, START.replace(tzinfo=None), START.replace(year=9999),
     START.replace(year=1969)],
)  # fmt: skip
def test_an_end_that_no_clock_tells_is_refused(until):
    with pytest.raises(ConfigurationError, match="ends at a time with its zone"):
        check_switch(Selector(), PAUSE, "ada", "", until)


@pytest.mark.parametrize("until", [None, SECOND, timedelta(days=36525), START])
def test_an_end_may_be_a_time_or_a_span(until):
    check_switch(Selector(), PAUSE, "ada", "", until)


def test_a_pause_needs_no_reason():
    check_switch(Selector(), PAUSE, "ada", "")
