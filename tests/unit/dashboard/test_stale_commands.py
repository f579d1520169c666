"""A stale command over HTTP and on pages: what it expected, and a replay without that."""

from __future__ import annotations

import pytest

from angzarr.analysis.ledger.replay_options import STALE_AGAIN, Expectation
from angzarr.dashboard.api.route import PREFIX
from angzarr.dead_letters.letter import Mismatch, Reason
from angzarr.events import headers as names
from contracts.ledger import message_of
from dashboard_caller import hidden

COMMAND = "command.player.Pay"
BOX = '<input type="checkbox" name="sequence" value="fresh_sequence">'
FRESH = {"sequence": "fresh_sequence"}


@pytest.fixture
def stale(world):
    world.replayer.targets.tasks.add(COMMAND)
    (entry,) = world.file(
        1, handler=COMMAND, message=message_of("e0", task=COMMAND, **{names.SEQUENCE: 3}),
        reason=Reason.SEQUENCE_MISMATCH, mismatch=Mismatch(3, 5, 9),
    )  # fmt: skip
    return entry


def job_of(world, answer):
    assert answer.status_code == 303, answer.text
    return world.jobs.all[answer.headers["location"].removeprefix("/jobs/")]


def test_a_program_reads_what_a_command_expected(client, world, stale):
    told = client.get(f"{PREFIX}/entries/{stale.id}").json()
    assert told["mismatch"] == {"expected": 3, "actual": 5, "strategy": "9"}


def test_a_program_asks_for_a_fresh_sequence(client, world, stale):
    asked = {"entry_ids": [stale.id], "plan": FRESH}
    assert client.post(f"{PREFIX}/jobs", json=asked | {"dry_run": True}).json()["would_send"] == 1
    job = client.post(f"{PREFIX}/jobs", json=asked).json()
    assert job["plan"]["sequence"] == "fresh_sequence"
    assert world.jobs.all[job["id"]].plan.order.sequence is Expectation.FRESH_SEQUENCE


def test_a_program_is_told_that_an_event_has_no_sequence_to_drop(client, world):
    (event,) = world.file(1)
    asked = {"entry_ids": [event.id], "plan": FRESH, "dry_run": True}
    (why,) = client.post(f"{PREFIX}/jobs", json=asked).json()["refused"]
    assert why.startswith("only a command expects a sequence")


def test_a_sequence_that_is_none_is_refused(client, world, person, stale):
    asked = {"entry_ids": [stale.id], "plan": {"sequence": "at_seven"}}
    assert client.post(f"{PREFIX}/jobs", json=asked).status_code == 422
    path = f"/entries/{stale.id}/replay"
    assert person.submit(path, path, sequence="at_seven").status_code == 422
    assert not world.jobs.all


def test_an_edit_is_sent_with_a_fresh_sequence(client, world, person, stale):
    asked = {"data": {"total": 4}} | FRESH
    job = client.post(f"{PREFIX}/entries/{stale.id}/edits", json=asked).json()
    assert job["plan"]["sequence"] == "fresh_sequence"
    assert "with a fresh sequence" in str(world.jobs.all[job["id"]].plan.order)


def test_the_page_of_an_entry_shows_what_it_expected(person, stale):
    page = person.get(f"/entries/{stale.id}").text
    for told in (
        "<dt>Expected sequence</dt><dd>3</dd>", "<dt>The aggregate is at</dt><dd>5</dd>",
        "<dt>Merge strategy</dt><dd>9</dd>",
    ):  # fmt: skip
        assert told in page


def test_a_fresh_sequence_is_offered_where_one_was_stale_and_nowhere_else(world, person, stale):
    (event,) = world.file(1, error_type="Other")
    for entry, offered in ((stale, True), (event, False)):
        for path in (
            f"/entries/{entry.id}/replay",
            f"/entries/{entry.id}/edit",
            f"/groups/{entry.fingerprint}/replay",
        ):
            page = person.get(path).text
            assert (BOX in page, STALE_AGAIN[1:] in page) == (offered, offered), path
    assert (
        "It expected sequence 3, the aggregate is at 5 (9)."
        in person.get(f"/entries/{stale.id}/replay").text
    )


@pytest.mark.parametrize("chosen", [{}, FRESH])
def test_it_is_replayed_from_its_page_as_its_person_said(world, person, stale, chosen):
    path = f"/entries/{stale.id}/replay"
    job = job_of(world, person.submit(path, path, **chosen))
    assert job.plan.sequence == chosen.get("sequence", "as_is")
    shown = person.get(f"/jobs/{job.id}").text
    assert ("<dt>Sequence</dt><dd>fresh sequence</dd>" in shown) is bool(chosen)


def test_a_group_is_replayed_with_a_fresh_sequence(world, person, stale):
    path = f"/groups/{stale.fingerprint}/replay"
    fields = {"stages": "x", "rate": "", "in_flight": "1", "halt_percent": "20", "note": ""}
    wrong = person.submit(path, path, **fields, **FRESH)
    assert 'value="fresh_sequence" checked>' in wrong.text, "what was ticked stays ticked"
    job = job_of(world, person.submit(path, path, **fields | {"stages": "1"}, **FRESH))
    assert job.plan.sequence is Expectation.FRESH_SEQUENCE


def test_an_edit_on_its_page_keeps_the_choice_through_its_confirmation(world, person, stale):
    path = f"/entries/{stale.id}/edit"
    asked = person.submit(path, path, data='{"total": 4}', note="", **FRESH)
    assert "Sent with a fresh sequence." in asked.text
    form = hidden(asked.text)
    job = job_of(world, person.post(f"{path}/replay", data=form))
    assert job.plan.sequence is Expectation.FRESH_SEQUENCE
