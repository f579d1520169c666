"""Pages of ordered handlers and of rejected commands in a real Chromium."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from angzarr.aggregates.book import Address
from angzarr.errors import StoreUnavailable
from angzarr.ordering.lane import Lane
from angzarr.sagas.log import RejectionStatus
from angzarr.settings.dashboard import Role
from contracts.ledger import letter_of
from contracts.waiting_events import early_of, step_of
from contracts.waiting_events import letter_of as lane_letter_of
from dashboard_world import SALES

EVIL = "<img src=x onerror='window.evil=1'><script>window.evil = 1</script>"


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    """Let pages be told of changes sooner than people need."""
    monkeypatch.setattr("angzarr.dashboard.pages.projections.LOOK_EVERY", timedelta(seconds=1))
    monkeypatch.setattr("angzarr.dashboard.ordered_handlers.LANES_FRESH", timedelta(0))


def lane(root):
    return SALES.lane(Address("order", root))


def test_a_person_finds_what_holds_up_an_aggregate_and_skips_it(visit, world):
    world.hold_up()
    page = visit.login()
    page.get_by_role("link", name="Projections").click()
    row = page.get_by_role("row").filter(has_text="sales")
    expect(row.locator(".badge.bad")).to_have_text("1")
    page.get_by_role("link", name="sales").click()
    expect(page.get_by_role("row").filter(has_text="order/o-1")).to_contain_text("blocked")
    page.get_by_role("link", name="order/o-1", exact=True).click()
    expect(page.get_by_role("row")).to_have_count(4)
    page.get_by_role("link", name="Skip…").click()
    page.get_by_label("Why").fill("a test order")
    page.get_by_role("button", name="Skip").click()
    expect(page.get_by_role("status")).to_have_text("Skipped.")
    assert len(world.sent) == 1, "what lets the later events go on"


def test_pages_change_while_they_are_looked_at_and_the_keyboard_stays_where_it_is(visit, world):
    page = visit.login()
    visit.go("/projections")
    link = page.get_by_role("link", name="sales")
    link.focus()
    lanes = page.locator("[data-label=Lanes]")
    expect(lanes).to_have_text("0")
    world.lanes.move(step_of(lane("o-1"), 0))
    expect(lanes).to_have_text("1")
    expect(link).to_be_focused()
    visit.go("/projections/sales")
    expect(page.get_by_text("None.")).to_be_visible()
    world.lanes.park(early_of(lane("o-2"), 3), 9)
    expect(page.get_by_text("angzarr projection skip sales order/o-2 --gap")).to_be_visible()


def test_a_database_that_goes_away_is_said_and_what_was_known_stays(visit, world):
    world.lanes.move(step_of(lane("o-1"), 0))
    page = visit.login()
    visit.go("/projections")
    world.lanes_away = StoreUnavailable("away")
    expect(page.locator("main .wrong")).to_contain_text("Nothing newer is known")
    expect(page.locator("[data-label=Lanes]")).to_have_text("1")


def test_a_viewer_reads_and_is_shown_no_verb(open_visit, world):
    world.hold_up()
    visit = open_visit()
    page = visit.login(Role.VIEWER)
    visit.go("/projections/sales")
    expect(page.get_by_role("link", name="Its entry")).to_be_visible()
    for path in ("/projections/sales", "/projections/sales/lane?domain=order&root=o-1"):
        visit.go(path)
        expect(page.get_by_role("link", name="Skip…")).to_have_count(0)


def test_a_rejected_command_leads_to_its_dead_letter(visit, world):
    case = world.reject(status=RejectionStatus.FAILED, answer="the rates are away")
    world.reject(status=RejectionStatus.COMPENSATED)
    world.ledger.add_failed_event(letter_of(case.id))
    page = visit.login()
    page.get_by_role("link", name="Sagas").click()
    expect(page.get_by_role("row")).to_have_count(3)
    page.get_by_label("Status").select_option("failed")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name=case.id[:12]).click()
    expect(page.get_by_text("the rates are away")).to_be_visible()
    page.locator("main ul a").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("orders.sync")


def test_what_others_wrote_runs_nowhere(visit, world):
    evil = Lane(EVIL.replace("/", ""), Address("order", EVIL))
    world.registered = []
    world.lanes.note(lane_letter_of(evil, 0, event_id=EVIL, event_type=EVIL))
    world.reject(saga=EVIL, command_type=EVIL, reason=EVIL, target=Address(EVIL, EVIL))
    page = visit.login()
    visit.go("/projections")
    page.locator("main table a").click()
    expect(page.get_by_role("heading", name="How far behind")).to_be_visible()
    page.locator("main table a").first.click()
    expect(page.get_by_text("What waits, in its order")).to_be_visible()
    visit.go("/sagas")
    page.locator("main table a").click()
    expect(page.get_by_text("The chain")).to_be_visible()
    assert page.evaluate("window.evil") is None
