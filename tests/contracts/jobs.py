"""What every store of replay jobs must do. Subclass `JobsContract` and give it ledger and jobs."""

from __future__ import annotations

import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from tests.contracts.ledger import HOLD, LEASE, REPLAY, letter_of, resolve
from tests.hand_clock import START, HandClock

from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.ledger import Decided, EntryFilter, ReplayAnswer
from angzarr.analysis.ledger.replay_options import Expectation, ReplayOrder
from angzarr.analysis.replay import job_limits as job_approval
from angzarr.analysis.replay.bulk_actions import mark_of
from angzarr.analysis.replay.job import (
    JOB_LEASE,
    ItemState,
    JobPlan,
    JobStatus,
    Selection,
    job_edit,
)
from angzarr.analysis.replay.job_store import Noted
from angzarr.analysis.replay.job_view import dry_run

CANARY = JobPlan(rate=None)
AT_ONCE = JobPlan(stages=(), rate=None)
GROUP = Selection(wanted=EntryFilter(fingerprint="g1"))
DEADLINE = timedelta(hours=1)


def dry_run_of(jobs, ledger, selection):
    replayer = SimpleNamespace(ledger=ledger, problem=lambda *_: "")
    return dry_run(jobs, replayer, selection, most_replays=10)


def ids_of_dry_run(jobs, ledger, selection):
    """Return the entries that a dry run is about; its mark is of the same, and its sample."""
    ids = [one.entry.id for one in jobs.would_choose(selection, limit=100) if not one.job]
    told = dry_run_of(jobs, ledger, selection)
    assert (told.mark, list(told.sample)) == (mark_of(ids), ids[:5])
    return ids


def ids_of_job(jobs, selection):
    job = jobs.begin(selection, CANARY, by="ann")
    return [one.entry_id for one in jobs.items(job.id)]


class JobsContract:
    """The suite; `ledger` and `jobs` begin empty, share a database and read `clock`."""

    @pytest.fixture
    def clock(self):
        return HandClock()

    @pytest.fixture
    def ledger(self, clock):
        raise NotImplementedError

    @pytest.fixture
    def jobs(self, ledger, clock):
        raise NotImplementedError

    @pytest.fixture
    def hold(self, ledger):
        """File entries of a group, held for a person; return them, oldest failure first."""

        def file(count=3, group="g1", decision=HOLD, **fields):
            numbers = itertools.count(len(ledger.get_failed_events(status=None).entries))
            letters = [
                letter_of(
                    f"e{number}",
                    fingerprint=group,
                    last_attempt_at=START + timedelta(seconds=number),
                    **fields,
                )
                for number, _ in zip(numbers, range(count), strict=False)
            ]
            entries = ledger.add_failed_events(letters)
            ledger.decide(
                [Decided(entry_id=e.id, revision=e.revision, decision=decision) for e in entries],
                by="me",
            )
            return [ledger.open(entry.id).entry for entry in entries]

        return file

    @pytest.fixture
    def send(self, jobs, ledger):
        """Take a job and send what may begin now, as an engine would; return the entries' ids."""

        def send(job, limit=100, engine="a"):
            assert job.id in {one.id for one in jobs.take(engine, lease=JOB_LEASE, limit=10)}
            begun = jobs.begin_next(job.id, engine, limit=limit, most_replays=10)
            for one in begun:
                entry = ledger.open(one.entry_id).entry
                assert ledger.mark_retrying(
                    entry.id, one.replay, revision=entry.revision, by="job", lease=LEASE
                )
                assert ledger.mark_published(entry.id, one.replay, answer_by=START + DEADLINE)
            jobs.note(job.id, engine, [Noted(one.position, ItemState.SENT) for one in begun])
            return [one.entry_id for one in begun]

        return send

    # -- lanes ---------------------------------------------------------------------------

    def test_what_is_parked_holds_no_canary_up_and_fails_no_job(self, jobs, ledger, hold, send):
        hold(3)
        job = jobs.begin(GROUP, JobPlan(stages=(2,), rate=None), by="ann")
        parked, handled = send(job, limit=2)
        ledger.note_answers([ReplayAnswer(parked, 1, "replay 1 (parked)", Status.RETRYING)])
        ledger.mark_answered(handled, 1, by="replay 1 (handled)")
        after = jobs.reconcile(job.id, "a")
        assert (after.status, after.stage) == (JobStatus.RUNNING, 1)
        assert (after.handled, after.failed, after.unanswered) == (1, 0, 1)
        states = [one.state for one in jobs.items(job.id)]
        assert states == [ItemState.PARKED, ItemState.HANDLED, ItemState.CHOSEN]
        (last,) = send(job)
        ledger.mark_answered(last, 1, by="replay 1 (handled)")
        assert jobs.reconcile(job.id, "a").status is JobStatus.DONE

    # -- choosing ------------------------------------------------------------------------

    def test_a_job_has_the_entries_of_its_group_oldest_failure_first(self, jobs, hold):
        entries = hold(3)
        hold(2, group="g2")
        job = jobs.begin(GROUP, CANARY, by="ann", note="the bank is back")
        assert (job.status, job.total, job.left, job.out) == (JobStatus.RUNNING, 3, 3, 0)
        assert (job.group, job.handlers) == ("g1", ("orders.sync",))
        assert jobs.open_job(job.id) == job
        assert [item.entry_id for item in jobs.items(job.id)] == [entry.id for entry in entries]
        (line,) = jobs.job_history(job.id)
        assert (line.who, line.what) == ("ann", "running")
        assert "the bank is back" in line.detail

    def test_the_content_of_a_job_never_shifts(self, jobs, hold):
        before = hold(2)
        job = jobs.begin(GROUP, CANARY, by="ann")
        hold(3)
        assert [item.entry_id for item in jobs.items(job.id)] == [entry.id for entry in before]
        assert jobs.open_job(job.id).total == 2

    @pytest.mark.parametrize("sequence", list(Expectation))
    @pytest.mark.parametrize("original", [False, True])
    def test_selection_and_plan_are_kept_as_they_were(self, jobs, hold, original, sequence):
        hold(1)
        selection = Selection(
            wanted=EntryFilter(
                domain="order",
                failure_class=FailureClass.CODE_DEFECT,
                since=START - timedelta(days=1),
                until=START + timedelta(days=1),
            ),
            status=Status.HELD,
            limit=7,
        )
        plan = JobPlan(
            stages=(2, 3), rate=0.5, in_flight=9, halt_share=0.5, original=original,
            sequence=sequence,
        )  # fmt: skip
        job = jobs.begin(selection, plan, by="ann")
        kept = jobs.open_job(job.id)
        assert (kept.selection, kept.plan, kept.total) == (selection, plan, 1)

    def test_a_limit_takes_those_that_failed_longest_ago(self, jobs, hold):
        entries = hold(5)
        job = jobs.begin(replace(GROUP, limit=2), CANARY, by="ann")
        assert [one.entry_id for one in jobs.items(job.id)] == [one.id for one in entries[:2]]

    @pytest.mark.parametrize("by_id", [False, True])
    def test_a_dry_run_of_a_limit_is_of_what_the_job_then_has(self, jobs, ledger, hold, by_id):
        hold(2)
        at_once = [
            letter_of(f"tie{number}", fingerprint="g1", last_attempt_at=START + timedelta(days=1))
            for number in range(5)
        ]
        tied = ledger.add_failed_events(at_once)
        hold(2)
        named = tuple(one.id for one in tied) if by_id else ()
        selection = replace(Selection(entry_ids=named) if by_id else GROUP, limit=4)
        assert dry_run_of(jobs, ledger, selection).looked_at == 4
        assert ids_of_dry_run(jobs, ledger, selection) == ids_of_job(jobs, selection)

    def test_a_dry_run_leaves_out_what_a_job_leaves_out(self, jobs, ledger, hold):
        skip = replace(HOLD, action="skip")
        hold(1, decision=skip)
        resolved, retrying, others, *_ = hold(9)
        resolve(ledger, resolved.id, "ann")
        ledger.mark_retrying(retrying.id, 1, revision=retrying.revision, by="ann", lease=LEASE)
        first = jobs.begin(Selection(entry_ids=(others.id,)), CANARY, by="bob")
        selection = replace(GROUP, limit=4)
        told = dry_run_of(jobs, ledger, selection)
        assert (told.looked_at, told.would_send) == (4, 3)
        assert told.refused == {f"it is in job {first.id}, which is not finished": 1}
        assert len(told.sample) == 3
        assert ids_of_dry_run(jobs, ledger, selection) == ids_of_job(jobs, selection)
        for status in (Status.RETRYING, Status.RESOLVED):
            assert jobs.would_choose(replace(GROUP, status=status), limit=9) == []
        skipped = replace(GROUP, status=Status.SKIPPED)
        assert ids_of_dry_run(jobs, ledger, skipped) == ids_of_job(jobs, skipped)

    def test_without_a_status_what_is_settled_or_under_way_is_not_chosen(self, jobs, ledger, hold):
        skip = replace(HOLD, action="skip")
        skipped, resolved, retrying, free = hold(1, decision=skip) + hold(3)
        resolve(ledger, resolved.id, "ann")
        ledger.mark_retrying(retrying.id, 1, revision=retrying.revision, by="ann", lease=LEASE)
        job = jobs.begin(GROUP, CANARY, by="ann")
        assert [one.entry_id for one in jobs.items(job.id)] == [free.id]
        named = jobs.begin(replace(GROUP, status=Status.SKIPPED), CANARY, by="ann")
        assert [one.entry_id for one in jobs.items(named.id)] == [skipped.id]
        nothing = jobs.begin(replace(GROUP, status=Status.RETRYING), CANARY, by="ann")
        assert (nothing.total, nothing.status) == (0, JobStatus.DONE)
        assert jobs.open_job(nothing.id) is None

    def test_jobs_are_found_by_how_their_ids_begin(self, jobs, hold):
        for number, entry in enumerate(hold(3)):
            chosen = Selection(entry_ids=(entry.id,))
            jobs.begin(chosen, CANARY, by="ann", job_id=f"ab_{number % 2}{number}")
        for prefix, ids in (("ab_0", {"ab_00", "ab_02"}), ("abx", set()), ("b_0", set())):
            assert {job.id for job in jobs.get_jobs(prefix=prefix).jobs} == ids

    def test_entries_may_be_named(self, jobs, hold):
        entries = hold(4)
        ids = (entries[2].id, entries[0].id, entries[2].id, "f" * 64)
        job = jobs.begin(Selection(entry_ids=ids), CANARY, by="ann")
        assert {one.entry_id for one in jobs.items(job.id)} == {ids[0], ids[1]}
        assert job.total == 2

    def test_an_entry_is_in_one_unfinished_job_and_the_second_says_which(self, jobs, hold):
        hold(3)
        first = jobs.begin(replace(GROUP, limit=2), CANARY, by="ann")
        second = jobs.begin(GROUP, CANARY, by="bob")
        assert second.total == 1
        assert f"2 more are in job {first.id}" in second.said
        nothing = jobs.begin(GROUP, CANARY, by="bob")
        assert (nothing.total, nothing.status) == (0, JobStatus.DONE)
        assert "3 more are in job" in nothing.said
        jobs.cancel(first.id, by="ann")
        assert jobs.begin(GROUP, CANARY, by="bob").total == 2

    def test_the_same_job_id_twice_is_one_job(self, jobs, hold):
        hold(2)
        job = jobs.begin(GROUP, CANARY, by="ann", job_id="key-1")
        assert jobs.begin(GROUP, AT_ONCE, by="ann", job_id="key-1") == job
        assert len(jobs.get_jobs().jobs) == 1

    def test_people_who_begin_at_once_share_the_entries_out(self, jobs, hold):
        hold(20)
        with ThreadPoolExecutor(4) as pool:
            begun = list(pool.map(lambda n: jobs.begin(GROUP, CANARY, by=f"p{n}"), range(4)))
        assert sum(job.total for job in begun) == 20

    def test_jobs_that_one_person_begins_at_once_add_up(self, jobs, hold, monkeypatch):
        for group in ("g1", "g2"):
            hold(3, group=group)
        both, besides = threading.Barrier(2), job_approval.besides

        def look(others, job):
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.5)  # where both may look, they do so at one moment
            return besides(others, job)

        monkeypatch.setattr(job_approval, "besides", look)

        def begin(group):
            wanted = Selection(wanted=EntryFilter(fingerprint=group))
            return jobs.begin(wanted, CANARY, by="ann@here", approval_over=4)

        with ThreadPoolExecutor(2) as pool:
            begun = list(pool.map(begin, ("g1", "g2")))
        assert {job.status for job in begun} == {JobStatus.RUNNING, JobStatus.PROPOSED}

    # -- retention -----------------------------------------------------------------------

    @pytest.fixture
    def ended(self, jobs, hold, send, ledger):
        """Have a job of some entries begin, go on and end as *answer* says."""

        def end(selection=GROUP, count=3, **begun):
            hold(count)
            job = jobs.begin(selection, AT_ONCE, by="ann", **begun)
            for entry_id in send(job):
                ledger.mark_answered(entry_id, 1, by="replay 1 (handled)")
            done = jobs.reconcile(job.id, "a")
            assert done.status is JobStatus.DONE
            return done

        return end

    def test_ended_jobs_go_with_their_entries_and_histories(self, jobs, hold, ended, clock):
        job = ended()
        clock.sleep(timedelta(days=90))
        assert jobs.prune(START, limit=10) == 0
        assert jobs.prune(clock.now(), limit=10) == 4
        assert jobs.open_job(job.id) is None
        assert (jobs.items(job.id), jobs.job_history(job.id)) == ([], ())
        assert jobs.prune(clock.now(), limit=10) == 0

    def test_a_large_job_goes_in_batches_and_last_of_all_itself(self, jobs, ended, clock):
        first = ended(count=3)
        clock.sleep(timedelta(seconds=1))
        second = ended(count=2)
        clock.sleep(timedelta(days=1))
        assert jobs.prune(clock.now(), limit=2) == 2
        assert [item.position for item in jobs.items(first.id)] == [3]
        assert jobs.open_job(first.id) == first
        assert jobs.prune(clock.now(), limit=2) == 2
        assert jobs.open_job(first.id) is None
        assert jobs.open_job(second.id) == second
        assert [jobs.prune(clock.now(), limit=2) for _ in range(3)] == [2, 1, 0]
        assert jobs.get_jobs().jobs == ()

    @pytest.mark.parametrize("verb", ["propose", "run", "pause", "halt"])
    def test_no_unfinished_job_goes(self, jobs, ledger, hold, send, clock, verb):
        hold(2)
        job = jobs.begin(GROUP, CANARY, by="ann", approval_over=1 if verb == "propose" else None)
        if verb == "pause":
            jobs.pause(job.id, by="ann")
        if verb == "halt":
            send(job, limit=1)
            ledger.add_failed_event(letter_of("e0", replay=1, fingerprint="g1"))
            assert jobs.reconcile(job.id, "a").status is JobStatus.HALTED
        clock.sleep(timedelta(days=900))
        assert jobs.prune(clock.now(), limit=10) == 0
        assert len(jobs.items(job.id)) == 2

    def test_a_job_stays_until_all_that_it_sent_is_answered(self, jobs, ledger, hold, send, clock):
        hold(2, group="")
        job = jobs.begin(Selection(), CANARY, by="ann")
        (entry_id,) = send(job, limit=1)
        jobs.cancel(job.id, by="ann")
        clock.sleep(timedelta(days=900))
        assert jobs.prune(clock.now(), limit=10) == 0
        ledger.mark_answered(entry_id, 1, by="replay 1 (handled)")
        jobs.take("a", lease=JOB_LEASE, limit=10)
        assert jobs.reconcile(job.id, "a").out == 0
        assert jobs.prune(clock.now(), limit=10) == 3

    def test_a_job_stays_while_its_group_has_open_entries(self, jobs, ledger, hold, ended, clock):
        job = ended()
        (again,) = hold(1)
        clock.sleep(timedelta(days=900))
        assert jobs.prune(clock.now(), limit=10) == 0
        assert jobs.open_job(job.id) == job
        resolve(ledger, again.id)
        assert jobs.prune(clock.now(), limit=10) == 4

    def test_an_entry_whose_job_is_gone_is_nobodys_and_may_be_in_another(
        self, jobs, ledger, hold, ended, clock
    ):
        job = ended(Selection(entry_ids=tuple(entry.id for entry in hold(2))), 1, job_id="mine")
        failed = ledger.add_failed_event(letter_of("e0", replay=2, fingerprint="g1"))
        clock.sleep(timedelta(days=90))
        assert jobs.prune(clock.now(), limit=10) == 3
        assert jobs.owners([failed]) == {}
        again = jobs.begin(GROUP, CANARY, by="bob", job_id=job.id)
        assert (again.created_by, again.total) == ("bob", 2)
        assert len(jobs.items(again.id)) == 2

    # -- people --------------------------------------------------------------------------

    def test_a_large_job_waits_for_a_second_person(self, jobs, hold):
        hold(3)
        job = jobs.begin(GROUP, CANARY, by="ann", approval_over=2)
        assert job.status is JobStatus.PROPOSED
        assert jobs.take("a", lease=JOB_LEASE, limit=10) == []
        assert jobs.approve(job.id, by="ann") is None
        assert jobs.approve(job.id, by="bob").status is JobStatus.RUNNING
        assert jobs.open_job(job.id).approved_by == "bob"
        assert [(one.who, one.what) for one in jobs.job_history(job.id)][1:] == [
            ("bob", "approved")
        ]
        assert jobs.begin(GROUP, CANARY, by="ann", approval_over=3).status is JobStatus.DONE

    @pytest.mark.parametrize("by", ["ann", "Ann@elsewhere"])
    def test_many_small_jobs_of_one_person_are_a_large_one(self, jobs, hold, by):
        entries = hold(6)
        for person, at in (("ann", 0), ("bob", 2)):
            two = Selection(entry_ids=tuple(entry.id for entry in entries[at : at + 2]))
            small = jobs.begin(two, CANARY, by=person, approval_over=3)
            assert (small.status, small.total) == (JobStatus.RUNNING, 2)
        job = jobs.begin(GROUP, CANARY, by=by, approval_over=3)
        assert job.status is JobStatus.PROPOSED
        assert "with 2 of other jobs" in job.said

    def test_what_small_jobs_sent_counts_for_a_day(self, jobs, ledger, hold, send, clock):
        hold(3)
        small = jobs.begin(replace(GROUP, limit=2), AT_ONCE, by="ann", approval_over=2)
        for entry_id in send(small):
            ledger.mark_answered(entry_id, 1, by="replay 1 (handled)")
        assert jobs.reconcile(small.id, "a").status is JobStatus.DONE
        hold(2)
        job = jobs.begin(GROUP, CANARY, by="ann", approval_over=3)
        assert job.status is JobStatus.PROPOSED
        jobs.cancel(job.id, by="ann")
        clock.sleep(timedelta(days=1))
        assert jobs.begin(GROUP, CANARY, by="ann", approval_over=3).status is JobStatus.RUNNING

    def test_one_entry_is_no_job_that_a_second_person_approves(self, jobs, hold):
        hold(1)
        assert jobs.begin(GROUP, CANARY, by="ann", approval_over=0).status is JobStatus.RUNNING

    # -- edits ---------------------------------------------------------------------------

    @pytest.fixture
    def edit_of(self):
        def make(entry, *, needs_approval=True):
            before = letter_of(entry.event_id)
            after = replace(before, message=replace(before.message, body=b"[[1], {}, {}]"))
            order = ReplayOrder(letter=after, before=before, said="/total: 3 → 1")
            return job_edit(entry, order, needs_approval=needs_approval)

        return make

    def test_an_edit_is_kept_with_its_job_and_waits_for_a_second_person(self, jobs, hold, edit_of):
        (entry,) = hold(1)
        chosen, edit = Selection(entry_ids=(entry.id,)), edit_of(entry)
        job = jobs.begin(chosen, CANARY, by="ann", job_id="key-1", edit=edit)
        assert (job.status, job.edit) == (JobStatus.PROPOSED, edit.sha256)
        assert jobs.open_job(job.id) == job
        assert jobs.job_edit(job.id) == edit
        (line,) = jobs.job_history(job.id)
        assert edit.sha256 in line.detail
        assert "/total: 3 → 1" in line.detail
        again = jobs.begin(chosen, CANARY, by="ann", job_id="key-1", edit=edit_of(entry))
        assert again == job
        assert jobs.approve(job.id, by="ann") is None
        assert jobs.approve(job.id, by="bob").status is JobStatus.RUNNING
        assert jobs.job_edit(job.id) == edit

    def test_an_edit_that_needs_nobody_begins_at_once(self, jobs, hold, edit_of):
        (entry,) = hold(1)
        edit = edit_of(entry, needs_approval=False)
        job = jobs.begin(Selection(entry_ids=(entry.id,)), CANARY, by="ann", edit=edit)
        assert (job.status, jobs.job_edit(job.id)) == (JobStatus.RUNNING, edit)

    def test_an_edit_of_an_entry_that_another_job_has_is_not_kept(self, jobs, hold, edit_of):
        (entry,) = hold(1)
        chosen = Selection(entry_ids=(entry.id,))
        first = jobs.begin(chosen, CANARY, by="ann")
        job = jobs.begin(chosen, CANARY, by="bob", edit=edit_of(entry))
        assert (job.status, job.total) == (JobStatus.DONE, 0)
        assert first.id in job.said
        assert jobs.job_edit(job.id) is None
        assert jobs.job_edit("nobody's") is jobs.job_edit(first.id) is None

    def test_an_edit_goes_with_its_job(self, jobs, hold, edit_of, clock):
        (entry,) = hold(1)
        chosen = Selection(entry_ids=(entry.id,))
        job = jobs.begin(chosen, CANARY, by="ann", edit=edit_of(entry))
        jobs.cancel(job.id, by="ann")
        clock.sleep(timedelta(days=1))
        assert jobs.prune(clock.now(), limit=10) > 0
        assert jobs.open_job(job.id) is None
        assert jobs.job_edit(job.id) is None

    # -- verbs ---------------------------------------------------------------------------

    def test_verbs_change_a_job_only_in_the_right_state(self, jobs, hold):
        hold(2)
        job = jobs.begin(GROUP, CANARY, by="ann")
        assert jobs.resume(job.id, by="ann") is None
        assert jobs.pause(job.id, by="ann").status is JobStatus.PAUSED
        assert jobs.pause(job.id, by="ann") is None
        again = jobs.resume(job.id, by="bob")
        assert (again.status, again.round) == (JobStatus.RUNNING, 2)
        assert jobs.cancel(job.id, by="bob").ended_at is not None
        for verb in (jobs.pause, jobs.resume, jobs.cancel, jobs.approve):
            assert verb(job.id, by="eve") is None
            assert verb("nobody's", by="eve") is None
        told = [(line.who, line.what) for line in jobs.job_history(job.id)]
        assert told[1:] == [("ann", "paused"), ("bob", "resumed"), ("bob", "cancelled")]

    @pytest.mark.parametrize("verb", ["approve", "pause", "resume", "cancel"])
    def test_a_verb_is_done_to_the_job_that_was_seen(self, jobs, hold, verb):
        hold(2)
        job = jobs.begin(GROUP, CANARY, by="ann", approval_over=1 if verb == "approve" else None)
        if verb == "resume":
            job = jobs.pause(job.id, by="ann")
        do = getattr(jobs, verb)
        assert do(job.id, by="bob", revision=job.revision - 1) is None
        assert do(job.id, by="bob", revision=job.revision + 1) is None
        assert jobs.open_job(job.id) == job
        done = do(job.id, by="bob", revision=job.revision)
        assert done.revision > job.revision

    def test_jobs_are_paged_newest_first(self, jobs, hold, clock):
        begun = []
        for number in range(5):
            hold(1, group=f"p{number}")
            begun.append(jobs.begin(Selection(), CANARY, by="ann").id)
            clock.sleep(timedelta(seconds=number % 2))
        seen, after = [], ""
        while True:
            page = jobs.get_jobs((JobStatus.RUNNING,), limit=2, after=after)
            seen += [job.id for job in page.jobs]
            if not (after := page.next):
                break
        assert sorted(seen) == sorted(begun)
        assert seen[0] == begun[-1]
        assert jobs.get_jobs((JobStatus.DONE,)).jobs == ()

    def test_jobs_of_one_group_and_of_none_are_found(self, jobs, hold):
        named = hold(1, group="g2")[0].id
        hold(2)
        mine = jobs.begin(GROUP, CANARY, by="ann")
        of_ids = jobs.begin(Selection(entry_ids=(named,)), CANARY, by="ann")
        assert [job.id for job in jobs.get_jobs(group=mine.group).jobs] == [mine.id]
        assert [job.id for job in jobs.get_jobs(group="").jobs] == [of_ids.id]
        assert jobs.get_jobs(group="unknown").jobs == ()

    # -- engines -------------------------------------------------------------------------

    def test_stages_go_on_as_entries_are_answered(self, jobs, ledger, hold, send):
        hold(7)
        job = jobs.begin(GROUP, CANARY, by="ann")
        for size in (1, 4, 2):
            sent = send(job, limit=size)
            assert len(sent) == size
            assert jobs.reconcile(job.id, "a").out == size
            for entry_id in sent:
                assert ledger.mark_answered(entry_id, 1, by="replay 1 (handled)")
            jobs.reconcile(job.id, "a")
        done = jobs.open_job(job.id)
        assert (done.status, done.handled, done.left) == (JobStatus.DONE, 7, 0)
        assert done.ended_at is not None
        told = [line.what for line in jobs.job_history(job.id)]
        assert told == ["running", "stage 2", "stage 3", "done"]
        assert {item.state for item in jobs.items(job.id)} == {ItemState.HANDLED}

    def test_a_letter_and_a_missing_answer_both_count_as_failures(self, jobs, ledger, hold, send):
        hold(4)
        job = jobs.begin(GROUP, JobPlan(stages=(), rate=None, halt_share=0.9), by="ann")
        first, second, third, _ = send(job)
        ledger.mark_answered(first, 1, by="replay 1 (handled)")
        ledger.add_failed_event(
            letter_of(ledger.open(second).entry.event_id, replay=1, fingerprint="g1")
        )
        late = ledger.open(third).entry
        ledger.decide([Decided(entry_id=third, revision=late.revision, decision=HOLD)], by="me")
        job = jobs.reconcile(job.id, "a")
        assert (job.handled, job.failed, job.unanswered, job.out) == (1, 1, 1, 1)
        assert (job.stage_answered, job.recent) == (3, "hff")
        states = [item.state.value for item in jobs.items(job.id)]
        assert states == ["handled", "failed", "unanswered", "sent"]

    def test_entries_that_changed_are_refused_with_the_reason(self, jobs, ledger, hold, send):
        changed, *rest = hold(3)
        job = jobs.begin(GROUP, AT_ONCE, by="ann")
        resolve(ledger, changed.id, "eve")
        assert send(job) == [entry.id for entry in rest]
        job = jobs.open_job(job.id)
        assert (job.sent, job.refused) == (2, 1)
        (refused,) = jobs.items(job.id, (ItemState.REFUSED,))
        assert (refused.entry_id, refused.reason) == (changed.id, "the entry is resolved")

    def test_an_entry_that_was_replayed_since_the_job_chose_it_is_not_what_was_approved(
        self, jobs, ledger, hold, send
    ):
        replayed, *rest = hold(3)
        job = jobs.begin(GROUP, AT_ONCE, by="ann", approval_over=1)
        begun = ledger.mark_retrying(
            replayed.id, 1, revision=ledger.open(replayed.id).entry.revision, by="eve",
            lease=timedelta(seconds=30),
        )  # fmt: skip
        assert begun
        ledger.add_failed_event(letter_of(replayed.event_id, replay=1, fingerprint="g1"))
        assert jobs.approve(job.id, by="bob")
        assert send(job) == [entry.id for entry in rest]
        assert jobs.open_job(job.id).refused == 1
        (refused,) = jobs.items(job.id, (ItemState.REFUSED,))
        assert refused.reason == "the entry was replayed since the job chose it: replay it anew"

    def test_what_waits_for_a_second_person_where_it_is_sent_elsewhere(self, jobs, hold):
        (entry,) = hold(1)
        chosen, plan = Selection(entry_ids=(entry.id,)), JobPlan(stages=(1,), to_queue="spare")
        job = jobs.begin(chosen, plan, by="ann", redirects_wait=True)
        assert job.status is JobStatus.PROPOSED
        assert job.said == "sent to queue spare: a second person must approve"
        jobs.cancel(job.id, by="ann")
        for other, waits in ((plan, False), (CANARY, True)):
            job = jobs.begin(chosen, other, by="ann", redirects_wait=waits)
            assert job.status is JobStatus.RUNNING
            jobs.cancel(job.id, by="ann")

    def test_a_job_of_nothing_but_refusals_is_done(self, jobs, ledger, hold, send):
        (only,) = hold(1)
        job = jobs.begin(GROUP, CANARY, by="ann")
        resolve(ledger, only.id, "eve")
        assert send(job) == []
        assert jobs.open_job(job.id).status is JobStatus.DONE

    def test_an_entry_is_replayed_by_jobs_only_so_often(self, jobs, hold):
        hold(1)
        job = jobs.begin(GROUP, AT_ONCE, by="ann")
        jobs.take("a", lease=JOB_LEASE, limit=1)
        assert jobs.begin_next(job.id, "a", limit=5, most_replays=0) == []
        (refused,) = jobs.items(job.id)
        assert "replayed 0 times" in refused.reason

    def test_what_has_begun_comes_again_until_it_is_noted(self, jobs, hold):
        hold(5)
        job = jobs.begin(GROUP, AT_ONCE, by="ann")
        jobs.take("a", lease=JOB_LEASE, limit=1)
        begun = jobs.begin_next(job.id, "a", limit=2, most_replays=10)
        assert [one.replay for one in begun] == [1, 1]
        assert jobs.begin_next(job.id, "a", limit=2, most_replays=10) == begun
        refused, back = begun
        jobs.note(
            job.id,
            "a",
            [
                Noted(refused.position, ItemState.REFUSED, "no handler"),
                Noted(back.position, ItemState.CHOSEN),
            ],
            said="waits: the broker is away",
        )
        job = jobs.open_job(job.id)
        assert (job.sent, job.refused, job.left) == (0, 1, 4)
        assert job.said == "waits: the broker is away"
        assert jobs.begin_next(job.id, "a", limit=1, most_replays=10) == [back]

    def test_what_began_and_was_not_noted_is_sent_if_its_entry_says_so(self, jobs, ledger, hold):
        hold(3)
        job = jobs.begin(GROUP, replace(AT_ONCE, rate=2.0), by="ann")
        jobs.take("a", lease=JOB_LEASE, limit=1)
        begun = jobs.begin_next(job.id, "a", limit=2, most_replays=10)
        entry = ledger.open(begun[0].entry_id).entry
        ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="job", lease=LEASE)
        ledger.mark_published(entry.id, 1, answer_by=START + DEADLINE)
        after = jobs.reconcile(job.id, "a")
        assert (after.sent, after.left, after.out, after.stage_sent) == (1, 2, 1, 1)
        assert after.tokens == 1
        states = [item.state.value for item in jobs.items(job.id)]
        assert states == ["sent", "chosen", "chosen"]
        assert jobs.begin_next(job.id, "a", limit=2, most_replays=10)[0] == begun[1]
        ledger.mark_answered(entry.id, 1, by="replay 1 (handled)")
        assert jobs.reconcile(job.id, "a").handled == 1

    def test_one_that_began_is_not_put_back_by_a_note(self, jobs, ledger, hold, send):
        hold(2)
        job = jobs.begin(GROUP, AT_ONCE, by="ann")
        jobs.take("a", lease=JOB_LEASE, limit=1)
        begun = jobs.begin_next(job.id, "a", limit=2, most_replays=10)
        entry = ledger.open(begun[1].entry_id).entry
        ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="job", lease=LEASE)
        jobs.note(job.id, "a", [Noted(one.position, ItemState.CHOSEN) for one in begun])
        assert [item.state.value for item in jobs.items(job.id)] == ["chosen", "sent"]
        assert jobs.open_job(job.id).sent == 1

    def test_the_history_names_the_worker_and_not_the_token_of_its_lease(
        self, jobs, ledger, hold, send
    ):
        (entry,) = hold(1)
        hold(1)
        job = jobs.begin(GROUP, CANARY, by="ann")
        send(job, limit=1)
        jobs.note(job.id, "a", (), said="waits: the broker is away", by="analysis@vm:1")
        ledger.add_failed_event(letter_of(entry.event_id, replay=1, fingerprint="g1"))
        assert jobs.reconcile(job.id, "a", by="analysis@vm:2").status is JobStatus.HALTED
        jobs.resume(job.id, by="bob")
        jobs.take("b", lease=JOB_LEASE, limit=1)
        assert jobs.reconcile(job.id, "b", by="analysis@vm:3") is None
        jobs.begin_next(job.id, "a", limit=1, most_replays=0, by="analysis@vm:4")
        told = [(line.who, line.what) for line in jobs.job_history(job.id)]
        assert told == [
            ("ann", "running"),
            ("analysis@vm:1", "waits"),
            ("analysis@vm:2", "halted"),
            ("bob", "resumed"),
            ("analysis@vm:4", "done"),
        ]

    def test_one_engine_has_a_job_until_its_lease_ends(self, jobs, hold, clock):
        hold(3)
        job = jobs.begin(GROUP, AT_ONCE, by="ann")
        assert [one.id for one in jobs.take("a", lease=JOB_LEASE, limit=5)] == [job.id]
        assert jobs.take("b", lease=JOB_LEASE, limit=5) == []
        clock.sleep(JOB_LEASE / 2)
        assert jobs.take("a", lease=JOB_LEASE, limit=5)
        clock.sleep(JOB_LEASE / 2)
        assert jobs.take("b", lease=JOB_LEASE, limit=5) == []
        clock.sleep(JOB_LEASE / 2)
        begun = jobs.begin_next(job.id, "a", limit=1, most_replays=10)
        assert jobs.take("b", lease=JOB_LEASE, limit=5)
        noted = [Noted(one.position, ItemState.SENT) for one in begun]
        assert jobs.note(job.id, "a", noted) is None
        assert jobs.begin_next(job.id, "a", limit=1, most_replays=10) == []
        assert jobs.reconcile(job.id, "a") is None
        assert jobs.begin_next(job.id, "b", limit=1, most_replays=10) == begun

    def test_two_jobs_over_one_group_go_one_after_the_other(self, jobs, hold, clock):
        hold(2)
        first = jobs.begin(replace(GROUP, limit=1), AT_ONCE, by="ann")
        clock.sleep(timedelta(seconds=1))
        second = jobs.begin(GROUP, AT_ONCE, by="bob")
        assert f"waits for job {first.id} over the same group" in second.said
        hold(1, group="g2")
        other = jobs.begin(Selection(), AT_ONCE, by="bob")
        taken = {job.id for job in jobs.take("a", lease=JOB_LEASE, limit=5)}
        assert taken == {first.id, other.id}
        jobs.cancel(first.id, by="ann")
        taken = {job.id for job in jobs.take("a", lease=JOB_LEASE, limit=5)}
        assert taken == {second.id, other.id}

    def test_what_is_under_way_is_answered_whatever_a_person_did(self, jobs, ledger, hold, send):
        hold(2)
        job = jobs.begin(GROUP, AT_ONCE, by="ann")
        sent = send(job, limit=1)
        jobs.cancel(job.id, by="ann")
        assert [one.id for one in jobs.take("a", lease=JOB_LEASE, limit=5)] == [job.id]
        assert jobs.begin_next(job.id, "a", limit=1, most_replays=10) == []
        ledger.mark_answered(sent[0], 1, by="replay 1 (handled)")
        job = jobs.reconcile(job.id, "a")
        assert (job.status, job.handled, job.out) == (JobStatus.CANCELLED, 1, 0)
        assert jobs.take("a", lease=JOB_LEASE, limit=5) == []

    def test_entries_of_a_job_and_failures_of_its_replays_have_an_owner(
        self, jobs, ledger, hold, send
    ):
        waiting, other = hold(2, decision=REPLAY)
        job = jobs.begin(replace(GROUP, limit=1), AT_ONCE, by="ann")
        assert jobs.owners([waiting, other]) == {waiting.id: job.id}
        assert jobs.owners([]) == {}
        send(job)
        failed = ledger.add_failed_event(letter_of(waiting.event_id, replay=1, fingerprint="g1"))
        jobs.reconcile(job.id, "a")
        assert jobs.open_job(job.id).status is JobStatus.DONE
        assert jobs.owners([failed, other]) == {failed.id: job.id}
        ledger.decide(
            [Decided(entry_id=failed.id, revision=failed.revision, decision=REPLAY)], by="me"
        )
        assert jobs.owners([ledger.open(failed.id).entry]) == {}
