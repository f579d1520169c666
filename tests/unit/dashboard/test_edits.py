"""Edits over HTTP and on pages: data, difference, proposal, approval; and redirected replays."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.sql.ledger.schema import remembered_writes
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import Decided
from angzarr.analysis.ledger.operator_actions import Act, Verb
from angzarr.analysis.replay.edit import DEEPEST, LARGEST
from angzarr.analysis.replay.editor import Editor
from angzarr.dashboard import actions
from angzarr.dashboard.access import Caller
from angzarr.dashboard.api.route import PREFIX
from angzarr.dashboard.pages.edits import escaped
from angzarr.dashboard.pages.route import LONGEST_SHOWN, shown
from angzarr.dashboard.problem import Problem
from angzarr.dead_letters.masking import MARK
from angzarr.dead_letters.offloading_queue import without_body
from angzarr.dead_letters.protection import Clearance, Protection
from angzarr.dead_letters.redaction import Redaction
from angzarr.errors import DecodeError, PayloadStoreUnavailable
from angzarr.payloads.store import PayloadReadLimit
from angzarr.settings.dashboard import Role
from contracts.ledger import HOLD, letter_of, message_of, resolve
from dashboard_caller import api, browser, hidden, problem
from memory_payloads import MemoryPayloadStore
from sqlite_ledger import empty
from unit.dead_letters.test_protection import CIPHER, protection, secret_letter

CHANGE = {"pointer": "/total", "before": "3", "after": "4"}
EVIL = "<script>alert(1)</script>\u202e\x1b[2J\udcff"


@pytest.fixture
def careful(world):
    """Let edits wait for a second person; named before whoever opens the site."""
    world.approves_edits = True


@pytest.fixture
def entry(world):
    (entry,) = world.file(1)
    return entry


def edits(entry):
    return f"{PREFIX}/entries/{entry.id}/edits"


def approve(client, job):
    """Approve *job* as its approver saw it, with all of its edit."""
    where = f"{PREFIX}/jobs/{job['id']}"
    seen = {"If-Match": client.get(where).headers["etag"]}
    return client.post(f"{where}/approve", headers=seen)


def edit_of(world, job_id):
    return json.loads(world.jobs.job_edit(job_id).order.letter.message.body)[0][0]


# -- the API ---------------------------------------------------------------------------------


def test_the_data_that_an_edit_begins_with_is_told(world, client):
    plain = letter_of("e9", message=replace(message_of(), body=b'[[1], {"k": 2}, {}]'))
    (entry,) = world.ledger.add_failed_events([plain])
    answer = client.get(f"{PREFIX}/entries/{entry.id}/data")
    assert answer.json() == {"data": {"args": [1], "kwargs": {"k": 2}}}
    assert answer.headers["etag"] == f'"{entry.revision}"'
    none = client.get(f"{PREFIX}/entries/{entry.id}/data?original=true")
    assert (none.status_code, none.json()["detail"]) == (409, "it was never edited")


def test_a_dry_run_tells_the_difference_and_changes_nothing(world, client, entry):
    answer = client.post(edits(entry), json={"data": {"total": 4}, "dry_run": True})
    assert answer.status_code == 200
    told = {"changes": [CHANGE], "whole": None, "problem": None, "needs_approval": False}
    assert answer.json() == told
    assert not world.jobs.all


def test_a_dry_run_tells_what_is_wrong_with_the_data(world, client, entry):
    def decode(data):
        raise DecodeError("total is missing")

    world.decode = decode
    told = client.post(edits(entry), json={"data": {}, "dry_run": True}).json()
    assert told["problem"] == "it does not fit the handler: total is missing"
    refused = client.post(edits(entry), json={"data": {}})
    assert (refused.status_code, problem(refused)) == (422, "unfit")
    assert "total is missing" in refused.json()["detail"]
    assert not world.jobs.all


def test_an_edit_becomes_a_job_over_its_entry(world, client, entry):
    answer = client.post(edits(entry), json={"data": {"total": 4}, "note": "typo"})
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["location"] == f"{PREFIX}/jobs/{job['id']}"
    assert (job["status"], job["total"], job["note"]) == ("running", 1, "typo")
    assert edit_of(world, job["id"]) == {"total": 4}
    told = client.get(answer.headers["location"]).json()
    seen = {"entry_id": entry.id, "changes": [CHANGE], "whole": None, "problem": None}
    mark = told["edit_review"].pop("mark")
    assert (told["edit_review"], len(mark)) == (seen, 16)


def test_a_proposed_edit_is_approved_by_another_person_alone(careful, world, entry):
    approver = api(world, Role.APPROVER)
    job = approver.post(edits(entry), json={"data": {"total": 4}}).json()
    assert job["status"] == "proposed"
    own = approve(approver, job)
    assert (own.status_code, problem(own)) == (409, "own-proposal")
    assert approve(api(world), job).status_code == 403
    assert world.jobs.approve(job["id"], by="somebody").approved_by == "somebody"


def test_nobody_approves_an_edit_of_which_he_was_not_told_the_whole(careful, world, client, entry):
    answer = client.post(edits(entry), json={"data": {"total": 4}})
    job, approver = answer.json(), api(world, Role.APPROVER)
    path = f"{PREFIX}/jobs/{job['id']}/approve"
    unseen = approver.post(path, headers={"If-Match": answer.headers["etag"]})
    assert (unseen.status_code, problem(unseen)) == (428, "edit-not-seen")
    other = approver.post(path, headers={"If-Match": f'"{job["revision"]}-{"0" * 16}"'})
    assert (other.status_code, problem(other)) == (412, "stale")
    assert approve(approver, job).status_code == 200


def test_no_form_made_by_hand_approves_an_edit_that_its_page_did_not_show(careful, world, entry):
    data = {"total": 3, "note": "x" * LONGEST_SHOWN}
    job = api(world).post(edits(entry), json={"data": data}).json()
    where, approver = f"/jobs/{job['id']}", browser(world, Role.APPROVER)
    ask_first = approver.get(f"{where}/approve").text
    assert 'name="mark"' not in ask_first
    answer = approver.submit(where, f"{where}/approve", seen=field(ask_first, "seen"))
    assert answer.status_code == 428
    assert world.jobs.open_job(job["id"]).status == "proposed"


def test_an_approval_proves_what_its_view_showed(careful, world, client):
    jobs = [client.post(edits(one), json={"data": {"total": 4}}).json() for one in world.file(2)]
    where = [f"{PREFIX}/jobs/{job['id']}" for job in jobs]
    approver = api(world, Role.APPROVER)
    seen = {"If-Match": approver.get(where[0]).headers["etag"]}
    assert approver.post(f"{where[1]}/approve", headers=seen).status_code == 412
    world.protect = Protection(redaction=Redaction.of(["**.total"], []))
    del world.site
    assert api(world, Role.APPROVER).post(f"{where[0]}/approve", headers=seen).status_code == 412


def test_an_edit_is_sent_elsewhere_where_its_handler_takes_it(careful, world, client, entry):
    asked = {"data": {"total": 4}, "to_queue": "spare", "to_handler": "orders.sync"}
    job = client.post(edits(entry), json=asked).json()
    assert (job["plan"]["to_queue"], job["plan"]["to_handler"]) == ("spare", "orders.sync")
    for name in ("to_queue", "to_handler"):
        refused = client.post(edits(entry), json=asked | {name: "nobody"})
        assert (refused.status_code, problem(refused)) == (422, "no-target")


def test_an_edit_is_checked_by_the_handler_that_it_is_sent_to(world, entry):
    asked = []
    editor = replace(world.editor, decoder=asked.append)
    failure = world.ledger.open(entry.id).failure
    assert editor.draft(entry, failure, {"total": 4}, to_handler="orders.other").changes
    assert asked == ["orders.other"]


def test_a_replay_that_is_sent_elsewhere_waits_where_edits_do(careful, world, client, entry):
    asked = {"entry_ids": [entry.id], "plan": {"to_queue": "spare"}}
    job = client.post(f"{PREFIX}/jobs", json=asked).json()
    said = "sent to queue spare: a second person must approve"
    assert (job["status"], job["said"]) == ("proposed", said)
    assert approve(api(world, Role.APPROVER), job).json()["status"] == "running"
    page = browser(world).get(f"/groups/{entry.fingerprint}/replay").text
    assert "Somebody else approves that before it is sent" in page


def test_an_edit_that_is_outdated_cannot_be_approved(careful, world, client, entry):
    job = client.post(edits(entry), json={"data": {"total": 4}}).json()
    detail = world.ledger.open(entry.id)
    assert not world.replayer.replay(detail.entry, detail.failure, by="eve")
    answer = approve(api(world, Role.APPROVER), job)
    assert (answer.status_code, problem(answer)) == (409, "outdated-edit")
    assert "was replayed since it was edited" in answer.json()["detail"]
    told = client.get(f"{PREFIX}/jobs/{job['id']}").json()["edit_review"]["problem"]
    assert told == answer.json()["detail"]


def test_the_same_key_is_one_edit_also_after_it_was_sent(world, client, entry):
    key = {"Idempotency-Key": "k1"}
    first = client.post(edits(entry), json={"data": {"total": 4}}, headers=key)
    again = client.post(edits(entry), json={"data": {"total": 4}}, headers=key)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    other = client.post(edits(entry), json={"data": {"total": 5}}, headers=key)
    assert (other.status_code, problem(other)) == (422, "key-used")
    empty(world.writes._database, remembered_writes)  # as after a crash that left no answer
    resolve(world.ledger, entry.id, "the job")
    forgotten = client.post(edits(entry), json={"data": {"total": 4}}, headers=key)
    assert forgotten.json()["id"] == first.json()["id"]
    assert len(world.jobs.all) == 1


def test_an_edit_is_of_what_its_caller_saw(world, client, entry):
    seen = {"If-Match": client.get(f"{PREFIX}/entries/{entry.id}/data").headers["etag"]}
    client.post(f"{PREFIX}/entries/{entry.id}/acts", json={"verb": "escalate"})
    stale = client.post(edits(entry), json={"data": {"total": 4}}, headers=seen)
    assert (stale.status_code, problem(stale)) == (412, "stale")
    odd = client.post(edits(entry), json={"data": 1}, headers={"If-Match": "x"})
    assert (odd.status_code, problem(odd)) == (400, "bad-if-match")


def test_an_entry_that_cannot_be_replayed_cannot_be_edited(world, client, entry):
    client.post(edits(entry), json={"data": {"total": 4}})
    second = client.post(edits(entry), json={"data": {"total": 5}})
    assert (second.status_code, problem(second)) == (409, "does-not-apply")
    assert "which is not finished" in second.json()["detail"]
    resolve(world.ledger, entry.id, "ann")
    third = client.post(edits(entry), json={"data": {"total": 5}})
    assert third.json()["detail"] == "the entry is resolved"
    gone = client.post(f"{PREFIX}/entries/{'0' * 64}/edits", json={"data": 1})
    assert gone.status_code == 404


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"data": {"a": 1, "a": 2}}', "has the name 'a' twice"),
        ('{"data": NaN}', "NaN is not a JSON number"),
        ('{"data": 1e999}', "too large a number"),
        ('{"data": ' + "[" * DEEPEST + "[]" + "]" * DEEPEST + "}", f"deeper than {DEEPEST}"),
        ('{"data": "' + "x" * LARGEST + '"}', f"more than {LARGEST} characters"),
    ],
)
def test_hostile_bodies_are_refused_in_one_sentence(world, client, entry, body, said):
    answer = client.post(edits(entry), content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, problem(answer)) == (422, "invalid")
    assert said in answer.json()["detail"]
    assert not world.jobs.all


def test_a_deep_body_is_no_crash(client, entry):
    body = '{"data": ' + "[" * 200_000
    answer = client.post(edits(entry), content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, problem(answer)) == (422, "invalid")
    assert "nested deeper" in answer.json()["detail"]


def test_a_hidden_value_is_kept_and_never_told(world):
    world.protect = protection()
    targets = replace(world.replayer.targets, clear=Clearance(cipher=CIPHER))
    world.replayer = replace(world.replayer, targets=targets)
    (entry,) = world.ledger.add_failed_events([world.protect(secret_letter())])
    client = api(world)
    data = client.get(f"{PREFIX}/entries/{entry.id}/data").json()["data"]
    assert data == {"user": "ann", "password": MARK}
    answer = client.post(edits(entry), json={"data": data | {"user": "bob"}})
    told = client.get(answer.headers["location"]).text
    assert "hunter2" not in told
    assert json.loads(told)["edit_review"]["changes"][0]["after"] == '"bob"'
    misplaced = client.post(edits(entry), json={"data": {"other": MARK}})
    assert (misplaced.status_code, problem(misplaced)) == (422, "unfit")


class Away(MemoryPayloadStore):
    away = False

    def fetch(self, reference):
        if self.away:
            raise PayloadStoreUnavailable("it is away")
        return super().fetch(reference)


def test_an_edit_that_cannot_be_shown_now_is_approved_later(careful, world):
    store = Away(world.clock)
    world.replayer = replace(world.replayer, payloads=store)
    letter = without_body(letter_of(), store.put(letter_of().message.body))
    (entry,) = world.ledger.add_failed_events([letter])
    job = api(world).post(edits(entry), json={"data": {"total": 4}}).json()
    store.away = True
    told = api(world).get(f"{PREFIX}/jobs/{job['id']}").json()["edit_review"]
    assert told["problem"] == "it cannot be shown: its payload cannot be had now"
    with pytest.raises(Problem) as refused:
        actions.steer_job(world.services(), job["id"], "approve", by=Caller("bob", Role.APPROVER))
    assert refused.value.status == 503


def stored(world, store):
    """An entry whose body lies in *store*, opened as the dashboard opens it."""
    world.replayer = replace(world.replayer, payloads=PayloadReadLimit(store, most=1000, at_once=1))
    letter = without_body(letter_of(), store.put(letter_of().message.body))
    (entry,) = world.ledger.add_failed_events([letter])
    return entry, f"{PREFIX}/entries/{entry.id}/data"


def test_a_payload_that_is_too_large_is_not_opened_for_people(world):
    store = MemoryPayloadStore(world.clock)
    entry, path = stored(world, store)
    world.replayer = replace(world.replayer, payloads=PayloadReadLimit(store, most=10))
    client = api(world)
    verb = {"verb": "compensate"}
    undone = client.post(f"{PREFIX}/entries/{entry.id}/acts", json=verb)
    for answer, advice in (
        (client.get(path), "largest_opened): a replay sends it all the same"),
        (undone, "largest_opened): `angzarr dlq compensate` undoes it all the same"),
    ):
        assert (answer.status_code, problem(answer)) == (409, "does-not-apply")
        assert answer.json()["detail"].endswith(advice)
    many = verb | {"entry_ids": [entry.id], "dry_run": True}
    (told,) = client.post(f"{PREFIX}/acts", json=many).json()["results"]
    assert told["problem"] == undone.json()["detail"]
    job = client.post(f"{PREFIX}/jobs", json={"entry_ids": [entry.id]})
    assert (job.status_code, job.json()["total"]) == (201, 1)


def test_few_requests_have_payloads_in_hand_until_they_are_answered(world, monkeypatch):
    """The place is held while what was fetched is read and told, not for the fetch alone."""
    _, path = stored(world, MemoryPayloadStore(world.clock))
    desk_of, inside = Editor.shown, []

    def meanwhile(editor, failure):
        data = desk_of(editor, failure)
        if not inside:
            inside.append("once")
            answers = [
                api(world).get(path),
                browser(world).get(path.removeprefix(PREFIX)[:-4] + "edit"),
            ]
            inside.append([(one.status_code, one.headers.get("Retry-After")) for one in answers])
            assert problem(answers[0]) == "busy"
        return data

    monkeypatch.setattr(Editor, "shown", meanwhile)
    assert api(world).get(path).status_code == 200
    assert inside[1] == [(503, "5"), (503, "5")]
    assert api(world).get(path).status_code == 200


# -- elsewhere -------------------------------------------------------------------------------


def test_a_job_goes_where_its_plan_says_and_nowhere_unknown(world, client, entry):
    asked = {"entry_ids": [entry.id], "plan": {"to_queue": "spare"}}
    dry = client.post(f"{PREFIX}/jobs", json=asked | {"dry_run": True}).json()
    assert dry["would_send"] == 1
    job = client.post(f"{PREFIX}/jobs", json=asked).json()
    assert job["plan"]["to_queue"] == "spare"
    for name, said in (("to_queue", "no queue 'nobody'"), ("to_handler", "as 'nobody'")):
        other = asked | {"plan": {name: "nobody"}}
        refused = client.post(f"{PREFIX}/jobs", json=other)
        assert (refused.status_code, problem(refused)) == (422, "no-target")
        assert said in refused.json()["detail"]
        dry = client.post(f"{PREFIX}/jobs", json=other | {"dry_run": True}).json()
        assert dry["would_send"] == 0
    assert len(world.jobs.all) == 1


def test_a_replay_is_sent_elsewhere_from_its_page(world, person, entry):
    for path in (f"/entries/{entry.id}/replay", f"/groups/{entry.fingerprint}/replay"):
        page = person.get(path).text
        assert '<option value="">as its letter says</option>' in page
        fields = {"stages": "1", "rate": "", "in_flight": "1", "halt_percent": "20"}
        answer = person.submit(path, path, to_queue="spare", to_handler="", **fields)
        assert answer.status_code == 303, answer.text
        job = world.jobs.all[answer.headers["location"].removeprefix("/jobs/")]
        assert job.plan.to_queue == "spare"
        assert "<dt>To queue</dt><dd>spare</dd>" in person.get(answer.headers["location"]).text
        world.jobs.cancel(job.id, by="ann")
        wrong = person.submit(path, path, to_queue="nobody", to_handler="", **fields)
        assert wrong.status_code == 422


def test_what_its_own_handler_does_not_take_can_be_sent_elsewhere(world, person):
    (entry,) = world.file(1, message=message_of(task="orders.gone"))
    page = person.get(f"/entries/{entry.id}/replay").text
    assert "It cannot be sent where it came from" in page
    assert '<button class="main">Replay</button>' in page


# -- pages -----------------------------------------------------------------------------------


def field(page, name):
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    return html.unescape(found.group(1))


def text_in(page):
    return html.unescape(
        re.search(r'name="data"[^>]*>\n(.*?)</textarea>', page, re.DOTALL).group(1)
    )


def ask(person, entry, data, **fields):
    path = f"/entries/{entry.id}/edit"
    page = person.get(path).text
    given = {name: field(page, name) for name in ("revision", "original")} | fields
    return person.submit(path, path, data=data, **given)


def confirm(person, entry, answer):
    names = (
        "form_token", "form_key", "revision", "original", "data", "note", "to_queue", "to_handler",
    )  # fmt: skip
    form = {name: field(answer.text, name) for name in names}
    return person.post(f"/entries/{entry.id}/edit/replay", data=form)


def test_an_edit_is_shown_as_a_difference_before_it_is_replayed(world, person, entry):
    assert json.loads(text_in(person.get(f"/entries/{entry.id}/edit").text)) == {"total": 3}
    answer = ask(person, entry, '{"total": 4}', note="typo")
    assert answer.status_code == 200
    for said in ("<code>/total</code>", "<code>3</code>", "<code>4</code>", "Why: typo"):
        assert said in answer.text
    assert not world.jobs.all
    sent = confirm(person, entry, answer)
    job_id = sent.headers["location"].removeprefix("/jobs/")
    assert edit_of(world, job_id) == {"total": 4}
    assert world.jobs.all[job_id].note == "typo"
    assert confirm(person, entry, answer).headers["location"] == sent.headers["location"]
    assert "<code>/total</code>" in person.get(sent.headers["location"]).text


def test_an_edit_is_sent_elsewhere_from_its_page(world, person, entry):
    answer = ask(person, entry, '{"total": 4}', to_queue="spare")
    assert "Sent to queue spare." in answer.text
    sent = confirm(person, entry, answer)
    job = world.jobs.all[sent.headers["location"].removeprefix("/jobs/")]
    assert (job.plan.to_queue, edit_of(world, job.id)) == ("spare", {"total": 4})


def test_a_replay_is_of_the_entry_as_its_page_showed_it(world, person, entry):
    path = f"/entries/{entry.id}/replay"
    shown = hidden(person.get(path).text)
    unanswered(world, entry)
    late = person.post(path, data=shown)
    assert (late.status_code, "changed meanwhile" in late.text) == (412, True)
    assert not world.jobs.all
    page = person.get(path).text
    assert "carried an edit and got no answer" in page
    assert "<code>/total</code>" in page
    form = hidden(page)
    first = person.post(path, data=form)
    assert first.status_code == 303
    world.jobs.cancel(first.headers["location"].removeprefix("/jobs/"), by="ann")
    world.ledger.act(
        [Act(entry_id=entry.id, revision=int(form["revision"]), verb=Verb.ESCALATE)], by="eve"
    )
    assert person.post(path, data=form).headers["location"] == first.headers["location"]


def test_what_is_wrong_with_the_data_is_shown_beside_it(world, person, entry):
    for data, said in (("{", "not JSON"), ('{"total": 3}', "nothing was changed")):
        answer = ask(person, entry, data)
        assert answer.status_code == 422
        assert said in answer.text
        assert text_in(answer.text) == data
    assert not world.jobs.all


def test_a_form_that_was_confirmed_can_be_changed_again(person, entry):
    form = {"data": '{"total": 4}', "again": "1", "revision": "1", "note": "n"}
    answer = person.submit(f"/entries/{entry.id}/edit", f"/entries/{entry.id}/edit", **form)
    assert (answer.status_code, text_in(answer.text)) == (200, '{"total": 4}')


def test_what_changed_since_the_form_was_shown_is_not_replayed(world, person, entry):
    answer = ask(person, entry, '{"total": 4}')
    resolve(world.ledger, entry.id, "ann")
    late = confirm(person, entry, answer)
    assert late.status_code == 412
    assert "changed meanwhile" in late.text


def test_a_proposed_edit_shows_its_approver_what_it_changes(careful, world, person, entry):
    answer = ask(person, entry, '{"total": 4}')
    assert "Somebody else approves it" in answer.text
    where = confirm(person, entry, answer).headers["location"]
    assert "Approve" not in person.get(where).text
    approver = browser(world, Role.APPROVER)
    page = approver.get(where).text
    assert "<code>/total</code>" in page
    assert "Approve" in page
    ask_first = approver.get(f"{where}/approve").text
    assert "<code>/total</code>" in ask_first
    answer = approver.post(f"{where}/approve", data=hidden(ask_first))
    assert answer.status_code == 303
    (job,) = world.jobs.all.values()
    assert (job.status, job.approved_by) == ("running", "approver@test")


def test_an_edit_that_is_told_in_part_is_approved_where_the_whole_is_seen(
    careful, world, person, entry
):
    data = {"total": 3, "note": "x" * 900 + "pay 9999"}
    answer = ask(person, entry, json.dumps(data))
    assert "pay 9999" in answer.text.split("<h3>After</h3>")[1]
    where = confirm(person, entry, answer).headers["location"]
    approver = browser(world, Role.APPROVER)
    for path in (where, f"{where}/approve"):
        assert "pay 9999" in approver.get(path).text.split("<h3>After</h3>")[1]
    assert '<button class="main">Approve' in approver.get(f"{where}/approve").text
    told = api(world).get(f"{PREFIX}{where}").json()["edit_review"]
    assert told["whole"] == {"before": {"total": 3}, "after": data}


def test_no_page_lets_an_edit_be_approved_that_it_has_no_room_for(careful, world, client, entry):
    data = {"total": 3, "note": "x" * LONGEST_SHOWN + "pay 9999"}
    job = client.post(edits(entry), json={"data": data}).json()
    page = browser(world, Role.APPROVER).get(f"/jobs/{job['id']}/approve").text
    assert "no room for the whole" in page
    assert '<button class="main" disabled>Approve' in page
    told = client.get(f"{PREFIX}/jobs/{job['id']}").json()["edit_review"]["whole"]
    assert told["after"] == data


def test_an_outdated_proposal_is_refused_on_its_page(careful, world, person, entry):
    where = confirm(person, entry, ask(person, entry, '{"total": 4}')).headers["location"]
    detail = world.ledger.open(entry.id)
    world.replayer.replay(detail.entry, detail.failure, by="eve")
    approver = browser(world, Role.APPROVER)
    ask_first = approver.get(f"{where}/approve").text
    for page in (approver.get(where).text, ask_first):
        assert "was replayed since it was edited" in page
    answer = approver.submit(where, f"{where}/approve", seen=field(ask_first, "seen"))
    assert answer.status_code == 409


def test_nothing_in_an_edit_is_more_than_text(world, person):
    (entry,) = world.file(1, message=replace(message_of(), body=hostile_body()))
    path = f"/entries/{entry.id}/edit"
    page = person.get(path)
    assert json.loads(text_in(page.text)) == {EVIL: EVIL}
    answer = ask(person, entry, json.dumps({EVIL: [EVIL]}))
    sent = confirm(person, entry, answer)
    job = person.get(sent.headers["location"])
    broken = ask(person, entry, EVIL[:-1])
    for one in (page, answer, job, broken):
        assert one.status_code in {200, 422}
        for raw in ("<script>", "\u202e", "\x1b", "\udcff"):
            assert raw not in one.text
    assert edit_of(world, sent.headers["location"].removeprefix("/jobs/")) == {EVIL: [EVIL]}


def hostile_body():
    return json.dumps([[{EVIL: EVIL}], {}, {}]).encode()


def test_data_that_a_page_would_cut_is_left_to_programs(world, person, entry):
    body = json.dumps([["x" * LONGEST_SHOWN], {}, {}]).encode()
    letter = letter_of("big", message=replace(message_of("big"), body=body))
    (large,) = world.ledger.add_failed_events([letter])
    assert person.get(f"/entries/{large.id}/edit").status_code == 409
    for data in (json.dumps("x" * LONGEST_SHOWN), "[" + "1," * 30_000 + "1]", "{" * 70_000):
        answer = ask(person, entry, data)
        assert answer.status_code == 409
        assert "use the API" in answer.text
    assert not world.jobs.all


values = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda one: st.lists(one) | st.dictionaries(st.text(), one),
)


@given(values)
def test_a_page_gives_data_back_as_they_were(value):
    text = escaped(json.dumps(value, indent=2, ensure_ascii=False))
    assert shown(text) == text or len(text) > LONGEST_SHOWN
    assert json.loads(text.replace("\n", "\r\n")) == value


def test_an_entry_page_offers_the_edit_to_those_who_may(world, entry):
    path = f"/entries/{entry.id}"
    assert f"{path}/edit" in browser(world).get(path).text
    viewer = browser(world, Role.VIEWER)
    assert f"{path}/edit" not in viewer.get(path).text
    assert viewer.get(f"{path}/edit").status_code == 403
    resolve(world.ledger, entry.id, "ann")
    assert f"{path}/edit" not in browser(world).get(path).text
    assert world.ledger.open(entry.id).entry.status is Status.RESOLVED


# -- the original ------------------------------------------------------------------------------


def unanswered(world, entry):
    """Leave *entry* with an edit whose replay nobody answers."""
    detail = world.ledger.open(entry.id)
    order = world.editor.draft(detail.entry, detail.failure, {"total": 4}).order
    assert not world.replayer.replay(detail.entry, detail.failure, by="eve", order=order)
    revision = world.ledger.open(entry.id).entry.revision
    world.ledger.decide([Decided(entry_id=entry.id, revision=revision, decision=HOLD)], by="me")


@pytest.mark.parametrize("original", [False, True])
def test_an_edit_without_an_answer_is_left_out_over_http(world, client, entry, original):
    unanswered(world, entry)
    body = {"entry_ids": [entry.id], "plan": {"original": original}}
    job = client.post(f"{PREFIX}/jobs", json=body).json()
    assert job["plan"]["original"] is original
    assert world.jobs.open_job(job["id"]).plan.original is original


@pytest.mark.parametrize("original", [False, True])
def test_an_edit_without_an_answer_is_left_out_from_its_page(world, person, entry, original):
    path = f"/entries/{entry.id}/replay"
    assert "Leave the edit out" not in person.get(path).text
    unanswered(world, entry)
    assert "Leave the edit out" in person.get(path).text
    page = person.submit(path, path, **({"original": "yes"} if original else {}))
    (job,) = world.jobs.all.values()
    assert job.plan.original is original
    assert ("are left out" in person.get(page.headers["location"]).text) is original
