"""No verb of the ledger that is told who acts may forget its fact."""

from __future__ import annotations

import inspect

from tests.contracts.act_facts import DRIVEN, VERBS, ActFactsContract

from angzarr.analysis.ledger.emergency_stop import Brake
from angzarr.analysis.ledger.group import Groups
from angzarr.analysis.ledger.ledger import Ledger
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.replay.job_store import ReplayJobs


def told_who_acts():
    """The verbs of the ports of a ledger that have a parameter `by`."""
    for port in (Ledger, Groups, Brake, ReplayJobs):
        for name, verb in inspect.getmembers(port, inspect.isfunction):
            if not name.startswith("_") and "by" in inspect.signature(verb).parameters:
                yield port, name


def test_every_verb_that_is_told_who_acts_has_a_test_of_its_fact():
    assert set(told_who_acts()) == set(DRIVEN)
    assert all(hasattr(ActFactsContract, test) for test in DRIVEN.values() if test)


def test_every_verb_of_people_has_a_fact_of_its_own():
    assert set(VERBS) == set(Verb)
    assert len({kind for kind, _ in VERBS.values()}) == len(VERBS)
