"""Edits that jobs carry: what is approved is what is sent, or nothing is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests.contracts.ledger import HOLD, letter_of, message_of, resolve
from tests.unit.analysis.replay.test_job_runner import JobWorld
from tests.unit.dead_letters.test_codec import letters
from tests.unit.dead_letters.test_protection import (
    CIPHER,
    SIGN,
    protection,
    secret_letter,
)

from angzarr.adapters.sql.ledger.schema import replay_job_edits
from angzarr.analysis.ledger.entry import Status
from angzarr.analysis.ledger.ledger import Decided
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.replay.editor import Editor
from angzarr.analysis.replay.job import (
    ALTERED,
    ONE_ENTRY,
    REPLAYED,
    JobStatus,
    Selection,
    digest_of,
    job_edit,
    outdated,
)
from angzarr.analysis.replay.job_view import review
from angzarr.dead_letters.codec import Form, decode, encode
from angzarr.dead_letters.offloading_queue import without_body
from angzarr.dead_letters.protection import Clearance, Protection
from angzarr.errors import BrokerUnavailable, DecodeError, PayloadStoreUnavailable
from angzarr.events import headers as names
from sqlite_ledger import put_edit, put_job, rows_of


class EditWorld(JobWorld):
    """One held entry, an editor, and jobs that an analysis worker carries out."""

    def __init__(self, letter=None, protect=None, clear=None) -> None:
        super().__init__()
        if clear:
            targets = replace(self.replayer.targets, clear=clear)
            self.replayer = replace(self.replayer, targets=targets)
            self.restart()
        self.editor = Editor(
            replayer=self.replayer, decoder=lambda _task: None, protect=protect or Protection()
        )
        (self.held,) = self.hold(1) if letter is None else [self.ledger.add_failed_event(letter)]

    def edit(self, data, *, needs_approval=True):
        detail = self.ledger.open(self.held.id)
        order = self.editor.draft(detail.entry, detail.failure, data).order
        return job_edit(detail.entry, order, needs_approval=needs_approval)

    def propose(self, data, plan=ONE_ENTRY):
        chosen = Selection(entry_ids=(self.held.id,))
        self.job_id = self.jobs.begin(chosen, plan, by="ann", edit=self.edit(data)).id
        return self.job

    def reviewed(self):
        return review(self.editor, self.jobs, self.job)

    def sent(self):
        return [json.loads(message.body)[0][0] for message in self.publisher.sent]

    def refused(self):
        return [item.reason for item in self.jobs.items(self.job_id) if item.reason]


@pytest.fixture
def world():
    return EditWorld()


@settings(max_examples=60)
@given(letters())
def test_an_edit_has_one_digest_before_it_is_kept_and_after(letter):
    order = ReplayOrder(letter=letter, before=letter)
    kept = decode(*encode(letter, Form.BINARY))
    other = replace(letter, explanation=letter.explanation + "x")
    assert digest_of(ReplayOrder(letter=kept, before=kept)) == digest_of(order)
    assert digest_of(replace(order, letter=other)) != digest_of(order)
    assert digest_of(replace(order, before=other)) != digest_of(order)
    assert digest_of(ReplayOrder()) == ""


def test_an_edit_is_sent_once_a_second_person_approved_it_and_as_it_was(world):
    world.propose({"total": 4})
    world.run(rounds=3)
    assert (world.job.status, world.sent()) == (JobStatus.PROPOSED, [])
    assert not world.jobs.approve(world.job_id, by="ann@other-host")
    assert world.jobs.approve(world.job_id, by="bob")
    world.run()
    assert (world.sent(), world.job.handled) == ([{"total": 4}], 1)
    detail = world.ledger.open(world.held.id)
    assert detail.entry.status is Status.RESOLVED
    (line,) = [one for one in detail.history if one.what == "retrying"]
    assert line.who == f"job {world.job_id} (ann, approved by bob)"
    assert line.detail == "replay 1 edited: /total: 3 → 4"
    first = world.jobs.job_history(world.job_id)[0]
    assert (first.who, first.what) == ("ann", "proposed")
    assert f"edited: /total: 3 → 4 (SHA-256 {world.job.edit})" in first.detail


def test_an_edit_goes_where_its_plan_sends_it(world):
    world.propose({"total": 4}, replace(ONE_ENTRY, to_queue="orders"))
    world.jobs.approve(world.job_id, by="bob")
    world.run()
    assert world.ledger.open(world.held.id).order.to_queue == "orders"


def replayed(world):
    entry = world.ledger.open(world.held.id)
    assert not world.replayer.replay(entry.entry, entry.failure, by="eve")
    return world.publisher.sent[-1]


def failed_anew(world):
    message = replayed(world)
    letter = letter_of("e0", replay=1, message=message, fingerprint="g1")
    world.ledger.add_failed_event(letter)


def skipped(world):
    replayed(world)
    resolve(world.ledger, world.held.id, "eve")


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (replayed, "the entry was replayed since it was edited"),
        (failed_anew, "the entry was replayed since it was edited"),
        (skipped, "the entry was replayed since it was edited"),
        (lambda world: resolve(world.ledger, world.held.id, "eve"), "the entry is resolved"),
    ],
)
def test_an_edit_of_what_changed_meanwhile_is_never_sent(world, meanwhile, said):
    world.propose({"total": 4})
    meanwhile(world)
    assert said in world.reviewed().problem
    before = len(world.publisher.sent)
    assert world.jobs.approve(world.job_id, by="bob")
    world.run(rounds=4)
    assert {"total": 4} not in world.sent()
    assert len(world.publisher.sent) == before


def test_an_edit_of_an_entry_that_failed_anew_says_so(world):
    world.propose({"total": 4})
    failed_anew(world)
    world.jobs.approve(world.job_id, by="bob")
    world.run(rounds=4)
    assert world.refused() == [
        "the entry was replayed since it was edited: cancel the job and edit it again"
    ]
    assert (world.job.status, world.job.refused) == (JobStatus.DONE, 1)


def test_what_makes_an_edit_outdated_is_said(world):
    edit, entry = world.edit({"total": 4}), world.ledger.open(world.held.id).entry
    assert outdated(edit, entry) == ""
    assert outdated(edit, replace(entry, revision=99, status=Status.WAITING)) == ""
    assert "failed anew" in outdated(edit, replace(entry, letter_id="other"))
    assert "removed" in outdated(edit, None)


def test_an_edit_that_was_altered_is_neither_approved_nor_sent(world):
    world.propose({"total": 4})
    other = world.edit({"total": 4_000_000})
    world.jobs.approve(world.job_id, by="bob")
    put_edit(world.ledger.database, world.job_id, other)
    assert "not the one that was proposed" in world.reviewed().problem
    world.run(rounds=3)
    assert world.sent() == []
    assert "not the one that was proposed" in world.refused()[0]


def test_an_edit_whose_letter_before_was_altered_is_neither_approved_nor_sent(world):
    world.propose({"total": 4})
    edit = world.jobs.job_edit(world.job_id)
    before = replace(edit.order.before, explanation="another")
    put_edit(
        world.ledger.database,
        world.job_id,
        replace(edit, order=replace(edit.order, before=before)),
    )
    assert world.reviewed().problem == ALTERED
    assert world.reviewed().mark == ""
    world.jobs.approve(world.job_id, by="bob")
    world.run(rounds=3)
    assert (world.sent(), world.refused()) == ([], [ALTERED])


def test_a_review_proves_that_all_was_seen_of_this_job_and_where_it_goes(world):
    world.propose({"total": 4})
    mark, job = world.reviewed().mark, world.job
    assert mark == world.reviewed().mark
    edit = world.jobs.job_edit(job.id)
    for other in (replace(job, id="other"), replace(job, plan=replace(job.plan, to_queue="spare"))):
        put_job(world.ledger.database, other)
        put_edit(world.ledger.database, other.id, edit)
        assert review(world.editor, world.jobs, other).mark != mark


@pytest.mark.parametrize("verb", ["publish", "after publish", "before note", "after note"])
def test_an_edit_is_sent_under_one_number_whenever_the_engine_dies(world, verb):
    world.propose({"total": 4})
    world.jobs.approve(world.job_id, by="bob")
    world.die(verb)
    world.clock.sleep(world.replayer.lease)
    world.run()
    assert {message.headers[names.REPLAY] for message in world.publisher.sent} == {1}
    assert {json.dumps(data) for data in world.sent()} == {'{"total": 4}'}
    assert world.job.handled == 1


def test_whoever_approves_sees_what_is_sent_and_nothing_hidden():
    protect = protection(signatures=SIGN)
    world = EditWorld(protect(secret_letter()), protect, Clearance(cipher=CIPHER, signatures=SIGN))
    world.propose({"user": "bob", "password": "swordfish"})
    told = world.reviewed()
    assert [str(one) for one in told.changes] == [
        '/user: "ann" → "bob"', "(all): nothing → a hidden value was changed",
    ]  # fmt: skip
    assert told.problem == ""
    assert "swordfish" not in repr(rows_of(world.ledger.database, replay_job_edits))
    world.jobs.approve(world.job_id, by="eve")
    world.run(rounds=2)
    assert world.sent() == [{"user": "bob", "password": "swordfish"}]


def test_who_cannot_open_an_edit_is_told_so():
    protect = protection()
    world = EditWorld(protect(secret_letter()), protect, Clearance(cipher=CIPHER))
    world.propose({"user": "bob", "password": "swordfish"})
    blind = replace(world.replayer, targets=replace(world.replayer.targets, clear=Clearance()))
    told = review(replace(world.editor, replayer=blind), world.jobs, world.job)
    assert told.problem.startswith("it cannot be shown: ")
    assert told.changes == ()


def test_an_edit_whose_payload_is_away_is_shown_later(world):
    body = world.payloads.put(letter_of("e1").message.body)
    (entry,) = world.ledger.add_failed_events([without_body(letter_of("e1"), body)])
    world.held = entry
    world.propose({"total": 4})
    world.payloads.fail["fetch"] = PayloadStoreUnavailable("it is away")
    told = world.reviewed()
    assert (told.problem, told.passes) == (
        "it cannot be shown: its payload cannot be had now", True,
    )  # fmt: skip
    world.payloads.fail.clear()
    assert world.reviewed().problem == ""


def test_a_job_without_an_edit_has_nothing_to_review(world):
    world.begin()
    assert world.reviewed() is None
    assert world.editor.told(ReplayOrder()) == "it carries no edit"


def approved_beside_another(world):
    """Approve an edit, and begin a job over another entry; return that job."""
    world.propose({"total": 4})
    world.jobs.approve(world.job_id, by="bob")
    (other,) = world.ledger.add_failed_events([letter_of("e9", message=message_of("e9"))])
    return world.jobs.begin(Selection(entry_ids=(other.id,)), ONE_ENTRY, by="ann")


def test_an_edit_that_cannot_be_read_holds_up_no_other_job_and_can_be_cancelled(world, monkeypatch):
    second = approved_beside_another(world)
    read = world.jobs.job_edit

    def unreadable(job_id):
        if job_id == world.job_id:
            raise DecodeError("no letter")
        return read(job_id)

    monkeypatch.setattr(world.jobs, "job_edit", unreadable)
    assert world.reviewed().problem == ALTERED
    world.run(rounds=3)
    assert world.refused() == [ALTERED]
    assert {"total": 4} not in world.sent()
    assert world.jobs.open_job(second.id).sent == 1


def test_one_job_that_cannot_be_read_keeps_no_other_from_its_turn(world, monkeypatch, caplog):
    second = approved_beside_another(world)
    opened = world.ledger.open

    def unreadable(entry_id):
        if entry_id == world.held.id:
            raise DecodeError("no order")
        return opened(entry_id)

    begin_next = world.jobs.begin_next

    def broken_afterwards(*args, **kwargs):
        begun = begin_next(*args, **kwargs)
        monkeypatch.setattr(world.ledger, "open", unreadable)
        return begun

    monkeypatch.setattr(world.jobs, "begin_next", broken_afterwards)
    world.worker.step()
    assert world.jobs.open_job(second.id).sent == 1
    world.run(rounds=5)
    told = [line.getMessage() for line in caplog.records if "unreadable" in line.getMessage()]
    assert told == [f"replay_job_unreadable: {world.job_id}"]


@pytest.mark.parametrize("dies", [False, True])
def test_an_edit_takes_nobody_elses_replay_for_its_own(world, monkeypatch, dies):
    world.propose({"total": 4})
    world.jobs.approve(world.job_id, by="bob")
    begin_next, done = world.jobs.begin_next, []

    def raced(*args, **kwargs):
        begun = begin_next(*args, **kwargs)
        if begun and not done:
            done.append(replayed(world))
            if dies:
                raise BrokerUnavailable("gone")
        return begun

    monkeypatch.setattr(world.jobs, "begin_next", raced)
    if dies:
        world.worker.step()
        assert world.job.sent == 1
    world.run(rounds=2)
    assert done
    assert {"total": 4} not in world.sent()
    assert (world.job.sent, world.job.refused) == (0, 1)
    assert world.refused() == [REPLAYED]


@pytest.mark.parametrize(("original", "data"), [(False, {"total": 4}), (True, {"total": 3})])
def test_a_job_leaves_an_edit_without_an_answer_out_if_its_person_says_so(world, original, data):
    world.propose({"total": 4})
    world.jobs.approve(world.job_id, by="bob")
    world.run(rounds=2)
    revision = world.ledger.open(world.held.id).entry.revision
    decided = Decided(entry_id=world.held.id, revision=revision, decision=HOLD)
    assert world.ledger.decide([decided], by="me") == [True]
    world.run(rounds=2)
    again = Selection(entry_ids=(world.held.id,))
    world.jobs.begin(again, replace(ONE_ENTRY, original=original), by="ann")
    world.run(rounds=2)
    assert world.sent()[1:] == [data]
