"""The pages in a real Chromium: what a person does, by mouse and by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from angzarr.analysis.ledger.emergency_stop import Scope
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import EntryFilter
from angzarr.analysis.replay.job import JobStatus
from angzarr.events.event import Event
from angzarr.sagas.log import RejectionStatus as SagaStatus
from angzarr.settings.dashboard import Role
from contracts.alerts import sighting_of
from contracts.fact_reader import an_error
from contracts.ledger import letter_of

EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil=1'>\u202egpj.exe"


@pytest.fixture
def group(world):
    (entry, *_) = world.file(8)
    return entry.fingerprint


def test_a_token_is_traded_for_a_session_and_given_back(visit, group):
    visit.go("/groups")
    visit.page.get_by_label("Token").fill("guess")
    visit.page.get_by_role("button", name="Log in").click()
    expect(visit.page.get_by_role("alert")).to_contain_text("not known")
    visit.complaints.clear()  # Chromium tells of the 401
    page = visit.login()
    expect(page.get_by_text("operator@test")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    visit.go("/groups")
    expect(page.get_by_role("heading")).to_have_text("Log in")


def test_a_person_replays_a_group_and_sees_each_stage(visit, world, group):
    page = visit.login()
    page.get_by_role("link", name="TimeoutError").click()
    page.get_by_role("link", name="Replay…").click()
    expect(page.locator("#dry-run")).to_contain_text("8 entries")
    page.get_by_label("Why").fill("the CRM is back")
    page.get_by_role("button", name="Replay 8 entries").click()
    expect(page.get_by_role("status")).to_contain_text("0 of 8 done")
    (job,) = world.jobs.all.values()
    assert job.note == "the CRM is back"
    world.jobs.put(job, sent=1, handled=1, stage=1)
    expect(page.get_by_role("status")).to_contain_text("1 of 8 done")
    expect(page.locator("li[aria-current]")).to_have_text("5")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#progress .badge")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#progress .badge")).to_have_text("running")
    world.jobs.put(world.jobs.all[job.id], status=JobStatus.DONE, sent=8, handled=8, stage=3)
    expect(page.locator("#progress .badge")).to_have_text("done")
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)


def test_without_scripts_the_progress_is_shown_as_well(open_visit, world, group):
    visit = open_visit(java_script_enabled=False)
    page = visit.login()
    visit.go(f"/groups/{group}/replay")
    page.get_by_role("button", name="Replay 8 entries").click()
    (job,) = world.jobs.all.values()
    world.jobs.put(job, handled=4)
    expect(page.locator("#progress")).to_contain_text("4 of 8 done")


def test_an_entry_is_shown_whole_and_skipped_after_a_question(visit, world):
    (entry,) = world.file(1)
    page = visit.login()
    visit.go(f"/entries/{entry.id}")
    for text in ('"total": 3', "/srv/app/orders.py", "timed out after 3 s", "History"):
        expect(page.get_by_text(text).first).to_be_visible()
    page.get_by_role("link", name="Skip…").click()
    page.get_by_label("Why").fill("a test order")
    page.get_by_role("button", name="Skip").click()
    expect(page.get_by_role("status")).to_have_text("Skipped.")
    expect(page.get_by_text("a test order")).to_be_visible()
    assert world.ledger.open(entry.id).entry.status is Status.SKIPPED


def test_a_group_is_skipped_after_a_question_and_asked_about_again_if_it_grew(visit, world, group):
    page = visit.login()
    page.get_by_role("link", name="TimeoutError").click()
    page.get_by_role("link", name="Skip…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "Skip 8 entries of TimeoutError in orders.sync?"
    )
    world.ledger.add_failed_event(letter_of("late"))
    page.get_by_label("Why").fill("tests")
    page.get_by_role("button", name="Skip 8 entries").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was done")
    visit.complaints.clear()  # Chromium tells of the 412
    expect(page.get_by_label("Why")).to_have_value("tests")
    page.get_by_role("button", name="Skip 9 entries").click()
    expect(page.locator("#results")).to_have_text(re.compile(r"Done\s*9\s*Not done\s*0"))
    assert world.ledger.get_failure_stats().by_status == {"skipped": 9}


def test_a_job_is_ended_after_a_question_that_shows_it(visit, world, group):
    world.jobs.begin(all_of(group), plan(), by="ada", job_id="j1")
    page = visit.login()
    visit.go("/jobs/j1")
    page.get_by_role("link", name="Cancel…").click()
    expect(page.get_by_text("it cannot be resumed")).to_be_visible()
    expect(page.get_by_role("link", name=group)).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#progress .badge")).to_have_text("cancelled")


def test_the_brake_is_pulled_seen_everywhere_and_released(visit, world, group):
    page = visit.login()
    page.get_by_role("link", name="Brake").click()
    page.get_by_label("Why").fill("the CRM is ill")
    page.get_by_role("button", name="Pull the brake").click()
    page.get_by_role("link", name="Groups", exact=True).click()
    expect(page.locator("#brake")).to_contain_text("by operator@test: the CRM is ill")
    page.get_by_role("link", name="Release…").click()
    page.get_by_role("button", name="Release").click()
    expect(page.locator("#brake")).to_have_count(0)
    assert world.brake.state().scope is Scope.NOTHING


def test_entries_are_taken_along_as_a_file(visit, group):
    page = visit.login()
    visit.go("/entries?domain=order")
    with page.expect_download() as taken:
        page.get_by_role("link", name="CSV").click()
    assert taken.value.suggested_filename == "angzarr-entries.csv"
    assert len(taken.value.path().read_text().splitlines()) == 9


@pytest.fixture
def careful(world):
    """Let edits wait for a second person; named before whoever opens the site."""
    world.approves_edits = True


def test_an_edit_is_proposed_by_one_person_and_approved_by_another(careful, open_visit, world):
    (entry,) = world.file(1)
    visit = open_visit(java_script_enabled=False)
    page = visit.login()
    visit.go(f"/entries/{entry.id}")
    page.get_by_role("link", name="Edit and replay…").click()
    data = page.get_by_label("Data, as JSON")
    expect(data).to_have_value('{\n  "total": 3\n}')
    data.fill("{")
    page.get_by_role("button", name="Show what changes").click()
    expect(page.get_by_role("alert")).to_contain_text("not JSON")
    visit.complaints.clear()  # Chromium tells of the 422
    expect(data).to_have_value("{")
    data.fill('{\n  "total": 4\n}')
    page.get_by_label("Why").fill("a typo")
    page.get_by_role("button", name="Show what changes").click()
    expect(page.locator("#changes tbody")).to_contain_text("/total")
    page.get_by_role("button", name="Change it").click()
    data.fill('{\n  "total": 5\n}')
    page.get_by_role("button", name="Show what changes").click()
    expect(page.locator("#changes tbody td").last).to_have_text("5")
    assert not world.jobs.all
    page.get_by_role("button", name="Propose it").click()
    expect(page.locator("#progress .badge")).to_have_text("proposed")
    expect(page.get_by_role("link", name="Approve…")).to_have_count(0)
    (job,) = world.jobs.all.values()
    second = open_visit()
    approver = second.login(Role.APPROVER)
    second.go(f"/jobs/{job.id}")
    expect(approver.locator("#changes tbody td").last).to_have_text("5")
    expect(approver.locator("code.long")).to_have_text(job.edit)
    approver.get_by_role("link", name="Approve…").click()
    expect(approver.locator("#changes tbody td").last).to_have_text("5")
    approver.get_by_role("button", name="Approve").click()
    expect(approver.locator("#progress .badge")).to_have_text("running")
    assert world.jobs.all[job.id].approved_by == "approver@test"


def test_a_hostile_letter_runs_nothing(visit, world):
    event = Event(id="evil", type=EVIL, data={EVIL: EVIL}, domain="order", tenant_id=EVIL)
    letter = letter_of("evil", event=event, error_type=EVIL, error_message=EVIL, error_stack=EVIL)
    (entry,) = world.ledger.add_failed_events([letter])
    page = visit.login()
    for path in ("/groups", f"/groups/{entry.fingerprint}", "/entries", f"/entries/{entry.id}"):
        visit.go(path)
        assert page.evaluate("window.evil") is None
        assert page.locator("main img, main script").count() == 0


def test_a_breaker_is_isolated_and_reset(visit, world):
    page = visit.login()
    page.get_by_role("link", name="Breakers").click()
    page.get_by_role("link", name="Isolate crm").click()
    page.get_by_role("button", name="Isolate").click()
    expect(page.get_by_role("status")).to_contain_text("held open")
    assert world.breakers.states()["crm"].phase == "isolated"
    page.get_by_role("link", name="Reset crm").click()
    page.get_by_role("button", name="Reset").click()
    assert world.breakers.states()["crm"].phase == "closed"


def test_the_keyboard_is_enough(visit, world, group):
    page = visit.login()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    until_focused(page, page.get_by_role("link", name="TimeoutError"))
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups/*")
    until_focused(page, page.get_by_label("Owner"))
    page.keyboard.type("ada")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("The group was changed.")
    assert world.groups.open_group(group).owner == "ada"


def until_focused(page, wanted):
    for _ in range(60):
        page.keyboard.press("Tab")
        if wanted.evaluate("one => one === document.activeElement"):
            return
    pytest.fail("the keyboard does not reach it")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_telephone_in_the_dark_too(open_visit, world, group, scheme):
    visit = open_visit(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page = visit.login()
    entry = world.ledger.get_failed_events(status=None).entries[0]
    job = world.jobs.begin(selection(entry), plan(), by="ada", job_id="j1")
    world.jobs.put(job, status=JobStatus.DONE)
    world.jobs.begin(all_of(group), plan(), by="ada", job_id="j2")
    world.brake.put(Scope.ALL, by="ada", why="the CRM is ill" * 9)
    world.alerts.raise_([sighting_of("f1", "ops"), sighting_of("f2", resolved=True)])
    world.hold_up("o" * 200)
    case = world.reject(status=SagaStatus.FAILED, answer="it broke", correlation_id="f" * 200)
    world.fail(entry)
    odd = {"tenant_id": "t" * 200, "data": {"error_message": "m" * 900}}
    world.facts.add(an_error("f" * 200, event_id="e" * 200, **odd))
    paths = ["/projections", "/projections/sales", f"/sagas/{case.id}", "/sagas",
             "/facts", "/facts/run:1", f"/facts/{'f' * 200}",
             f"/projections/sales/lane?domain=order&root={'o' * 200}",
             "/groups", f"/groups/{group}", f"/groups/{group}/replay", "/entries?domain=order",
             f"/entries/{entry.id}", f"/entries/{entry.id}/explanation", "/jobs",
             f"/entries/{entry.id}/edit", f"/entries/{entry.id}/replay",
             "/jobs/j1", "/breakers", f"/groups/{group}/acts/compensate", "/jobs/j2/cancel",
             "/brake", "/brake/release", "/alerts"]  # fmt: skip
    for path in paths:
        visit.go(path)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, path
        assert page.evaluate(LOW_CONTRAST) == [], path


def selection(entry):
    from angzarr.analysis.replay.job import Selection

    return Selection(entry_ids=(entry.id,))


def all_of(group):
    from angzarr.analysis.replay.job import Selection

    return Selection(wanted=EntryFilter(fingerprint=group))


def plan():
    from angzarr.analysis.replay.job import JobPlan

    return JobPlan()


#: Texts whose colour is too close to what is behind them (WCAG 2.2: 4.5 to 1).
LOW_CONTRAST = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("body *")]
    .filter((one) => [...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .filter((one) => {
      const [a, b] = [light(getComputedStyle(one).color), light(behind(one))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
    })
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.trim().slice(0, 40)}`);
}"""


def test_a_viewer_sees_no_button_that_acts(open_visit, world, group):
    page = open_visit().login(Role.VIEWER)
    page.get_by_role("link", name="TimeoutError").click()
    expect(page.get_by_role("link", name="Replay…")).to_have_count(0)
    expect(page.get_by_role("button", name="Save")).to_have_count(0)


def test_every_field_has_a_label(visit, world, group):
    page = visit.login()
    entry = world.ledger.get_failed_events(status=None).entries[0]
    paths = ("/groups", f"/groups/{group}", f"/groups/{group}/replay", "/entries", "/brake",
             f"/groups/{group}/acts/skip", "/brake/release", "/sagas", "/facts",
             f"/entries/{entry.id}/edit", f"/entries/{entry.id}/replay")  # fmt: skip
    for path in paths:
        visit.go(path)
        assert page.evaluate(UNLABELLED) == 0


UNLABELLED = """[...document.querySelectorAll("main input, main select, main textarea")]
  .filter((field) => field.type !== "hidden" && !field.labels.length).length"""
