"""No verb of the ledger that is told who acts may forget its fact."""

from __future__ import annotations

import inspect
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.act_facts import DRIVEN, VERBS, ActFactsContract
from tests.contracts.ledger import letter_of
from tests.hand_clock import START

from angzarr.analysis.ledger.act_facts import facts_of_changes
from angzarr.analysis.ledger.emergency_stop import Brake
from angzarr.analysis.ledger.group import Groups
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.ledger.operator_actions import Verb, acted
from angzarr.analysis.ledger.transition import answered, filed, retrying
from angzarr.analysis.replay.job_store import ReplayJobs
from angzarr.facts.act import NAMING, ActOrigin
from angzarr.facts.fact_text import fact_from_text, fact_text


def told_who_acts():
    """The verbs of the ports of a ledger that have a parameter `by`."""
    for port in (Ledger, Groups, Brake, ReplayJobs):
        for name, verb in inspect.getmembers(port, inspect.isfunction):
            if not name.startswith("_") and "by" in inspect.signature(verb).parameters:
                yield port, name


def test_every_verb_that_is_told_who_acts_has_a_test_of_its_fact():
    assert set(told_who_acts()) == set(DRIVEN)
    assert all(hasattr(ActFactsContract, test) for test in DRIVEN.values() if test)


def steps():
    verbs = st.sampled_from([*Verb, "replay", "answer"])
    # A line of a fact has a mark in place of NUL.
    notes = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=5)
    return st.lists(st.tuples(verbs, notes, st.integers(0, 2)), max_size=12)


@given(steps())
def test_whatever_people_do_each_act_is_one_fact_of_its_own(done):
    entry = filed(letter_of(), START).entry
    changes, now = [], START
    for verb, note, later in done:
        now += timedelta(seconds=later)
        made = change_of(entry, verb, note, now)
        if made is not None:
            entry = made.entry
            changes.append(made)
    facts = facts_of_changes(changes, ActOrigin.CLI)
    acts = [one for one in changes if one.act is not None]
    assert [fact.subtype for fact in facts] == [one.act.value for one in acts]
    assert len({fact.id for fact in facts}) == len(facts)
    for fact, made in zip(facts, acts, strict=True):
        assert (fact.resolves is not None) == (made.act in NAMING)
        assert fact.data["reason"] == (made.line.detail or None)
        assert fact_from_text(fact_text(fact)) == fact


def change_of(entry, verb, note, now):
    if verb == "replay":
        return retrying(entry, entry.replays + 1, now, "ann", timedelta(seconds=30))
    if verb == "answer":
        return answered(entry, entry.replays, now, "replay 1 (handled)")
    return acted(entry, verb, now, "ann", note)


def test_every_verb_of_people_has_a_fact_of_its_own():
    assert set(VERBS) == set(Verb)
    assert len({kind for kind, _ in VERBS.values()}) == len(VERBS)
