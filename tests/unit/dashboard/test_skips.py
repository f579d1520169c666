"""Entries of ordered handlers in the dashboard: what waits behind them, and how it goes on."""

from __future__ import annotations

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.dashboard.api.route import PREFIX
from angzarr.errors import BrokerUnavailable
from angzarr.events import headers as names
from contracts.ledger import ordered_letter_of
from dashboard_caller import as_seen, browser, hidden


@pytest.fixture
def entry(world):
    return world.ledger.add_failed_event(ordered_letter_of())


@pytest.fixture
def away(world, monkeypatch):
    def refuse(_message):
        raise BrokerUnavailable("away")

    monkeypatch.setattr(world, "publish", refuse)


def test_an_entry_tells_how_many_events_wait_behind_it(world, client, entry):
    (other,) = world.file(1)
    world.waiting = {entry.id: 17}
    assert client.get(f"{PREFIX}/entries/{entry.id}").json()["events_behind"] == 17
    listed = client.get(f"{PREFIX}/entries").json()["entries"]
    counts = {one["id"]: one["events_behind"] for one in listed}
    assert counts == {entry.id: 17, other.id: None}


def test_pages_say_what_waits_and_nothing_where_nobody_knows(world, entry):
    person = browser(world)
    paths = ("/entries", f"/entries/{entry.id}", f"/groups/{entry.fingerprint}")
    before = [person.get(path).text for path in paths]
    world.waiting = {entry.id: 17}
    after = [person.get(path).text for path in paths]
    assert not any("ehind it" in page for page in before)
    assert all("ehind it" in page for page in after)
    assert "17 later events of order/o-1 wait behind it." in after[1]


@pytest.mark.parametrize(
    ("verb", "said"), [("skip", "go on without it"), ("archive", "wait on behind it")]
)
def test_a_question_says_what_becomes_of_the_later_events(world, entry, verb, said):
    assert said in browser(world).get(f"/entries/{entry.id}/acts/{verb}").text
    (plain,) = world.file(1)
    assert said not in browser(world).get(f"/entries/{plain.id}/acts/{verb}").text


@pytest.mark.parametrize("verb", ["skip", "resolve", "compensate"])
def test_a_verb_lets_the_later_events_go_on(world, client, entry, verb):
    body = {"verb": verb, "note": "a test"}
    assert client.post(f"{PREFIX}/entries/{entry.id}/acts", json=body).status_code == 200
    skip = world.sent[-1]
    assert names.skip_of(skip.headers).startswith(f"{verb} by ")
    assert len(world.sent) == (2 if verb == "compensate" else 1)


def test_a_page_does_alike_and_says_when_something_is_parked(world, entry):
    person = browser(world)
    path = f"/entries/{entry.id}/acts/skip"
    person.post(path, data=hidden(person.get(path).text))
    assert len(world.sent) == 1
    world.ledger.mark_answered(entry.id, 1, by="replay 1 (parked)", status=Status.RETRYING)
    assert "parked in its lane" in person.get(f"/entries/{entry.id}").text


@pytest.mark.usefixtures("away")
def test_many_are_begun_while_the_broker_is_away(world, client, entry):
    asked = {"verb": "skip", "filter": {"domain": "order"}, "limit": 9}
    told = client.post(f"{PREFIX}/acts", json=as_seen(client, f"{PREFIX}/acts", asked)).json()
    assert (told["done"], told["begun"], told["refused"]) == (0, 1, 0)
    assert world.ledger.open(entry.id).entry.status is Status.SKIPPED


def test_what_cannot_be_sent_is_refused_with_the_reason(world, client):
    lost = world.ledger.add_failed_event(
        ordered_letter_of(message=ordered_letter_of().message.__class__(
            body=b"x", content_type="application/json", content_encoding="utf-8",
            headers={"task": "nobody.here", "id": "t"}, queue="orders",
        ))
    )  # fmt: skip
    answer = client.post(f"{PREFIX}/entries/{lost.id}/acts", json={"verb": Verb.SKIP})
    assert answer.status_code == 409
    assert "could not go on" in answer.json()["detail"]
    assert world.ledger.open(lost.id).entry.status is Status.FAILED
