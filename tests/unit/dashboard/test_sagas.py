"""Rejected commands of sagas over HTTP and on pages: what became of them, and their letters."""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.aggregates.book import Address, Write
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.paging import sealed
from angzarr.dead_letters.masking import compiled
from angzarr.dead_letters.redaction import Redaction
from angzarr.errors import ConfigurationError, LedgerUnavailable, StoreUnavailable
from angzarr.events.event import Event
from angzarr.sagas.log import RejectionStatus
from angzarr.sagas.rejection import told_id
from angzarr.sagas.rejection_answers import CompensationStep
from angzarr.settings.dashboard import Role
from contracts.books import deciding
from contracts.ledger import letter_of
from dashboard_caller import api, browser

EVIL = "<script>alert(1)</script>\u202e"
ALL = f"{PREFIX}/sagas"


@pytest.fixture
def client(world):
    return api(world, Role.VIEWER)


@pytest.fixture
def person(world):
    return browser(world, Role.VIEWER)


def keep(world, number=0, **fields):
    return world.reject(later=timedelta(minutes=number), **fields)


def failed(world, **fields):
    return keep(world, **{"status": RejectionStatus.FAILED, "answer": "it broke"} | fields)


def file(world, event_id):
    return world.ledger.add_failed_event(letter_of(event_id))


# -- the API ---------------------------------------------------------------------------------


def test_cases_are_listed_the_newest_first_a_page_at_a_time(world, client):
    cases = [keep(world, number) for number in range(3)]
    page = client.get(ALL, params={"limit": 2})
    assert [one["id"] for one in page.json()["cases"]] == [cases[2].id, cases[1].id]
    following = page.headers["Link"].partition("<")[2].partition(">")[0]
    rest = client.get(following).json()
    assert ([one["id"] for one in rest["cases"]], rest["next"]) == ([cases[0].id], None)


def test_cases_are_found_by_a_filter(world, client):
    keep(world)
    mine = failed(world, saga="billing", correlation_id="f" * 200)
    other = {"source": Address("stock", "s-1")}
    stock = keep(world, 1, **other)
    for asked, found in (
        ({"status": "failed"}, mine), ({"saga": "billing"}, mine), ({"domain": "stock"}, stock),
        ({"correlation_id": "f" * 300}, mine),
    ):  # fmt: skip
        told = client.get(ALL, params=asked).json()["cases"]
        assert [one["id"] for one in told] == [found.id], asked
    assert client.get(ALL, params={"status": "lost"}).status_code == 422


@pytest.mark.parametrize(
    "after",
    [
        "x", sealed("2026-01-01T00:00:00,x"), sealed("2026-01-01T00:00:00Z,"),
        sealed("0001-01-01T00:00:00+23:59,x"),
    ],
)  # fmt: skip
def test_a_cursor_of_cases_that_is_none_is_refused(client, after):
    answer = client.get(ALL, params={"after": after})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:angzarr:problem:bad-cursor")


def test_a_case_is_told_with_its_chain_and_its_letters(world, client):
    case = failed(world, asked_again=2, asked_by="ada", steps=(CompensationStep.DEAD_LETTER,))
    first, last = file(world, case.id), file(world, told_id(case.id, 2))
    file(world, "another event")
    event = Event(id="undone", type="FundsReleased", data={"pin": "4711"})
    decision = deciding(event, cause=case.id)
    world.event_stores.books.write(Write(address=case.source, decision=decision))
    told = client.get(f"{ALL}/{case.id}").json()
    assert (told["status"], told["answer"], told["steps"]) == (
        "failed",
        "it broke",
        ["dead_letter"],
    )
    assert told["command"]["type"] == "SeatPlayer"
    assert [one["id"] for one in told["compensation"]] == ["undone"]
    assert told["entries"] == [first.id, last.id]
    assert "data" not in told["command"]
    whole = client.get(f"{ALL}/{case.id}?data=true").json()
    assert whole["command"]["data"] == {"pin": "4711"}


def test_what_is_hidden_in_letters_is_hidden(world):
    world.redaction = Redaction.of(["event.pin"], [compiled("full")])
    case, client, person = failed(world), api(world), browser(world)
    told = client.get(f"{ALL}/{case.id}?data=true")
    assert "4711" not in told.text
    for shown in (told.text, client.get(ALL).text, person.get("/sagas").text):
        assert "the table is" in shown
        assert "the table is full" not in shown
    assert "the table is full" not in person.get(f"/sagas/{case.id}").text


def test_an_id_must_be_whole(world, client):
    case = keep(world)
    assert client.get(f"{ALL}/{case.id[:-1]}").status_code == 404
    longer = keep(world, id=f"{case.id}-more")
    assert client.get(f"{ALL}/{case.id}").json()["id"] == case.id
    assert client.get(f"{ALL}/{longer.id}").json()["id"] == longer.id


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (StoreUnavailable("secret"), 503, "the database of event books is away"),
        (ConfigurationError("set books"), 409, "set books"),
    ],
)
def test_a_database_that_cannot_be_asked_is_told(world, client, person, error, status, says):
    world.books_away = error
    for path in (ALL, f"{ALL}/x"):
        answer = client.get(path)
        assert answer.status_code == status
        assert answer.json()["detail"].startswith(says)
    for path in ("/sagas", "/sagas/x"):
        page = person.get(path)
        assert page.status_code < 500 or page.status_code == 503
        assert says in page.text
        assert "secret" not in page.text


def test_a_ledger_that_is_away_leaves_the_case_told(world, client, person, monkeypatch):
    def away(*_asked, **_more):
        raise LedgerUnavailable("secret")

    case = failed(world)
    monkeypatch.setattr(world.ledger, "get_failed_events", away)
    assert client.get(f"{ALL}/{case.id}").json()["entries"] is None
    assert "The ledger is away" in person.get(f"/sagas/{case.id}").text


# -- the pages -------------------------------------------------------------------------------


def test_a_case_leads_to_its_letters_and_says_how_it_is_asked_anew(world, person):
    case = failed(world, asked_again=1, asked_by="ada", note="mended")
    entry = file(world, case.id)
    listed = person.get("/sagas?status=failed").text
    assert f'href="/sagas/{case.id}"' in listed
    page = person.get(f"/sagas/{case.id}").text
    for part in (
        "SeatPlayer", "table/t-1", "it broke", "once, last by ada", "mended",
        f'href="/entries/{entry.id}"', 'href="/entries?correlation_id=flow"',
        f"angzarr saga compensate {case.id}",
    ):  # fmt: skip
        assert part in page, part


def test_a_case_that_is_settled_is_not_asked_anew(world, person):
    case = keep(world, status=RejectionStatus.COMPENSATED)
    page = person.get(f"/sagas/{case.id}").text
    assert "saga compensate" not in page
    assert "None of the telling" in page


def test_nothing_found_is_said_and_pages_follow_each_other(world, person):
    assert "No rejected command fits." in person.get("/sagas").text
    for number in range(51):
        keep(world, number)
    first = person.get("/sagas?domain=player").text
    assert first.count('<td data-label="Case">') == 50
    query = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert person.get(f"/sagas{query}").text.count('<td data-label="Case">') == 1
    assert person.get("/sagas?after=x").status_code == 400


def test_what_others_wrote_is_escaped(world, person):
    evil = {"saga": EVIL, "command_type": EVIL, "answer": EVIL, "note": EVIL, "asked_by": EVIL}
    case = failed(world, id="<b>id", reason=EVIL, asked_again=1, source=Address(EVIL, EVIL), **evil)
    for path in ("/sagas", "/sagas/%3Cb%3Eid"):
        page = person.get(path)
        assert page.status_code == 200
        for part in ("<script>alert", "<b>id", "\u202e"):
            assert part not in page.text
    assert case.id == "<b>id"
