"""What the pages show and do, without a browser: hostile letters, forms, streams."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta

import pytest

from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.group import Amendment, GroupStatus
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.replay import job_view as job_dry_run
from angzarr.analysis.replay.bulk_actions import act_on_all
from angzarr.analysis.replay.job import JobStatus
from angzarr.dashboard.pages.route import LONGEST_SHOWN
from angzarr.dashboard.server import _MOST_CONNECTIONS
from angzarr.dashboard.shell import MOST_EACH, MOST_OPEN, Streams
from angzarr.dead_letters.depth import QueueDepth
from angzarr.errors import ConfigurationError, LedgerUnavailable
from angzarr.events.event import Event
from angzarr.settings.dashboard import Role
from contracts.ledger import letter_of
from dashboard_caller import browser, hidden
from dashboard_world import World
from hand_clock import START

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>'\"><b>&amp;{{7*7}}"
    "\x1b[2J\x1b]0;x\x07\u202egnp.exe\u2066\x00\udcff"
)
SHOWN = ("<script", "<img", "<b>", "\x1b", "\x07", "\u202e", "\u2066", "\x00", "\udcff", ">49<")


@pytest.fixture
def hostile(world):
    """An entry in which everything that a sender can say is hostile."""
    names = ("handler", "explanation", "error_type", "error_code", "error_message",
             "error_stack", "worker", "version")  # fmt: skip
    event = Event(
        id=f"e{HOSTILE}", type=HOSTILE, data={HOSTILE: [HOSTILE]}, domain="order",
        tenant_id=HOSTILE, correlation_id=HOSTILE,
    )  # fmt: skip
    letter = letter_of(
        "e1", event=event, domain="order", metadata={HOSTILE: HOSTILE},
        **dict.fromkeys(names, HOSTILE),
    )  # fmt: skip
    (entry,) = world.ledger.add_failed_events([letter])
    return entry


def test_nothing_in_a_letter_is_more_than_text_on_any_page(world, person, hostile):
    fingerprint = hostile.fingerprint
    said = Amendment(owner=HOSTILE, note=HOSTILE)
    world.groups.amend(fingerprint, said, revision=1, by=HOSTILE)
    job = world.jobs.put(
        world.jobs.begin(selection_of(hostile), plan(), by=HOSTILE, note=HOSTILE, job_id="j1"),
        said=HOSTILE,
    )
    paths = [
        "/groups", f"/groups/{fingerprint}", f"/groups/{fingerprint}/replay",
        f"/groups/{fingerprint}/acts/skip", "/entries", f"/entries/{hostile.id}",
        f"/entries/{hostile.id}/explanation",
        f"/entries/{hostile.id}/acts/skip", f"/entries/{hostile.id}/replay",
        "/jobs", f"/jobs/{job.id}",
    ]  # fmt: skip
    for path in paths:
        answer = person.get(path)
        assert answer.status_code == 200, path
        bare = re.sub(r'<script src="/static/live.js" defer></script>', "", answer.text)
        found = [one for one in SHOWN if one in bare]
        assert found == [], path
    assert "alert(1)" in html.unescape(person.get(f"/entries/{hostile.id}").text)


def selection_of(entry):
    from angzarr.analysis.replay.job import Selection

    return Selection(entry_ids=(entry.id,))


def plan():
    from angzarr.analysis.replay.job import JobPlan

    return JobPlan()


def test_a_filter_that_came_with_the_address_is_only_text(person):
    answer = person.get("/entries", params={"handler_name": '"><script>alert(1)</script>'})
    assert answer.status_code == 200
    assert "<script>" not in answer.text


def test_a_huge_letter_is_cut_on_its_page(world, person):
    event = Event(id="big", type="Big", data={"x": "a" * 5_000_000}, domain="order")
    (entry,) = world.ledger.add_failed_events([letter_of("big", event=event)])
    answer = person.get(f"/entries/{entry.id}")
    assert answer.status_code == 200
    assert len(answer.text) < 5 * LONGEST_SHOWN
    assert "characters more: the API gives them" in answer.text


def test_an_unreadable_letter_has_a_page(world, person):
    raw = Unreadable(
        domain="order", raw=b"\xff\x00<script>", content_type="x", problem="no JSON",
        received_at=START,
    )  # fmt: skip
    (entry,) = world.ledger.add_failed_events([raw])
    answer = person.get(f"/entries/{entry.id}")
    assert answer.status_code == 200
    assert "could not be read" in answer.text
    assert "<script>" not in answer.text


# -- groups ----------------------------------------------------------------------------------


def test_groups_are_counted_and_older_ones_are_a_link_away(world, person, monkeypatch):
    monkeypatch.setattr("angzarr.dashboard.groups._ON_A_PAGE", 2)
    letters = [letter_of(f"g{n}", error_type=f"Error{n}", error_stack="") for n in range(3)]
    world.ledger.add_failed_events(letters)
    first = person.get("/groups").text
    assert first.count('data-label="Error"') == 2
    query = html.unescape(re.search(r'rel="next" href="(\?[^"]+)"', first).group(1))
    assert person.get(f"/groups{query}").text.count('data-label="Error"') == 1


def test_the_page_of_groups_says_what_nobody_has_read_yet(world, person):
    assert "has read yet" not in person.get("/groups").text
    at = world.clock.now() - timedelta(hours=2)
    world.unread = {
        "order": QueueDepth(3, 5, at),
        "mail": QueueDepth(0, 0),
        "<b>": QueueDepth(1, 1),
    }
    page = " ".join(person.get("/groups").text.split())
    assert "has read yet: &lt;b&gt; 1, order 3 (the oldest came <time" in page
    assert "mail" not in page


def test_a_group_is_amended_by_its_form_once(world, person, group):
    form = {"revision": "1", "status": "acknowledged", "owner": "ada", "note": "n", "mute": "1 day"}
    path = f"/groups/{group}"
    answer = person.submit(path, path, **form)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{path}?done=amended")
    told = world.groups.open_group(group)
    assert (told.status, told.owner) == (GroupStatus.ACKNOWLEDGED, "ada")
    assert told.muted_until is not None
    assert person.submit(path, path, **form).status_code == 412


@pytest.mark.parametrize(
    "form",
    [
        {"status": "none"}, {"status": "new", "mute": "9 days"}, {"revision": "x"},
        {"status": "new", "note": "x" * 4001}, {"status": "new", "owner": "x" * 201},
    ],
)  # fmt: skip
def test_a_form_that_its_page_did_not_make_is_refused(world, person, group, form):
    path = f"/groups/{group}"
    assert person.submit(path, path, **{"revision": "1", **form}).status_code == 422
    assert world.groups.open_group(group).revision == 1


def test_a_verb_for_a_group_asks_first(world, person, group):
    path = f"/groups/{group}/acts/skip"
    assert "Skip 3 entries of TimeoutError" in person.get(path).text
    assert world.ledger.get_failure_stats().by_status == {"failed": 3}
    answer = person.submit(path, path, note="tests")
    assert "<dt>Done</dt><dd>3</dd>" in answer.text
    assert world.ledger.get_failure_stats().by_status == {"skipped": 3}


def test_a_replay_of_a_group_shows_its_count_and_begins_once(world, person, group):
    path = f"/groups/{group}/replay"
    page = person.get(path).text
    assert "<strong>3</strong> entries" in page
    form = {
        "stages": "1, 2", "rate": "", "in_flight": "5", "halt_percent": "50",
        "note": "fixed", "form_key": re.search(r'form_key" value="(\w+)"', page).group(1),
    }  # fmt: skip
    form = hidden(page) | form
    answers = [person.post(path, data=form) for _ in range(2)]
    assert len({one.headers["location"] for one in answers}) == 1
    (job,) = world.jobs.all.values()
    assert (job.plan.stages, job.plan.rate, job.plan.halt_share) == ((1, 2), None, 0.5)
    assert job.created_by == "operator@test"


def test_a_form_sent_twice_is_one_job_however_far_that_is(world, person, group):
    path = f"/groups/{group}/replay"
    form = hidden(person.get(path).text) | {"in_flight": "5", "halt_percent": "20", "stages": "1"}
    first = person.post(path, data=form)
    entries = world.ledger.get_failed_events(status=None).entries
    act_on_all(world.skips, Verb.RESOLVE, entries, by="the job")
    assert person.post(path, data=form).headers["location"] == first.headers["location"]


def test_a_replay_of_others_than_were_counted_is_asked_for_again(world, person, group):
    path = f"/groups/{group}/replay"
    form = hidden(person.get(path).text) | {"in_flight": "5", "halt_percent": "20", "note": "typed"}
    entry = world.ledger.get_failed_events(status=None).entries[0]
    act_on_all(world.skips, Verb.RESOLVE, [entry], by="somebody")
    answer = person.post(path, data=form)
    assert answer.status_code == 412
    assert "<strong>2</strong> entries" in answer.text
    assert "typed</textarea>" in answer.text
    assert world.jobs.all == {}
    again = person.post(path, data=form | hidden(answer.text))
    assert again.status_code == 303
    assert [job.total for job in world.jobs.all.values()] == [2]


def test_a_replay_of_as_many_others_is_asked_for_again(world, person, group):
    path = f"/groups/{group}/replay"
    form = hidden(person.get(path).text) | {"in_flight": "5", "halt_percent": "20"}
    entry = world.ledger.get_failed_events(status=None).entries[0]
    act_on_all(world.skips, Verb.RESOLVE, [entry], by="somebody")
    late = world.ledger.add_failed_event(letter_of("late"))  # failed before, filed after
    assert late.fingerprint == group
    answer = person.post(path, data=form)
    assert (answer.status_code, "<strong>3</strong> entries" in answer.text) == (412, True)
    assert world.jobs.all == {}


def test_a_replay_of_more_than_are_counted_says_which_are_compared(
    world, person, group, monkeypatch
):
    path = f"/groups/{group}/replay"
    assert "are compared so" not in person.get(path).text
    monkeypatch.setattr(job_dry_run, "MOST_COUNTED", 2)
    page = person.get(path).text
    assert "Only the 2 that failed longest ago are compared so" in page
    form = hidden(page) | {"in_flight": "5", "halt_percent": "20"}
    oldest = world.ledger.get_failed_events(status=None).entries[-1]
    act_on_all(world.skips, Verb.RESOLVE, [oldest], by="somebody")
    asked_again = person.post(path, data=form)
    assert asked_again.status_code == 412
    form |= hidden(asked_again.text)
    assert person.post(path, data=form).status_code == 303
    assert [job.total for job in world.jobs.all.values()] == [2]


def test_a_replay_takes_what_a_worker_with_a_fast_clock_filed(world, person, group):
    ahead = world.clock.now() + timedelta(minutes=10)
    world.ledger.add_failed_event(letter_of("ahead", last_attempt_at=ahead))
    path = f"/groups/{group}/replay"
    form = hidden(person.get(path).text) | {"in_flight": "5", "halt_percent": "20"}
    assert person.post(path, data=form).status_code == 303
    assert [job.total for job in world.jobs.all.values()] == [4]


def test_a_replay_leaves_alone_what_failed_since_the_question(world, person, group):
    path = f"/groups/{group}/replay"
    form = hidden(person.get(path).text) | {"in_flight": "5", "halt_percent": "20"}
    world.clock.sleep(timedelta(seconds=1))
    world.ledger.add_failed_event(letter_of("late", last_attempt_at=world.clock.now()))
    assert person.post(path, data=form).status_code == 303
    assert [job.total for job in world.jobs.all.values()] == [3]


@pytest.mark.parametrize(
    "wrong", [{"stages": "5, 1"}, {"stages": "x"}, {"rate": "-1"}, {"halt_percent": "much"}]
)
def test_a_plan_that_cannot_work_is_asked_for_again(world, person, group, wrong):
    path = f"/groups/{group}/replay"
    form = {"stages": "1", "rate": "5", "in_flight": "5", "halt_percent": "20", "note": "why"}
    answer = person.submit(path, path, **(form | wrong))
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert "why</textarea>" in answer.text
    assert world.jobs.all == {}


# -- entries ---------------------------------------------------------------------------------


def test_a_verb_for_an_entry_is_done_as_its_page_showed_it(world, person):
    (entry,) = world.file(1)
    path = f"/entries/{entry.id}/acts/escalate"
    assert "Escalate the failure of OrderPlaced" in person.get(path).text
    assert person.submit(path, path, revision="7").status_code == 412
    assert person.submit(path, path, revision="1", note="help").status_code == 303
    assert world.ledger.open(entry.id).entry.status is Status.ESCALATED
    assert "Escalated." in person.get(f"/entries/{entry.id}?done=escalate").text


def test_an_entry_that_was_compensated_cannot_be_replayed(world, person):
    (entry,) = world.file(1)
    path = f"/entries/{entry.id}/acts/compensate"
    assert person.submit(path, path, revision="1").status_code == 303
    assert person.get(f"/entries/{entry.id}/replay").status_code == 409


def test_one_entry_is_replayed_by_a_job_of_its_own(world, person):
    (entry,) = world.file(1)
    path = f"/entries/{entry.id}/replay"
    person.submit(path, path, form_key="k", note="")
    (job,) = world.jobs.all.values()
    assert (job.total, job.selection.entry_ids) == (1, (entry.id,))


def test_a_viewer_is_shown_no_buttons(world, group):
    viewer = browser(world, Role.VIEWER)
    for path in (f"/groups/{group}", "/breakers"):
        page = viewer.get(path).text
        assert "Replay…" not in page
        assert "Isolate…" not in page


# -- jobs ------------------------------------------------------------------------------------


@pytest.fixture
def job(world, group):
    from angzarr.analysis.ledger.ledger import EntryFilter
    from angzarr.analysis.replay.job import Selection

    wanted = Selection(wanted=EntryFilter(fingerprint=group))
    return world.jobs.begin(wanted, plan(), by="ada", job_id="j1")


def test_the_progress_of_a_job_is_told_until_it_rests(world, person, job):
    world.jobs.put(job, status=JobStatus.DONE, handled=3, sent=3)
    answer = person.get("/jobs/j1/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    progress, over, _ = answer.text.split("\n\n")
    shown = json.loads(progress.partition("data: ")[2])
    assert "3 of 3 done" in shown
    assert over.startswith("event: over")


def test_a_page_without_scripts_reloads_itself_while_a_job_runs(world, person, job):
    assert '<noscript><meta http-equiv="refresh"' in person.get("/jobs/j1").text
    world.jobs.put(job, status=JobStatus.DONE)
    assert "refresh" not in person.get("/jobs/j1").text


def test_too_many_open_streams_of_one_caller_are_refused(world, person, job):
    streams = world.app._app.state.streams
    streams._open["operator@test"] = MOST_EACH
    assert person.get("/jobs/j1/events").status_code == 429


def test_streams_of_all_callers_leave_room_for_requests(world, person, job):
    streams = world.app._app.state.streams
    streams._open.update({f"person{number}": 1 for number in range(MOST_OPEN)})
    assert person.get("/jobs/j1/events").status_code == 429
    assert MOST_OPEN * 4 <= _MOST_CONNECTIONS


def test_a_stream_ends_in_time_so_that_its_caller_is_let_in_anew(world, person, job, monkeypatch):
    """Each look at the running job takes five minutes."""
    monkeypatch.setattr("angzarr.dashboard.pages.jobs.LOOK_EVERY", timedelta(0))
    look = world.jobs.open_job

    def later(job_id):
        world.clock.sleep(timedelta(minutes=5))
        return look(job_id)

    monkeypatch.setattr(world.jobs, "open_job", later)
    told = person.get("/jobs/j1/events").text
    assert "event: progress" in told
    assert "event: over" not in told
    assert not world.app._app.state.streams._open


def test_a_job_that_waits_for_a_person_is_looked_at_seldom(world, person, job, monkeypatch):
    rested = []

    async def rest(streams, pause):
        rested.append(pause)
        world.jobs.put(job, status=JobStatus.DONE)

    monkeypatch.setattr(Streams, "rest", rest)
    world.jobs.put(job, status=JobStatus.PAUSED)
    person.get("/jobs/j1/events")
    assert rested == [timedelta(seconds=10)]


def test_an_entry_past_the_cap_names_the_command_that_forces_it(world, person, monkeypatch):
    (entry,) = world.file(1)
    assert "--force" not in person.get(f"/entries/{entry.id}/replay").text
    object.__setattr__(world.app._app.state.services, "most_replays", 0)
    page = person.get(f"/entries/{entry.id}/replay").text
    assert f"angzarr dlq replay {entry.id} --force" in page
    assert "disabled" in page


# -- breakers, refusals ----------------------------------------------------------------------


def test_a_breaker_is_isolated_after_a_question(world, person):
    world.break_()
    page = person.get("/breakers").text
    assert 'href="/breakers/crm/isolate"' in page
    assert person.submit("/breakers/crm/isolate", "/breakers/crm/isolate").status_code == 303
    assert "isolated" in person.get("/breakers").text


def test_breakers_that_nobody_shares_are_explained(world, person):
    world.unshared = ConfigurationError("set flow.store to a Redis that all share")
    answer = person.get("/breakers")
    assert answer.status_code == 200
    assert "set flow.store" in answer.text


@pytest.mark.parametrize("path", ["/nothing", f"/entries/{'0' * 64}", "/jobs/none", "/groups/x"])
def test_what_is_not_there_is_a_page_that_says_so(person, path):
    answer = person.get(path)
    assert answer.status_code == 404
    assert "<h1>Not Found</h1>" in answer.text


def test_a_ledger_that_is_away_is_a_page_that_says_so(world, person, monkeypatch):
    def away(*_arguments, **_options):
        raise LedgerUnavailable("postgresql://ada:secret@db")

    monkeypatch.setattr(world.ledger, "get_failed_events", away)
    answer = person.get("/entries")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "secret" not in answer.text


def test_pages_hold_nothing_of_other_hosts(world, person, group):
    for path in ("/login", "/groups", f"/groups/{group}", "/static/style.css", "/static/live.js"):
        assert not re.search(r"https?://|//[a-z]+\.", person.get(path).text)
    assert World is not None
