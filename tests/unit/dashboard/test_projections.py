"""Ordered handlers over HTTP and on pages: how they do, which lanes stand, and what helps."""

from __future__ import annotations

import base64
import json
from datetime import timedelta

import pytest
from markupsafe import escape

from angzarr.aggregates.book import Address
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.ordered_handlers import LANES_FRESH
from angzarr.dashboard.shell import Streams
from angzarr.errors import ConfigurationError, LedgerUnavailable, StoreUnavailable
from angzarr.ordering.lane import Lane
from angzarr.settings.dashboard import Role
from contracts.event_store import event, fill
from contracts.waiting_events import early_of, letter_of, retrying_of, step_of
from dashboard_caller import api, browser
from dashboard_world import SALES

EVIL = "<script>alert(1)</script>\u202e"
ALL = f"{PREFIX}/projections"


@pytest.fixture
def client(world):
    return api(world, Role.VIEWER)


def lane(root, domain="order", edition=""):
    return SALES.lane(Address(domain, root, edition))


# -- the API ---------------------------------------------------------------------------------


def test_all_are_listed_as_they_were_counted(world, client):
    fill(
        world.event_stores.books, Address("order", "o-1"), event("OrderPlaced"), event("OrderPaid")
    )
    world.lanes.move(step_of(lane("o-1"), 0))
    told = client.get(ALL).json()
    (sales,) = told["projections"]
    assert (told["as_of"], told["problem"]) == (world.clock.now().isoformat(), None)
    assert (sales["name"], sales["kind"], sales["task"]) == (
        "sales", "projection", "projection.sales",
    )  # fmt: skip
    assert (sales["registered"], sales["workers"], sales["lanes"]) == (True, 0, 1)
    assert sales["checkpoint"]["events_processed"] == 1
    assert sales["lag"]["events_behind"] == 1
    assert sales["lag"]["by_type"]["OrderPaid"]["events"] == 1
    assert sales["lag"]["without_books"] == ["stock"]


def test_one_is_told_with_what_it_processed_by_type(world, client):
    world.lanes.move(step_of(lane("o-1"), 0))
    for name in ("sales", "projection.sales"):
        told = client.get(f"{ALL}/{name}").json()
        assert told["by_type"]["Counted"]["events_processed"] == 1
    assert client.get(f"{ALL}/nobody").status_code == 404


def test_lanes_that_stand_are_told_a_page_at_a_time(world, client):
    entry = world.hold_up()
    world.lanes.park(early_of(lane("o-2"), 7), 9)
    world.lanes.note(retrying_of(lane("o-3"), 0))
    path = f"{ALL}/sales/lanes"
    page = client.get(path, params={"limit": 2})
    blocked, gap = page.json()["lanes"]
    assert (blocked["state"], blocked["waiting"], blocked["root"]) == ("blocked", 3, "o-1")
    assert blocked["first"]["entry_id"] == entry.id
    assert blocked["what_helps"][1].startswith("angzarr dlq skip --event e0 --handler projection.")
    assert (gap["state"], gap["first"]["entry_id"]) == ("gap", None)
    assert gap["what_helps"] == ["angzarr projection skip sales order/o-2 --gap"]
    following = page.headers["Link"].partition("<")[2].partition(">")[0]
    rest = client.get(following).json()
    assert ([one["state"] for one in rest["lanes"]], rest["next"]) == (["retrying"], None)
    only = client.get(path, params={"blocked": "true"}).json()["lanes"]
    assert [one["root"] for one in only] == ["o-1"]


@pytest.mark.parametrize("after", ["x", "WyJhIl0", "bnVsbA", "WyJvcmRlciIsIlx1MDAwMCIsIiJd", "ü"])
def test_a_cursor_of_lanes_that_is_none_is_refused(client, after):
    answer = client.get(f"{ALL}/sales/lanes", params={"after": after})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:angzarr:problem:bad-cursor")


def test_one_lane_is_told_with_all_that_waits_and_what_its_book_has_more(world, client):
    entry = world.hold_up()
    fill(
        world.event_stores.books, Address("order", "o-1"), *(event("OrderPlaced") for _ in range(5))
    )
    path = f"{ALL}/sales/lane"
    told = client.get(path, params={"domain": "order", "root": "o-1", "limit": 2}).json()
    assert [(one["sequence"], one["why"]) for one in told["waiting"]] == [
        (0, "dead_letter"), (1, "early"),
    ]  # fmt: skip
    assert (told["more"], told["waiting"][0]["entry_id"]) == (True, entry.id)
    assert told["in_book"]["OrderPlaced"]["events"] == 5
    nothing = client.get(path, params={"domain": "order", "root": "quiet"}).json()
    assert (nothing["state"], nothing["waiting"], nothing["more"]) == ("empty", [], False)
    assert client.get(path, params={"domain": "no domain!", "root": "x"}).status_code == 422
    assert client.get(path, params={"domain": "order"}).status_code == 422


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (StoreUnavailable("secret"), 503, "the database of ordered handlers is away"),
        (ConfigurationError("set ordering.url"), 409, "set ordering.url"),
    ],
)
def test_a_database_that_cannot_be_asked_is_told(world, client, error, status, says):
    client.get(ALL)
    world.lanes_away = error
    for path in (f"{ALL}/sales", f"{ALL}/sales/lanes", f"{ALL}/sales/lane?domain=order&root=x"):
        answer = client.get(path)
        assert answer.status_code == status
        assert answer.json()["detail"].startswith(says)
    world.clock.sleep(LANES_FRESH)
    old = client.get(ALL).json()
    assert old["projections"], "what was known before"
    assert old["problem"].startswith(says)


def test_nothing_is_listed_where_nothing_was_ever_counted(world, client):
    world.lanes_away = StoreUnavailable("secret")
    assert client.get(ALL).status_code == 503
    assert "secret" not in client.get(ALL).text


def test_a_ledger_that_is_away_leaves_the_lanes_told(world, client, monkeypatch):
    world.hold_up()
    _away(world, monkeypatch)
    (told,) = client.get(f"{ALL}/sales/lanes").json()["lanes"]
    assert (told["state"], told["first"]["entry_id"]) == ("blocked", None)


def _away(world, monkeypatch):
    def away(_letters):
        raise LedgerUnavailable("secret")

    monkeypatch.setattr(world.ledger, "find_by_letters", away)


# -- the pages -------------------------------------------------------------------------------


def test_the_list_says_what_is_known_and_what_is_not(world, person):
    world.hold_up()
    world.lanes.park(early_of(Lane("shop.ship", Address("order", "o-1")), 3), 9)
    world.fleet_away = StoreUnavailable("away")
    page = person.get("/projections").text
    assert 'href="/projections/sales"' in page
    assert page.count("known by its lanes only") == 1
    assert 'class="number">?' in page
    assert '<span class="badge bad">1</span>' in page
    assert 'data-live="/live/projections"' in page


def test_a_page_without_any_says_so(world, person):
    world.registered = []
    assert "registers no projection" in person.get("/projections").text


def test_a_lane_leads_to_the_entry_that_holds_it_up(world, person):
    entry = world.hold_up()
    page = person.get("/projections/sales").text
    for where in (f"/entries/{entry.id}", f"/entries/{entry.id}/replay", "/acts/skip"):
        assert where in page
    shown = person.get("/projections/sales/lane?domain=order&root=o-1").text
    assert f'href="/entries/{entry.id}/acts/skip"' in shown
    assert shown.count('<td data-label="Why">') == 3
    viewer = browser(world, Role.VIEWER).get("/projections/sales").text
    assert f'href="/entries/{entry.id}"' in viewer
    assert "Skip…" not in viewer


def test_a_letter_that_nobody_filed_names_the_commands(world, person, monkeypatch):
    world.lanes.note(letter_of(lane("o-1"), 0))
    path = "/projections/sales/lane?domain=order&root=o-1"
    for page in (person.get(path).text, person.get("/projections/sales").text):
        assert "No analysis worker has filed the letter yet." in page
        assert "<code>angzarr dlq skip --event e0 --handler projection.sales</code>" in page
    _away(world, monkeypatch)
    assert "The ledger is away" in person.get("/projections/sales").text
    assert "The ledger is away" in person.get(path).text


def test_a_gap_names_the_command_that_gives_it_up(world, person):
    world.lanes.park(early_of(lane("o-1"), 3), 9)
    for path in ("/projections/sales", "/projections/sales/lane?domain=order&root=o-1"):
        page = person.get(path).text
        assert "<code>angzarr projection skip sales order/o-1 --gap</code>" in page
        assert "gap" in page


def test_pages_of_lanes_follow_each_other(world, person):
    for number in range(51):
        world.lanes.park(early_of(lane(f"o-{number:02}"), 3), 9)
    first = person.get("/projections/sales").text
    assert first.count('<td data-label="Aggregate">') == 50
    query = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    second = person.get(f"/projections/sales{query}").text
    assert second.count('<td data-label="Aggregate">') == 1
    assert "order/o-50" in second
    assert f'data-live="/live/projections/sales{escape(query)}"' in second


def test_what_others_wrote_is_escaped(world, person):
    world.registered = []
    evil = Lane(f"shop.{EVIL[:-10]}", Address("order", "<b>root</b>", "<i>what-if</i>"))
    world.lanes.note(letter_of(evil, 0, event_id=EVIL, event_type=EVIL))
    world.lanes.move(step_of(Lane(evil.handler, Address("order", "x")), 0, event_type=EVIL))
    entries = "/projections/" + evil.handler.replace("<", "%3C").replace(">", "%3E")
    where = f"{entries}/lane?domain=order&root=<b>root</b>&edition=<i>what-if</i>"
    for path in ("/projections", entries, where):
        page = person.get(path)
        assert page.status_code == 200, path
        for part in ("<script>alert", "<b>root", "<i>what", "\u202e"):
            assert part not in page.text
    assert "&lt;b&gt;root&lt;/b&gt;" in person.get(entries).text


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (StoreUnavailable("secret"), "the database of ordered handlers is away"),
        (ConfigurationError("set ordering.url"), "set ordering.url"),
    ],
)
def test_a_page_says_that_its_database_is_away(world, person, error, says):
    world.lanes_away = error
    page = person.get("/projections")
    assert (page.status_code, says in page.text, "secret" in page.text) == (200, True, False)
    assert says in person.get("/projections/sales").text
    world.lanes_away = None
    world.clock.sleep(timedelta(minutes=1))
    person.get("/projections")
    world.lanes_away = error
    page = person.get("/projections/sales")
    assert (page.status_code, says in page.text) == (200, True)
    assert "What it processed" not in page.text
    assert says in person.get("/projections/sales/lane?domain=order&root=x").text


def test_what_is_asked_wrongly_is_no_fault(person):
    deep = base64.urlsafe_b64encode(b"[" * 200).decode().rstrip("=")
    for cursor in ("x", deep):
        assert person.get(f"/projections/sales?after={cursor}").status_code == 400
    assert person.get("/projections/sales/lane?domain=order").status_code == 422
    assert person.get("/projections/nobody").status_code == 404
    assert person.get("/live/projections/nobody").status_code == 404


# -- live ------------------------------------------------------------------------------------


@pytest.fixture
def change(world, monkeypatch):
    """Let the world change at the first rest, and the stream end at the second one."""
    changes, rested = [], []

    async def rest(streams, pause):
        rested.append(pause)
        world.clock.sleep(pause)
        if changes:
            changes.pop()()
        else:
            streams.ending = True

    monkeypatch.setattr(Streams, "rest", rest)
    return changes.append


def parts(answer):
    """Return what a stream told, as pages show it."""
    told = [one for one in answer.text.split("\n\n") if one.startswith("event: progress")]
    return [json.loads(one.partition("data: ")[2]) for one in told]


def test_the_list_is_told_as_it_changes(world, person, change):
    change(lambda: world.lanes.move(step_of(lane("o-1"), 0)))
    first, second, *_ = parts(person.get("/live/projections"))
    assert 'data-label="Lanes" class="number">0<' in first
    assert 'data-label="Lanes" class="number">1<' in second


def test_one_is_told_as_it_changes_to_whoever_may_act(world, person, change):
    change(world.hold_up)
    first, second, *_ = parts(person.get("/live/projections/sales"))
    assert "blocked</span>" not in first
    assert "blocked</span>" in second
    assert "Skip…" in second


def test_one_that_is_gone_ends_its_stream(world, person, change):
    world.registered, passing = [], Lane("shop.ship", Address("order", "o-1"))
    world.lanes.move(step_of(passing, 0))
    change(lambda: world.lanes.reset("shop.ship"))
    assert 'event: over\ndata: "not-found"' in person.get("/live/projections/shop.ship").text
