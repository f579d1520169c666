"""Each route by which people act leaves a fact that says who did what, and from where.

A route that is added without one fails here.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from angzarr.adapters.memory.facts import MemoryFactLog
from angzarr.analysis.alerts.alert_delivery import PostResult
from angzarr.analysis.ledger.operator_actions import Verb
from angzarr.analysis.replay.job import JobPlan, Selection
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.site import ROUTERS
from angzarr.facts.act import ActKind, ActOrigin, acting_from
from angzarr.facts.act_log import ActLog
from angzarr.facts.resolution import letter_fact_id
from angzarr.settings.dashboard import Role
from contracts.fact_reader import an_error
from dashboard_caller import api, as_seen, browser, hidden
from unit.dashboard.test_edits import ask, confirm

WRITES = {"POST", "PUT", "PATCH", "DELETE"}
#: Routes that change nothing that is an act: sessions, a question before an edit, and facts
#: themselves, which say who appended them.
NO_ACTS = {
    ("POST", "/login"), ("POST", "/logout"), ("POST", "/entries/{entry_id}/edit"),
    ("POST", f"{PREFIX}/facts"), ("POST", "/v1/facts"),
}  # fmt: skip
#: Drivers of routes, by method and path.
DRIVERS = {}


def drives(path, *kinds, method="POST"):
    """Register what drives *path*; acts of *kinds* must follow, in this order."""

    def register(driver):
        DRIVERS[method, path] = driver, [kind.value for kind in kinds]
        return driver

    return register


def writing_routes():
    return {
        (method, route.path)
        for router in ROUTERS
        for route in router.routes
        for method in (route.methods or set()) & WRITES
    }


def test_every_route_that_writes_is_driven_or_known_to_be_no_act():
    assert writing_routes() == set(DRIVERS) | NO_ACTS
    assert not set(DRIVERS) & NO_ACTS


@pytest.mark.parametrize(("method", "path"), sorted(writing_routes() - NO_ACTS))
def test_each_route_that_acts_leaves_its_facts(world, method, path):
    driver, kinds = DRIVERS[method, path]
    answer = driver(world)
    assert answer.status_code < 400, answer.text
    found = world.acts()
    assert [fact.subtype for fact in found] == kinds
    origin = "api" if path.startswith(PREFIX) else "dashboard"
    for fact in found:
        assert fact.type == "lifecycle"
        assert fact.data["origin"] == origin
        assert fact.data["by"] in {f"{role.value}@test" for role in Role}


#: Routes whose acts have no transaction with the facts.
ALONE = [one for one in sorted(writing_routes()) if "/breakers/" in one[1] or "/alerts/" in one[1]]


@pytest.mark.parametrize("route", ALONE)
def test_an_act_off_the_ledger_is_begun_in_the_facts_and_its_end_says_so(world, route):
    driver, kinds = DRIVERS[route]
    assert driver(world).status_code < 400
    (end,) = world.acts()
    (begun,) = [one for one in world.fact_log.read() if one.subtype == "act_begun"]
    assert begun.id == end.resolves
    assert (begun.data["act"], begun.by) == (kinds[0], end.data["by"])


def test_a_refused_act_leaves_none(world, client):
    (entry,) = filed(world, 1)
    for role, status in ((Role.VIEWER, 403), (Role.OPERATOR, 409)):
        path = f"{PREFIX}/entries/{entry.id}/acts"
        assert api(world, role).post(path, json={"verb": "restore"}).status_code == status
    assert client.post(f"{PREFIX}/breakers/none/reset").status_code == 404
    assert world.acts() == []


def test_a_request_that_is_sent_twice_under_one_key_leaves_one_fact(world, client):
    (entry,) = filed(world, 1)
    path, key = f"{PREFIX}/entries/{entry.id}/acts", {"Idempotency-Key": "once"}
    for _ in range(2):
        assert client.post(path, json={"verb": "skip"}, headers=key).status_code == 200
    assert len(world.acts()) == 1


@pytest.mark.parametrize("verb", list(Verb))
def test_each_verb_of_the_api_says_why(world, client, verb):
    (entry,) = filed(world, 1)
    path = f"{PREFIX}/entries/{entry.id}/acts"
    if verb is Verb.RESTORE:
        client.post(path, json={"verb": "archive"})
        world.acts()
    assert client.post(path, json={"verb": verb.value, "note": "a test"}).status_code == 200
    (fact,) = world.acts()
    assert (fact.data["reason"], fact.data["by"]) == ("a test", "operator@test")


class BrokenLog(MemoryFactLog):
    def append(self, _facts, /, *, before_ack=False):
        raise OSError("the disk is full")


def test_a_fact_log_that_fails_fails_no_act(world, caplog):
    ActLog(facts=BrokenLog, clock=world.clock).record(ActKind.ALERT_TESTED, "a", by="ann", data={})
    assert "fact_not_appended" in caplog.text


def test_where_an_act_comes_from_is_what_its_block_says(world):
    acts = ActLog(facts=lambda: world.fact_log, clock=world.clock)
    for origin in ActOrigin:
        with acting_from(origin):
            acts.record(ActKind.ALERT_TESTED, origin.value, by="ann", data={})
    acts.record(ActKind.ALERT_TESTED, "outside", by="ann", data={})
    told = [fact.data["origin"] for fact in world.acts()]
    assert told == [*(origin.value for origin in ActOrigin), "automatic"]


# -- entries -------------------------------------------------------------------------------------


def filed(world, count=2):
    """Entries whose filing is no news."""
    entries = world.file(count)
    world.acts()
    return entries


@drives(f"{PREFIX}/acts", ActKind.ENTRY_ARCHIVED, ActKind.ENTRY_ARCHIVED)
def act_on_entries(world):
    body = {"verb": "archive", "entry_ids": [entry.id for entry in filed(world)]}
    return api(world).post(f"{PREFIX}/acts", json=body)


@drives(f"{PREFIX}/entries/{{entry_id}}/acts", ActKind.ENTRY_SKIPPED)
def act_on_entry(world):
    (entry,) = filed(world, 1)
    return api(world).post(f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "skip"})


@drives("/entries/{entry_id}/acts/{verb}", ActKind.ENTRY_ESCALATED)
def act_on_entry_page(world):
    (entry,) = filed(world, 1)
    path = f"/entries/{entry.id}/acts/escalate"
    return browser(world).submit(path, path, revision="1", note="help")


@drives("/entries/acts/{verb}", ActKind.ENTRY_SKIPPED, ActKind.ENTRY_SKIPPED)
def act_on_filter_page(world):
    filed(world)
    return confirmed(world, "/entries/acts/skip?domain=order")


@drives("/groups/{fingerprint}/acts/{verb}", ActKind.ENTRY_SKIPPED, ActKind.ENTRY_SKIPPED)
def act_on_group_page(world):
    (entry, _) = filed(world)
    return confirmed(world, f"/groups/{entry.fingerprint}/acts/skip")


def confirmed(world, path):
    person = browser(world)
    return person.post(path, data=hidden(person.get(path).text))


@drives(f"{PREFIX}/entries/{{entry_id}}/edits", ActKind.REPLAY_JOB_STARTED)
def edit_entry(world):
    (entry,) = filed(world, 1)
    return api(world).post(f"{PREFIX}/entries/{entry.id}/edits", json={"data": {"total": 4}})


@drives("/entries/{entry_id}/edit/replay", ActKind.REPLAY_JOB_STARTED)
def edit_entry_page(world):
    (entry,) = filed(world, 1)
    person = browser(world)
    return confirm(person, entry, ask(person, entry, '{"total": 4}'))


@drives("/entries/{entry_id}/replay", ActKind.REPLAY_JOB_STARTED)
def replay_entry_page(world):
    (entry,) = filed(world, 1)
    path = f"/entries/{entry.id}/replay"
    return browser(world).submit(path, path, revision="1")


# -- groups --------------------------------------------------------------------------------------


@drives(f"{PREFIX}/groups/{{fingerprint}}", ActKind.GROUP_CHANGED, method="PATCH")
def amend_group(world):
    (entry,) = filed(world, 1)
    path, any_ = f"{PREFIX}/groups/{entry.fingerprint}", {"If-Match": "*"}
    return api(world).ask("PATCH", path, json={"owner": "ann"}, headers=any_)


@drives("/groups/{fingerprint}", ActKind.GROUP_CHANGED)
def amend_group_page(world):
    (entry,) = filed(world, 1)
    path = f"/groups/{entry.fingerprint}"
    return browser(world).submit(path, path, owner="ann", note="", status="new")


@drives(f"{PREFIX}/groups/{{fingerprint}}/acts", ActKind.ENTRY_SKIPPED, ActKind.ENTRY_SKIPPED)
def act_on_group(world):
    (entry, _) = filed(world)
    path, client = f"{PREFIX}/groups/{entry.fingerprint}/acts", api(world)
    return client.post(path, json=as_seen(client, path, {"verb": "skip"}))


@drives("/groups/{fingerprint}/replay", ActKind.REPLAY_JOB_STARTED)
def replay_group_page(world):
    (entry, _) = filed(world)
    path = f"/groups/{entry.fingerprint}/replay"
    plan = {"stages": "1, 5", "rate": "50", "in_flight": "100", "halt_percent": "20"}
    return browser(world).submit(path, path, note="tests", **plan)


# -- jobs ----------------------------------------------------------------------------------------


def begun(world, **options):
    """A job that is no news."""
    entries = world.file(2)
    chosen = Selection(entry_ids=tuple(entry.id for entry in entries))
    job = world.jobs.begin(chosen, JobPlan(), by="ada", job_id="j1", **options)
    world.acts()
    return job


@drives(f"{PREFIX}/jobs", ActKind.REPLAY_JOB_STARTED)
def begin_job(world):
    (entry, _) = filed(world)
    body = {"filter": {"fingerprint": entry.fingerprint}}
    return api(world).post(f"{PREFIX}/jobs", json=body)


@drives(f"{PREFIX}/jobs/{{job_id}}/pause", ActKind.REPLAY_JOB_PAUSED)
def pause_job(world):
    return api(world).post(f"{PREFIX}/jobs/{begun(world).id}/pause")


@drives(f"{PREFIX}/jobs/{{job_id}}/resume", ActKind.REPLAY_JOB_RESUMED)
def resume_job(world):
    job = begun(world)
    world.jobs.pause(job.id, by="ada")
    world.acts()
    return api(world).post(f"{PREFIX}/jobs/{job.id}/resume")


@drives(f"{PREFIX}/jobs/{{job_id}}/cancel", ActKind.REPLAY_JOB_CANCELLED)
def cancel_job(world):
    return api(world).post(f"{PREFIX}/jobs/{begun(world).id}/cancel")


@drives(f"{PREFIX}/jobs/{{job_id}}/approve", ActKind.REPLAY_JOB_APPROVED)
def approve_job(world):
    path, client = f"{PREFIX}/jobs/{begun(world, approval_over=1).id}", api(world, Role.APPROVER)
    seen = {"If-Match": client.get(path).headers["etag"]}
    return client.post(f"{path}/approve", headers=seen)


@drives("/jobs/{job_id}/{how}", ActKind.REPLAY_JOB_CANCELLED)
def steer_job_page(world):
    path = f"/jobs/{begun(world).id}/cancel"
    return browser(world).submit(path, path)


# -- the rest ------------------------------------------------------------------------------------


@drives(f"{PREFIX}/brake/pull", ActKind.BRAKE_PULLED)
def pull_brake(world):
    return api(world).post(f"{PREFIX}/brake/pull", json={"why": "crm is down"})


@drives(f"{PREFIX}/brake/release", ActKind.BRAKE_RELEASED)
def release_brake(world):
    return api(world).post(f"{PREFIX}/brake/release", json={})


@drives("/brake/pull", ActKind.BRAKE_PULLED)
def pull_brake_page(world):
    return browser(world).submit("/brake", "/brake/pull", scope="automatic")


@drives("/brake/release", ActKind.BRAKE_RELEASED)
def release_brake_page(world):
    person = browser(world)
    person.submit("/brake", "/brake/pull", scope="automatic")
    world.acts()
    return person.submit("/brake/release", "/brake/release")


@drives(f"{PREFIX}/breakers/{{name}}/{{how}}", ActKind.BREAKER_CHANGED)
def steer_breaker(world):
    broken(world)
    return api(world).post(f"{PREFIX}/breakers/crm/isolate")


@drives("/breakers/{name}/{how}", ActKind.BREAKER_CHANGED)
def steer_breaker_page(world):
    broken(world)
    return browser(world).submit("/breakers/crm/reset", "/breakers/crm/reset")


def broken(world):
    world.break_()
    world.acts()


class Sink:
    name, place = "ops", "https://ops.example"

    def send(self, _alert):
        return PostResult(took=timedelta(0), arrived=True)

    def close(self):
        pass


@drives(f"{PREFIX}/alerts/test", ActKind.ALERT_TESTED)
def try_alert(world):
    world.webhooks = {"ops": Sink()}
    return api(world).post(f"{PREFIX}/alerts/test", json={})


# -- what people see -------------------------------------------------------------------------------


def test_a_skip_is_shown_with_who_did_it_and_resolves_the_error_both_ways(world):
    (entry,) = filed(world, 1)
    letter = an_error(
        letter_fact_id(entry.letter_id),
        event_id=entry.event_id,
        tool_id=entry.handler_name,
        at=world.clock.now() - timedelta(minutes=1),
    )
    world.facts.add(letter)
    api(world).post(
        f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "skip", "note": "a <b>test</b>"}
    )
    (skip,) = world.acts()
    world.facts.add(skip)
    person = browser(world, Role.VIEWER)
    page = person.get("/facts").text
    assert "by operator@test: a &lt;b&gt;test&lt;/b&gt;" in page
    told = api(world, Role.VIEWER).get(f"{PREFIX}/facts/{letter.id}").json()
    assert told["data"]["resolved"] is True
    assert told["data"]["resolution_fact_id"] == skip.id
    back = api(world, Role.VIEWER).get(f"{PREFIX}/facts/{skip.id}").json()
    assert back["resolved_facts"] == [letter.id]
    history = person.get(f"/entries/{entry.id}").text
    assert "<strong>skip</strong> by operator@test over the API" in history
    line = api(world, Role.VIEWER).get(f"{PREFIX}/entries/{entry.id}").json()["history"][-1]
    assert (line["who"], line["origin"]) == ("operator@test", "api")
