"""What the API does: lists, verbs, jobs, breakers, and how it refuses."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.idempotent_requests import RequestBegun, WriteKey
from angzarr.analysis.ledger.ledger import LONGEST_PAGE
from angzarr.analysis.replay.job import JobStatus
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.shell import LARGEST_BODY
from angzarr.dead_letters.depth import QueueDepth
from angzarr.errors import BrokerUnavailable, ConfigurationError, LedgerUnavailable
from angzarr.resilience.breaker import Phase
from angzarr.settings.dashboard import Role
from contracts.ledger import letter_of
from dashboard_caller import api, as_seen, browser, problem
from hand_clock import START

# -- entries ---------------------------------------------------------------------------------


def test_pages_lead_through_all_entries_once(world, client):
    filed = {entry.id for entry in world.file(7)}
    path, seen = f"{PREFIX}/entries?limit=3&domain=order", []
    while path:
        answer = client.get(path)
        seen += [one["id"] for one in answer.json()["entries"]]
        path = answer.links["next"]["url"] if "next" in answer.links else ""
        assert bool(path) == bool(answer.json()["next"])
    assert len(seen) == 7
    assert set(seen) == filed


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("handler_name=orders.sync", 2),
        ("handler_name=other", 0),
        ("domain=order", 2),
        ("event_type=OrderPlaced", 2),
        ("event_id=e1", 1),
        ("tenant_id=acme", 2),
        ("correlation_id=c1", 2),
        ("category=transient", 2),
        ("reason=exhausted", 2),
        ("error_type=TimeoutError", 2),
        ("error_code=TIMEOUT", 2),
        ("version=1.0", 2),
        ("status=failed", 2),
        ("status=held", 0),
        ("since=2026-01-01T12:00:00Z", 2),
        ("until=2026-01-01T13:00:00%2B01:00", 0),
        ("failure_class=poison", 0),
    ],
)
def test_every_field_filters(world, client, query, count):
    world.file(2)
    assert len(client.get(f"{PREFIX}/entries?{query}").json()["entries"]) == count


def test_one_entry_has_its_letter_and_its_history(world, client):
    (entry,) = world.file(1)
    answer = client.get(f"{PREFIX}/entries/{entry.id}")
    told = answer.json()
    assert told["event_data"] == {"total": 3}
    assert "orders.py" in told["error_stacktrace"]
    assert [line["what"] for line in told["history"]] == ["failed"]
    assert told["protection"] == {"signature": "none"}
    assert answer.headers["etag"] == '"1"'


def test_a_number_that_json_does_not_know_is_told_by_name(world, client):
    letter = letter_of("odd")
    event = letter.event.__class__(**{**vars_of(letter.event), "data": {"x": float("nan")}})
    (entry,) = world.ledger.add_failed_events([letter_of("odd", event=event)])
    told = json.loads(client.get(f"{PREFIX}/entries/{entry.id}").text, parse_constant=pytest.fail)
    assert told["event_data"] == {"x": "nan"}


def vars_of(event):
    return {name: getattr(event, name) for name in event.__dataclass_fields__}


def test_an_unreadable_letter_can_be_shown(world, client):
    raw = Unreadable(
        domain="order", raw=b"\xff\x00", content_type="x", problem="no JSON", received_at=START
    )
    (entry,) = world.ledger.add_failed_events([raw])
    assert client.get(f"{PREFIX}/entries/{entry.id}").json()["message"]["raw"] == "base64:/wA="


def test_a_verb_is_done_to_what_its_caller_saw_or_not_at_all(world, client):
    (entry,) = world.file(1)
    path, act = f"{PREFIX}/entries/{entry.id}/acts", {"verb": "archive"}
    stale = client.post(path, json=act, headers={"If-Match": '"7"'})
    assert (stale.status_code, problem(stale)) == (412, "stale")
    done = client.post(path, json=act, headers={"If-Match": '"1"'})
    assert (done.status_code, done.json()["status"]) == (200, "archived")
    assert done.headers["etag"] == '"2"'


def test_a_verb_that_does_not_apply_says_why(world, client):
    (entry,) = world.file(1)
    answer = client.post(f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "restore"})
    assert (answer.status_code, problem(answer)) == (409, "does-not-apply")
    assert "cannot be held" in answer.json()["detail"]


def test_a_dry_run_changes_nothing(world, client):
    world.file(3)
    act = {"verb": "skip", "filter": {"domain": "order"}, "dry_run": True}
    told = client.post(f"{PREFIX}/acts", json=act).json()
    assert (told["done"], len(told["results"])) == (0, 3)
    assert world.ledger.get_failure_stats().by_status == {"failed": 3}


def test_a_filter_is_acted_on_as_far_as_the_verb_applies(world, client):
    first, *_ = world.file(3)
    client.post(f"{PREFIX}/entries/{first.id}/acts", json={"verb": "skip"})
    act = {"verb": "restore", "filter": {"domain": "order"}, "note": "back"}
    told = client.post(f"{PREFIX}/acts", json=as_seen(client, f"{PREFIX}/acts", act)).json()
    assert told["results"] == [{"id": first.id, "problem": None, "begun": False}]
    assert world.ledger.open(first.id).entry.status is Status.HELD


def test_of_entries_by_id_each_has_its_answer(world, client):
    (entry,) = world.file(1)
    act = {"verb": "skip", "entry_ids": [entry.id, "0" * 64, entry.id]}
    told = client.post(f"{PREFIX}/acts", json=act).json()
    assert told["results"] == [
        {"id": entry.id, "problem": None, "begun": False},
        {"id": "0" * 64, "problem": "there is no such entry", "begun": False},
    ]


@pytest.mark.parametrize("which", [{}, {"filter": {}}, {"filter": {"id_prefix": ""}}])
def test_nobody_acts_on_everything_by_mistake(world, client, which):
    world.file(1)
    for path, body in (("acts", {"verb": "skip"}), ("jobs", {})):
        assert problem(client.post(f"{PREFIX}/{path}", json=body | which)) == "invalid"
    assert world.ledger.get_failure_stats().by_status == {"failed": 1}


def test_an_entry_is_compensated_by_the_task_its_handler_names(world, client):
    (entry,) = world.file(1)
    answer = client.post(f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "compensate"})
    assert answer.json()["status"] == "compensated"
    assert [call.task for call in world.sent] == ["orders.undo"]


def test_a_compensation_begun_while_the_broker_is_away_is_begun(world, client, monkeypatch):
    def away(_call):
        raise BrokerUnavailable("away")

    monkeypatch.setattr(world, "send", away)
    (entry,) = world.file(1)
    answer = client.post(f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "compensate"})
    assert (answer.status_code, answer.json()["status"]) == (200, "compensated")


def test_an_entry_nothing_compensates_says_so(world, client):
    (entry,) = world.file(1, handler="other")
    answer = client.post(f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "compensate"})
    assert answer.status_code == 409
    assert "names no compensation" in answer.json()["detail"]


def test_an_entry_is_explained_as_by_the_command_line(world, client):
    (entry,) = world.file(1)
    told = client.get(f"{PREFIX}/entries/{entry.id}/explanation").json()
    assert FailureClass(told["now"]["failure_class"])
    (decides,) = [one for one in told["rules"] if one["decides"]]
    assert decides["name"] == told["now"]["rule"]
    assert told["evidence"]


def test_statistics_are_those_of_the_command_line(world, client):
    world.file(2)
    assert client.get(f"{PREFIX}/stats").json()["by_status"] == {"failed": 2}


def test_statistics_count_what_waits_unread_where_the_queues_tell(world, client):
    assert client.get(f"{PREFIX}/stats").json()["unread"] == {}
    world.unread = {"order": QueueDepth(3, 5), "mail": QueueDepth(0, 0)}
    assert client.get(f"{PREFIX}/stats").json()["unread"] == {"order": 3, "mail": 0}


# -- groups ----------------------------------------------------------------------------------


def test_a_group_is_amended_as_it_was_seen(world, client, group):
    path = f"{PREFIX}/groups/{group}"
    seen = client.get(path).headers["etag"]
    told = {"owner": "ada", "status": "acknowledged"}
    assert problem(client.ask("PATCH", path, json=told)) == "if-match-missing"
    first = client.ask("PATCH", path, json=told, headers={"If-Match": seen})
    assert (first.status_code, first.json()["owner"]) == (200, "ada")
    again = client.ask("PATCH", path, json={"owner": "bob"}, headers={"If-Match": seen})
    assert (again.status_code, problem(again)) == (412, "stale")
    assert client.get(path).json()["history"][0]["who"] == "operator@test"


def test_groups_are_listed_and_filtered(client, group):
    found = client.get(f"{PREFIX}/groups?handler_name=orders.sync").json()
    assert [one["fingerprint"] for one in found["groups"]] == [group]
    assert client.get(f"{PREFIX}/groups?owner=ada").json() == {"groups": [], "next": None}


def test_a_verb_for_a_group_is_done_to_its_entries(world, client, group):
    world.ledger.add_failed_event(letter_of("other", error_type="OtherError"))
    path = f"{PREFIX}/groups/{group}/acts"
    told = client.post(path, json=as_seen(client, path, {"verb": "skip"})).json()
    assert (told["done"], told["refused"]) == (3, 0)
    assert world.ledger.get_failure_stats().by_status == {"skipped": 3, "failed": 1}


# -- jobs ------------------------------------------------------------------------------------


def test_a_job_begins_once_however_often_it_is_asked_for(world, client, group):
    body = {"filter": {"fingerprint": group}, "plan": {"stages": [1, 2]}, "note": "fixed"}
    key = {"Idempotency-Key": "k"}
    first, second = (client.post(f"{PREFIX}/jobs", json=body, headers=key) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["location"] == f"{PREFIX}/jobs/{first.json()['id']}"
    assert len(world.jobs.all) == 1


def test_a_job_whose_answer_was_lost_is_not_begun_twice(world, client, group, monkeypatch):
    """The process dies between the job and its answer: the key is taken over after its lease."""
    body, key = {"filter": {"fingerprint": group}}, {"Idempotency-Key": "k"}
    with monkeypatch.context() as died:
        died.setattr(world.writes, "finish", lambda *_: False)
        first = client.post(f"{PREFIX}/jobs", json=body, headers=key)
    running = client.post(f"{PREFIX}/jobs", json=body, headers=key)
    assert (running.status_code, problem(running)) == (409, "still-running")
    world.clock.sleep(timedelta(minutes=1))
    again = client.post(f"{PREFIX}/jobs", json=body, headers=key)
    assert again.status_code == 201
    assert again.json()["id"] == first.json()["id"]
    assert len(world.jobs.all) == 1


def test_two_callers_with_one_key_begin_two_jobs(world, group):
    for role in (Role.OPERATOR, Role.APPROVER):
        body, key = {"filter": {"fingerprint": group}}, {"Idempotency-Key": "k"}
        begun = api(world, role).post(f"{PREFIX}/jobs", json=body, headers=key)
        assert begun.status_code == 201
        world.jobs.cancel(begun.json()["id"], by="ann")
    assert len(world.jobs.all) == 2


def test_a_job_that_would_replay_nothing_is_refused_and_not_kept(world, client, group):
    for wanted in ({"fingerprint": "f" * 16}, {"handler_name": "nobody"}):
        answer = client.post(f"{PREFIX}/jobs", json={"filter": wanted})
        assert (answer.status_code, problem(answer)) == (409, "nothing-to-replay")
    assert world.jobs.all == {}


def test_a_dry_run_counts_what_can_be_replayed(world, client, group):
    body = {"filter": {"fingerprint": group}, "dry_run": True}
    told = client.post(f"{PREFIX}/jobs", json=body).json()
    assert (told["looked_at"], told["would_send"], told["more"]) == (3, 3, False)
    assert world.jobs.all == {}


def test_a_job_is_paused_resumed_and_ended(world, client, group):
    body = {"filter": {"fingerprint": group}}
    job = client.post(f"{PREFIX}/jobs", json=body).json()["id"]
    path = f"{PREFIX}/jobs/{job}"
    assert client.post(f"{path}/pause").json()["status"] == "paused"
    assert client.get(f"{PREFIX}/jobs?status=paused").json()["jobs"][0]["id"] == job
    assert client.post(f"{path}/resume").json()["status"] == "running"
    assert client.post(f"{path}/cancel").json()["status"] == "cancelled"
    again = client.post(f"{path}/pause")
    assert (again.status_code, problem(again)) == (409, "does-not-apply")
    history = client.get(path).json()["history"]
    assert [line["what"] for line in history] == ["running", "paused", "resumed", "cancelled"]


def test_a_large_job_waits_for_another_persons_approval(world, group):
    world.approval_over = 2
    client = api(world)
    job = client.post(f"{PREFIX}/jobs", json={"filter": {"fingerprint": group}}).json()
    path = f"{PREFIX}/jobs/{job['id']}/approve"
    assert job["status"] == "proposed"
    assert client.post(path).status_code == 403
    seen = client.get(f"{PREFIX}/jobs/{job['id']}").headers["etag"]
    done = api(world, Role.APPROVER).post(path, headers={"If-Match": seen}).json()
    assert (done["status"], done["approved_by"]) == ("running", "approver@test")


@pytest.mark.parametrize("shown", [{}, {"If-Match": "*"}])
def test_nobody_approves_what_he_has_not_seen(world, group, shown):
    world.approval_over = 2
    job = api(world).post(f"{PREFIX}/jobs", json={"filter": {"fingerprint": group}}).json()
    path, approver = f"{PREFIX}/jobs/{job['id']}/approve", api(world, Role.APPROVER)
    answer = approver.post(path, headers=shown)
    assert (answer.status_code, problem(answer)) == (428, "if-match-missing")
    answer = approver.post(path, headers={"If-Match": '"7"'})
    assert (answer.status_code, problem(answer)) == (412, "stale")
    assert world.jobs.all[job["id"]].status is JobStatus.PROPOSED


def test_every_entry_of_a_job_is_told_page_by_page(world, group):
    client = api(world)
    job = client.post(f"{PREFIX}/jobs", json={"filter": {"fingerprint": group}}).json()
    path, found = f"{PREFIX}/jobs/{job['id']}/items", []
    where = f"{path}?limit=1"
    while where:
        answer = client.get(where)
        (item,) = answer.json()["items"]
        found.append(item)
        link = answer.headers.get("link")
        assert bool(link) == bool(answer.json()["next"])
        where = link and link.partition(">")[0].removeprefix("<")
    assert [one["position"] for one in found] == list(range(1, job["total"] + 1))
    assert {one["state"] for one in found} == {"chosen"}
    assert (found[0]["replay"], found[0]["round"], found[0]["reason"]) == (None, None, None)
    assert {one["id"] for one in found} == {one.entry_id for one in world.jobs.items(job["id"])}
    assert client.get(f"{path}?status=refused").json() == {"items": [], "next": None}
    page = browser(world).get(f"/jobs/{job['id']}/items?limit=1").text
    assert f'href="/entries/{found[0]["id"]}"' in page
    assert 'rel="next"' in page
    assert f'href="/jobs/{job["id"]}/items"' in browser(world).get(f"/jobs/{job['id']}").text


@pytest.mark.parametrize("after", ["x", "MA", "LTE", "MTIzNDU2Nzg5MDEy", "é"])
def test_no_other_cursor_leads_through_the_entries_of_a_job(world, group, after):
    client = api(world)
    job = client.post(f"{PREFIX}/jobs", json={"filter": {"fingerprint": group}}).json()
    answer = client.get(f"{PREFIX}/jobs/{job['id']}/items", params={"after": after})
    assert (answer.status_code, problem(answer)) == (400, "bad-cursor")
    assert client.get(f"{PREFIX}/jobs/nobody/items").status_code == 404


@pytest.mark.parametrize("how", ["pause", "cancel"])
def test_a_job_is_steered_as_it_was_seen_where_its_caller_says_so(world, client, group, how):
    begun = client.post(f"{PREFIX}/jobs", json={"filter": {"fingerprint": group}})
    path = f"{begun.headers['location']}/{how}"
    stale = client.post(path, headers={"If-Match": '"7"'})
    assert (stale.status_code, problem(stale)) == (412, "stale")
    assert world.jobs.all[begun.json()["id"]].status is JobStatus.RUNNING
    done = client.post(path, headers={"If-Match": begun.headers["etag"]})
    assert done.status_code == 200
    assert done.headers["etag"] != begun.headers["etag"]


def test_nobody_approves_what_he_proposed(world, group):
    world.approval_over = 2
    approver = api(world, Role.APPROVER)
    job = approver.post(f"{PREFIX}/jobs", json={"filter": {"fingerprint": group}}).json()
    answer = approver.post(f"{PREFIX}/jobs/{job['id']}/approve", headers={"If-Match": '"1"'})
    assert (answer.status_code, problem(answer)) == (409, "own-proposal")
    assert world.jobs.all[job["id"]].status is JobStatus.PROPOSED


@pytest.mark.parametrize(
    "plan", [{"stages": [5, 1]}, {"rate": 0}, {"in_flight": 0}, {"halt_share": 1}, {"x": 1}]
)
def test_a_plan_that_cannot_work_is_refused(world, client, group, plan):
    body = {"filter": {"fingerprint": group}, "plan": plan}
    assert problem(client.post(f"{PREFIX}/jobs", json=body)) == "invalid"
    assert world.jobs.all == {}


# -- breakers --------------------------------------------------------------------------------


def test_a_breaker_is_isolated_and_reset_by_name(world, client):
    world.break_()
    assert client.get(f"{PREFIX}/breakers").json()["breakers"][0]["state"] == "open"
    assert client.post(f"{PREFIX}/breakers/crm/isolate").json()["state"] == "isolated"
    assert world.breakers.states()["crm"].phase is Phase.ISOLATED
    told = client.get(f"{PREFIX}/breakers/crm").json()["transitions"][-1]
    assert (told["new_state"], told["by"]) == ("isolated", "operator@test")
    assert client.post(f"{PREFIX}/breakers/crm/reset").json()["state"] == "closed"


def test_breakers_that_nobody_shares_are_a_matter_of_settings(world, client):
    world.unshared = ConfigurationError("set flow.store")
    answer = client.get(f"{PREFIX}/breakers")
    assert (answer.status_code, problem(answer)) == (409, "not-set-up")


# -- once ------------------------------------------------------------------------------------


def test_of_many_requests_at_once_one_is_done(world, client, monkeypatch):
    (entry,) = world.file(1)
    path, act, key = f"{PREFIX}/entries/{entry.id}/acts", {"verb": "skip"}, {"Idempotency-Key": "k"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api(world).post(path, json=act, headers=key), range(16)))
    assert {one.status_code for one in answers} <= {200, 409}
    done = [one.content for one in answers if one.status_code == 200]
    assert len(set(done)) == 1
    assert {problem(one) for one in answers if one.status_code == 409} <= {"still-running"}
    assert len(world.ledger.open(entry.id).history) == 2


def test_the_same_key_for_another_request_is_refused(world, client):
    one, two = world.file(2)
    key = {"Idempotency-Key": "k"}
    client.post(f"{PREFIX}/entries/{one.id}/acts", json={"verb": "skip"}, headers=key)
    for path, verb, more in (
        (f"{PREFIX}/entries/{two.id}/acts", "skip", {}),
        (f"{PREFIX}/entries/{one.id}/acts", "archive", {}),
        (f"{PREFIX}/entries/{one.id}/acts", "skip", {"If-Match": '"1"'}),
    ):
        answer = client.post(path, json={"verb": verb}, headers=key | more)
        assert (answer.status_code, problem(answer)) == (422, "key-used")
    assert world.ledger.open(two.id).entry.status is Status.FAILED


def test_a_refusal_is_answered_again_and_a_mistake_is_not(world, client):
    (entry,) = world.file(1)
    path, key = f"{PREFIX}/entries/{entry.id}/acts", {"Idempotency-Key": "k"}
    assert client.post(path, json={"verb": "no"}, headers=key).status_code == 422
    refused = client.post(path, json={"verb": "restore"}, headers=key)
    assert refused.status_code == 409
    client.post(path, json={"verb": "skip"})
    assert client.post(path, json={"verb": "restore"}, headers=key).content == refused.content


def test_a_request_that_broke_frees_its_key(world, client, monkeypatch):
    (entry,) = world.file(1)
    path, key = f"{PREFIX}/entries/{entry.id}/acts", {"Idempotency-Key": "k"}
    for error, status in ((LedgerUnavailable("away"), 503), (RuntimeError("a bug"), 500)):
        with monkeypatch.context() as broken:
            broken.setattr(world.ledger, "act", raising(error))
            assert client.post(path, json={"verb": "skip"}, headers=key).status_code == status
    assert client.post(path, json={"verb": "skip"}, headers=key).status_code == 200


def raising(error):
    def act(*_arguments, **_options):
        raise error

    return act


@pytest.mark.parametrize("key", ["", "x" * 201, "a b"])
def test_a_key_that_is_none_is_refused(world, client, key):
    answer = client.post(f"{PREFIX}/breakers/crm/reset", headers={"Idempotency-Key": key})
    assert (answer.status_code, problem(answer)) == (400, "bad-idempotency-key")
    assert isinstance(world.writes.begin(WriteKey("operator@test", key), "f", "t"), RequestBegun)


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", "/nothing", {}, 404),
        ("GET", f"/entries/{'0' * 64}", {}, 404),
        ("GET", "/entries/short", {}, 422),
        ("GET", "/groups/none", {}, 404),
        ("GET", "/jobs/none", {}, 404),
        ("GET", "/breakers/none", {}, 404),
        ("DELETE", "/entries", {}, 405),
        ("GET", "/entries?after=%00", {}, 400),
        ("GET", "/entries?after=e30", {}, 400),
        ("GET", "/groups?after=e30", {}, 400),
        ("GET", "/jobs?after=é", {}, 400),
        ("GET", f"/entries?limit={LONGEST_PAGE + 1}", {}, 422),
        ("GET", "/entries?unknown=1", {}, 422),
        ("GET", "/entries?domain=a&domain=b", {}, 422),
        ("GET", "/entries?until=0.5", {}, 422),
        ("GET", "/entries?since=2026-01-01", {}, 422),
        ("GET", "/entries?since=0001-01-01T00:00:00%2B14:00", {}, 422),
        ("GET", "/entries?domain=a%00b", {}, 422),
        ("POST", "/acts", {"content": "{"}, 415),
        ("POST", "/jobs", {"content": "{", "headers": {"Content-Type": "application/json"}}, 422),
        ("POST", "/jobs", {"data": {"a": "b"}}, 415),
        ("POST", "/jobs", {"content": b"x" * (LARGEST_BODY + 1)}, 413),
    ],
)
def test_every_refusal_is_a_problem(client, method, path, options, status):
    answer = client.ask(method, PREFIX + path, **options)
    assert answer.status_code == status
    problem(answer)


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "", "x/y"])
def test_a_body_of_endless_depth_is_refused_before_any_parser_reads_it(client, kind, monkeypatch):
    monkeypatch.setattr("json.loads", lambda *_, **__: pytest.fail("it was parsed"))
    headers = {"Content-Type": kind}
    answer = client.post(f"{PREFIX}/jobs", content="[" * 100_000, headers=headers)
    monkeypatch.undo()
    assert (answer.status_code, problem(answer)) == (422, "invalid")
    assert answer.json()["detail"] == "the body is nested deeper than 100 levels"


def test_a_ledger_that_is_away_is_said_with_a_time_to_come_back(world, client, monkeypatch):
    away = LedgerUnavailable("postgresql://ada:secret@db did not answer")
    monkeypatch.setattr(world.ledger, "get_failed_events", raising(away))
    answer = client.get(f"{PREFIX}/entries")
    assert (answer.status_code, problem(answer)) == (503, "unavailable")
    assert answer.headers["retry-after"] == "5"
    assert "secret" not in answer.text


def test_a_bug_shows_nothing_of_itself(world, client, monkeypatch, caplog):
    monkeypatch.setattr(world.ledger, "get_failure_stats", raising(RuntimeError("secret")))
    answer = client.get(f"{PREFIX}/stats")
    assert (answer.status_code, problem(answer)) == (500, "internal")
    assert "secret" not in answer.text
    assert "RuntimeError: secret" in caplog.text


def test_health_needs_no_token(world):
    assert api(world, None).get("/healthz").json() == {"status": "ok"}


def test_the_description_names_every_route_and_refers_to_nothing_that_is_missing(client):
    told = client.get(f"{PREFIX}/openapi.json").json()
    assert len(told["paths"]) == 42
    known = {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}
    said = set(references(told))
    assert said <= known
    assert "#/components/schemas/Problem" in said


def references(value):
    if isinstance(value, dict):
        yield from (text for key, text in value.items() if key == "$ref")
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def test_a_halted_job_can_be_resumed(world, client, group):
    job = client.post(f"{PREFIX}/jobs", json={"filter": {"fingerprint": group}}).json()["id"]
    world.jobs.put(world.jobs.all[job], status=JobStatus.HALTED, said="3 of 5 failed again")
    assert client.get(f"{PREFIX}/jobs/{job}").json()["said"] == "3 of 5 failed again"
    assert client.post(f"{PREFIX}/jobs/{job}/resume").json()["status"] == "running"
