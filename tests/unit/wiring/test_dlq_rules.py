"""The rules of an app, and whom it asks."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from pydantic import BaseModel
from tests.contracts.ledger import letter_of
from tests.hand_clock import START
from tests.judging import evidence_of

from angzarr import Angzarr
from angzarr.analysis import Action, EntryDecision, FailureClass
from angzarr.clock import SystemClock
from angzarr.dead_letters.metadata import REDACTED
from angzarr.errors import ConfigurationError
from angzarr.events.event import Event
from angzarr.fleet import FleetRelease, Member
from angzarr.wiring.process import ProcessParts

HELD = EntryDecision(action=Action.HOLD, failure_class=FailureClass.CODE_DEFECT, evidence="mine")


class Order(BaseModel):
    total: int


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an embedded app keeps its database here


@pytest.fixture
def app(tmp_path):
    app = Angzarr(
        "shop",
        broker="memory://",
        ledger=f"sqlite:///{tmp_path / 'ledger.db'}",
        set_as_current=False,
    )

    @app.handler(Order, name="orders.sync", breaker="crm")
    def sync(order: Order) -> None: ...

    yield app
    app.close()


def gathering(app):
    return app.ops.open_gathering(
        SimpleNamespace(obstacle=lambda _failure: "", clock=SystemClock())
    )


def test_a_function_that_is_a_rule_decides(app):
    @app.dlq_rule()
    def mine(_letter, _evidence):
        return HELD

    classify = app.ops.dlq_classifier(lambda: 0.0)
    assert classify(evidence_of()).evidence == "mine"
    assert classify.rules[0].name == "mine"


def test_two_rules_of_one_name_are_refused(app):
    app.add_dlq_rule(lambda *_seen: None, name="mine")
    with pytest.raises(ConfigurationError, match="needs a name that no other has, not 'mine'"):
        app.add_dlq_rule(lambda *_seen: None, name="mine")


def test_a_classifier_can_stand_for_all_rules(app):
    app.replace_dlq_classifier(lambda _evidence: HELD)
    assert app.ops.dlq_classifier(lambda: 0.0)(evidence_of()).evidence == "mine"


def test_without_a_shared_store_breakers_are_unknown(app):
    found = gathering(app)
    assert found.breakers is None
    found.peers.close()


@pytest.mark.parametrize(
    ("data", "fits", "why"),
    [({"total": 3}, True, "it decodes"), ({"total": "x"}, False, "total: Input should be")],
)
def test_an_event_is_decoded_as_its_handler_declares_it_now(app, data, fits, why):
    event = Event(id="e1", type="Order", data=data)
    found = gathering(app).decodes(letter_of(event=event))
    assert found.fits is fits
    assert why in found.why


@pytest.mark.parametrize(
    "fields",
    [{"handler": "nobody"}, {"event": None}, {"metadata": {REDACTED: "1"}}],
)
def test_what_cannot_be_tried_is_unknown_and_said(app, fields):
    found = gathering(app).decodes(letter_of(**fields))
    assert found.fits is None
    assert found.why


def test_rules_of_the_settings_are_checked_at_start(monkeypatch):
    monkeypatch.setenv("ANGZARR_ANALYSIS__RULES", '[{"name": "x", "when": {"handlr": "y"}}]')
    with pytest.raises(ConfigurationError, match=r"rule x .*then is missing"):
        Angzarr("shop", broker="memory://", set_as_current=False)


def test_a_file_of_rules_is_read_by_the_analysis_worker_only(monkeypatch, tmp_path):
    monkeypatch.setenv("ANGZARR_ANALYSIS__RULES", str(tmp_path / "rules.yaml"))
    app = Angzarr("shop", broker="memory://", set_as_current=False)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        app.ops.dlq_classifier(lambda: 0.0)
    app.close()


# -- the fleet -------------------------------------------------------------------------------


class FakeFleet:
    def __init__(self, *running, handlers=("orders.sync",)):
        self.looks = 0
        self.running = [
            Member(owner=str(n), host="h", pid=n, release=one, handlers=handlers, started_at=START)
            for n, one in enumerate(running)
        ]

    def members(self):
        self.looks += 1
        return self.running

    def releases(self):
        return [
            FleetRelease(name=name, first_seen_at=START + timedelta(days=n), last_seen_at=START)
            for n, name in enumerate(["9.0", "10.0"])
        ]


@pytest.mark.parametrize(
    ("running", "failed", "newer"),
    [
        (("10.0",), "9.0", True),
        (("10.0", "9.0"), "9.0", False),  # it could come to the old one
        (("9.0",), "10.0", False),
        ((), "9.0", False),
        (("10.0",), "never seen", None),
        (("10.0",), "", None),
    ],
)
def test_a_newer_release_is_one_that_all_who_run_the_handler_run(
    app, monkeypatch, running, failed, newer
):
    fleet = FakeFleet(*running)
    monkeypatch.setattr(ProcessParts, "claims", SimpleNamespace(fleet=fleet))
    newer_runs = gathering(app).releases()
    assert newer_runs("orders.sync", failed) is newer
    assert newer_runs("mail.send", failed) is (None if newer is None else False)
    assert fleet.looks == 1


def test_without_a_claim_store_no_release_is_newer_and_none_is_not():
    app = Angzarr("shop", broker="memory://", set_as_current=False)

    def refuse():
        raise ConfigurationError("no store")

    app.ops.fleet = refuse
    assert gathering(app).releases()("orders.sync", "9.0") is None
    app.close()
