"""Letters of another app: filed where they lie, and left to people, whatever they say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import letter_of
from tests.judging import classifier, evidence_of

from angzarr import Angzarr
from angzarr.analysis.classification.classify import Unattended
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.ledger.transition import Action
from angzarr.analysis.replay.replay import ReplayTargets
from angzarr.analysis.worker.intake import OtherApps
from angzarr.dead_letters.letter import Refusal

SHOP = OtherApps("shop", frozenset({"shop", "order", "unknown"}))


def letter(component="blog", domain="unknown", **fields):
    return replace(letter_of(**fields), component=component, domain=domain)


@pytest.mark.parametrize("name", ["blog", "blog.tasks", "Blog"])
def test_a_letter_of_another_app_names_it_and_what_to_do(name):
    said = SHOP.problem(letter(name))
    assert said.startswith(f"the app {name!r} wrote it: replay it there, ")
    assert "--to-handler" in said


def test_what_a_letter_calls_its_app_is_shown_short_and_on_one_line():
    said = SHOP.problem(letter("x\n\x1b[2J" + "y" * 9_999))
    assert len(said) < 250
    assert said.isprintable()


@pytest.mark.parametrize(
    "made",
    [
        {"component": "shop"},
        {"component": "order"},  # a name that this app reads as well
        {"component": "angzarr"},  # it has no name
        {"component": ""},
        {"component": "blog", "domain": "order"},  # in a queue of ours
    ],
)
def test_its_own_and_what_is_nobodys_in_particular_is_nobody_elses(made):
    assert SHOP.problem(letter(**made)) == ""


def test_what_is_no_letter_or_holds_no_task_is_nobody_elses():
    theirs = letter()
    bare = replace(theirs, message=replace(theirs.message, headers={}))
    raw = Unreadable(
        domain="unknown", raw=b"?", content_type="x/y", problem="?",
        received_at=theirs.sent_to_dlq_at,
    )  # fmt: skip
    assert [SHOP.problem(one) for one in (bare, raw)] == ["", ""]


@pytest.mark.parametrize("action", ["replay", "wait", "compensate", "skip", "archive", "hold"])
def test_nothing_becomes_of_it_by_itself_whatever_a_rule_says(action):
    rule = {
        "name": "any", "when": {"category": "transient"},
        "then": {"class": "unknown", "action": action},
    }  # fmt: skip
    limits = Unattended(oldest=timedelta(days=30), of_another=SHOP.problem)
    judge = replace(classifier([rule]), unattended=limits)
    known = {"undone_by": "orders.undo"}
    assert judge(evidence_of(letter("shop"), **known)).action is Action(action)
    held = judge(evidence_of(letter(), **known))
    assert held.action is Action.HOLD
    assert "the app 'blog' wrote it: replay it there" in held.evidence


def test_a_task_of_that_name_here_gets_it_by_a_persons_redirect_alone():
    targets = ReplayTargets(
        tasks={"orders.sync", "orders.mend"}, queues={"orders"}, of_another=SHOP.problem
    )
    assert targets.problem(letter("shop")) == ""
    assert targets.problem(letter()).startswith("the app 'blog' wrote it")
    assert isinstance(targets.cleared(letter()), Refusal)
    assert targets.problem(letter(), ReplayOrder(to_handler="orders.mend")) == ""
    assert targets.problem(letter(), ReplayOrder(to_queue="orders")) == ""


def test_an_app_leaves_to_people_what_another_wrote():
    shop = Angzarr("shop", broker="memory://", set_as_current=False)
    judge, targets = shop.dlq_classifier(lambda: 0.5), shop.replay_targets()
    for says in (judge.unattended.of_another, targets.of_another):
        assert "'blog'" in says(letter())
        assert says(letter("shop")) == ""
    blog = Angzarr("blog", broker="memory://", set_as_current=False)
    assert blog.replay_targets().of_another(letter()) == ""
