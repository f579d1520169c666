"""An end that no fact tells, or two, is found; and what is told once is let be."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.chaos.conftest import a_run, an_entry, planned

from chaos.fact_check import LETTER, TOLD_TWICE, UNTOLD, check_facts
from chaos.fates import HANDLED, SKIPPED
from chaos.history import FAILED, Pair

PAIR = Pair("chaos.main", "ok-1")


def found(had, **told):
    counted = {PAIR: Counter(told)} if told else {}
    return [one.kind for one in check_facts({PAIR: frozenset(had)}, counted)]


@pytest.mark.parametrize("end", [HANDLED, SKIPPED, LETTER])
def test_an_end_with_its_fact_is_well(end):
    assert found({end}, **{end: 1}) == []


@pytest.mark.parametrize("end", [HANDLED, SKIPPED, LETTER])
def test_an_end_without_its_fact_or_with_two_is_found(end):
    assert found({end}) == [UNTOLD]
    assert found({end}, **{end: 2}) == [TOLD_TWICE]


def test_the_fact_of_an_end_that_was_not_is_found():
    assert found({HANDLED}, dead_lettered=1) == [UNTOLD]
    assert found({HANDLED}, handled=1, dead_lettered=1) == [UNTOLD]


def test_of_two_ends_only_one_was_settled():
    assert found({HANDLED, LETTER}, handled=1) == []
    assert found({HANDLED, LETTER}, dead_lettered=1) == []
    assert found({HANDLED, LETTER}) == [UNTOLD]


def test_the_verdict_asks_for_the_fact_of_each_end(verdict):
    ok, permanent = planned("ok"), planned("permanent")
    runs = [a_run(), a_run(how=FAILED, event="permanent-1")]
    told = {a_run().pair: Counter(handled=1)}
    breaches, _ = verdict(ok, permanent, runs=runs, entries=[an_entry()], told=told)
    assert breaches == [(UNTOLD, "permanent-1")]
    told[a_run(event="permanent-1").pair] = Counter(dead_lettered=1)
    assert verdict(ok, permanent, runs=runs, entries=[an_entry()], told=told)[0] == []
