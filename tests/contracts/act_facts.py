"""What every ledger must do with acts: each leaves one fact, in the transaction of the act."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import HOLD, letter_of
from tests.hand_clock import HandClock

from angzarr.adapters.sql.facts.rows import row_of
from angzarr.analysis.ledger.emergency_stop import Brake, Scope
from angzarr.analysis.ledger.entry import FailureClass, Status
from angzarr.analysis.ledger.group import Amendment, Groups, GroupStatus
from angzarr.analysis.ledger.ledger import Decided, Ledger, ReplayAnswer
from angzarr.analysis.ledger.operator_actions import Act, Verb
from angzarr.analysis.ledger.replay_options import ReplayOrder
from angzarr.analysis.ledger.transition import Action, EntryDecision
from angzarr.analysis.replay.job import ItemState, JobPlan, Selection
from angzarr.analysis.replay.job_store import Noted, ReplayJobs
from angzarr.facts.act import NAMING, ActKind, ActOrigin, acting_from
from angzarr.facts.fact_text import fact_from_text
from angzarr.facts.resolution import letter_fact_id

#: Verb of a person → the fact that it leaves, and the verb that must come before it.
VERBS = {
    Verb.SKIP: (ActKind.ENTRY_SKIPPED, None),
    Verb.ARCHIVE: (ActKind.ENTRY_ARCHIVED, None),
    Verb.RESTORE: (ActKind.ENTRY_RESTORED, Verb.ARCHIVE),
    Verb.ESCALATE: (ActKind.ENTRY_ESCALATED, None),
    Verb.COMPENSATE: (ActKind.ENTRY_COMPENSATED, None),
    Verb.RESOLVE: (ActKind.ENTRY_RESOLVED, None),
}
#: Verbs of ports that are told who acts: the test below of the fact that each leaves; None: engines
#: and brokers note by them what came of an act.
DRIVEN = {
    (Ledger, "act"): "test_each_verb_leaves_one_fact_with_all_that_people_ask_for",
    (Ledger, "decide"): "test_a_rule_that_closes_an_entry_leaves_a_fact_that_says_it_was_automatic",
    (Ledger, "add_failed_events"): "test_one_that_closes_it_while_it_is_filed_does_too",
    (Ledger, "mark_retrying"): "test_a_replay_says_who_began_it_and_resolves_nothing_yet",
    (Ledger, "mark_answered"): None,
    (Groups, "amend"): "test_what_people_say_of_a_group_is_a_fact",
    (Brake, "put"): "test_the_brake_says_who_moved_it_and_why",
    (ReplayJobs, "begin"): "test_a_job_leaves_a_fact_at_each_turn_that_people_give_it",
    (ReplayJobs, "approve"):
        "test_a_job_that_waits_for_another_person_tells_who_proposed_and_who_approved",
    (ReplayJobs, "pause"): "test_a_job_leaves_a_fact_at_each_turn_that_people_give_it",
    (ReplayJobs, "resume"): "test_a_job_leaves_a_fact_at_each_turn_that_people_give_it",
    (ReplayJobs, "cancel"): "test_a_job_leaves_a_fact_at_each_turn_that_people_give_it",
}  # fmt: skip

EVIL = "evil\x00\x1b[2J\ud800\u2028\u202e"
SKIPPED = EntryDecision(
    action=Action.SKIP, failure_class=FailureClass.BUSINESS_REJECTION, evidence="a rule says so"
)


class ActFactsContract:
    """Subclasses give `ledger` (and groups), `jobs`, `brake` and `outbox` over one database."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def facts(self, outbox):
        """The facts that were put since the last call, oldest first."""

        def take():
            waiting = outbox.read(1000)
            outbox.remove([one.place for one in waiting])
            return [fact_from_text(one.text) for one in waiting]

        return take

    @pytest.fixture
    def held(self, ledger, facts):
        entry = ledger.add_failed_event(traced_letter())
        assert ledger.decide([Decided(entry_id=entry.id, revision=1, decision=HOLD)], by="rule")
        facts()
        return ledger.open(entry.id).entry

    def test_filing_and_holding_is_no_act(self, ledger, facts):
        entry = ledger.add_failed_event(letter_of("e1"))
        ledger.decide([Decided(entry_id=entry.id, revision=1, decision=HOLD)], by="rule")
        assert facts() == []

    @pytest.mark.parametrize("verb", list(Verb))
    def test_each_verb_leaves_one_fact_with_all_that_people_ask_for(
        self, ledger, held, facts, clock, verb
    ):
        kind, before = VERBS[verb]
        if before is not None:
            act(ledger, held, before)
            facts()
        entry = ledger.open(held.id).entry
        with acting_from(ActOrigin.CLI):
            act(ledger, entry, verb, note="order was cancelled")
        (fact,) = facts()
        assert (fact.type, fact.subtype, fact.at) == ("lifecycle", kind.value, clock.now())
        told = (fact.tenant_id, fact.entity_id, fact.tool_id, fact.event_id, fact.trace_id)
        assert told == ("acme", "o-1", "orders.sync", "e1", "7" * 32)
        wanted = {
            "by": "ann", "origin": "cli", "reason": "order was cancelled", "entry_id": entry.id,
            "dlq_message_id": entry.letter_id, "group": entry.fingerprint,
        }  # fmt: skip
        assert wanted.items() <= fact.data.items()
        resolved = letter_fact_id(entry.letter_id) if kind in NAMING else None
        assert fact.resolves == resolved
        filed, *_, last = ledger.open(entry.id).history
        assert (filed.origin, last.origin, last.who) == ("automatic", "cli", "ann")

    def test_an_act_that_does_not_apply_leaves_none(self, ledger, held, facts):
        assert ledger.act([Act(entry_id=held.id, revision=99, verb=Verb.SKIP)], by="ann") == [False]
        assert ledger.act([Act(entry_id="?", revision=1, verb=Verb.SKIP)], by="ann") == [False]
        assert facts() == []

    def test_of_many_acts_each_leaves_its_own(self, ledger, facts):
        entries = ledger.add_failed_events([letter_of(f"e{number}") for number in range(20)])
        ledger.act([skip_of(entry) for entry in entries], by="ann")
        found = facts()
        assert [fact.data["entry_id"] for fact in found] == [entry.id for entry in entries]
        assert len({fact.id for fact in found}) == len(entries)

    def test_who_acts_twice_on_an_entry_leaves_two(self, ledger, held, facts):
        act(ledger, held, Verb.SKIP)
        act(ledger, ledger.open(held.id).entry, Verb.RESTORE)
        act(ledger, ledger.open(held.id).entry, Verb.SKIP)
        found = facts()
        assert [fact.subtype for fact in found] == [
            "entry_skipped", "entry_restored", "entry_skipped",
        ]  # fmt: skip
        assert len({fact.id for fact in found}) == len(found)

    def test_a_replay_says_who_began_it_and_resolves_nothing_yet(self, ledger, held, facts):
        begin_replay(ledger, held)
        (fact,) = facts()
        assert (fact.subtype, fact.data["replay"], fact.data["by"]) == ("entry_replayed", 1, "ann")
        assert (fact.data["edited"], fact.data["order"]) == (False, None)
        assert fact.resolves is None

    def test_a_replay_says_where_it_goes_and_that_it_is_edited(self, ledger, held, facts):
        order = ReplayOrder(to_queue="spare", letter=letter_of("e1"), said="/total: 3 → 4711")
        begin_replay(ledger, held, order=order)
        (fact,) = facts()
        assert (fact.data["edited"], fact.data["order"]) == (
            True, "to queue spare, edited",
        )  # fmt: skip
        assert "4711" not in repr(fact), "the history has values, and may be pruned"

    def test_hostile_letters_and_notes_leave_facts_as_well(self, ledger, jobs, brake, facts):
        names = dict.fromkeys(("handler", "domain", "error_code", "fingerprint"), EVIL)
        entry = ledger.add_failed_event(letter_of("e1", **names))
        act(ledger, entry, Verb.SKIP, note=EVIL * 50)
        amend(ledger, entry, GroupStatus.FIXED)
        brake.put(Scope.ALL, by=EVIL, why=EVIL)
        begin(jobs, ledger.add_failed_event(letter_of("e2")), note=EVIL)
        found = facts()
        assert [fact.subtype for fact in found] == [
            "entry_skipped", "group_changed", "brake_pulled", "replay_job_started",
        ]  # fmt: skip
        assert len({row_of(fact)["id"] for fact in found}) == len(found)

    def test_the_answer_to_a_replay_is_no_act(self, ledger, held, facts):
        begin_replay(ledger, held)
        facts()
        assert ledger.note_answers([ReplayAnswer(held.id, 1, "replay 1")]) == [True]
        assert facts() == []

    def test_a_rule_that_closes_an_entry_leaves_a_fact_that_says_it_was_automatic(
        self, ledger, held, facts
    ):
        decided = Decided(entry_id=held.id, revision=held.revision, decision=SKIPPED)
        assert ledger.decide([decided], by="analysis@host") == [True]
        (fact,) = facts()
        assert (fact.subtype, fact.data["origin"]) == ("entry_skipped", "automatic")
        assert fact.data["by"] == "analysis@host"
        assert "a rule says so" in fact.data["reason"]
        assert fact.resolves == letter_fact_id(held.letter_id)

    def test_one_that_closes_it_while_it_is_filed_does_too(self, ledger, facts):
        ledger.add_failed_events(
            [letter_of("e1")], decide=lambda found: [SKIPPED] * len(found), by="analysis@host"
        )
        (fact,) = facts()
        assert (fact.subtype, fact.data["by"]) == ("entry_skipped", "analysis@host")

    def test_what_people_say_of_a_group_is_a_fact(self, ledger, held, facts):
        with acting_from(ActOrigin.API):
            amend(ledger, held, GroupStatus.FIXED)
        (fact,) = facts()
        assert (fact.subtype, fact.data["by"], fact.data["origin"]) == (
            "group_changed", "ann", "api",
        )  # fmt: skip
        assert fact.data["status"] == "fixed"
        assert amend(ledger, held, GroupStatus.FIXED) is not None
        assert facts() == []  # nothing changed

    def test_a_group_that_fails_again_after_it_was_fixed_is_one(self, ledger, held, facts):
        amend(ledger, held, GroupStatus.FIXED)
        facts()
        with acting_from(ActOrigin.CLI):
            ledger.add_failed_event(letter_of("e2"))
        (fact,) = facts()
        assert (fact.subtype, fact.data["origin"]) == ("group_regressed", "automatic")

    def test_the_brake_says_who_moved_it_and_why(self, brake, facts, clock):
        until = clock.now() + timedelta(hours=1)
        brake.put(Scope.ALL, by="ann", why="crm is down", until=until)
        brake.put(Scope.NOTHING, by="bob")
        pulled, released = facts()
        assert (pulled.subtype, released.subtype) == ("brake_pulled", "brake_released")
        wanted = {"by": "ann", "reason": "crm is down", "scope": "all"}
        assert wanted.items() <= pulled.data.items()
        assert released.data["by"] == "bob"

    def test_a_job_leaves_a_fact_at_each_turn_that_people_give_it(self, jobs, held, facts):
        job = begin(jobs, held)
        jobs.pause(job.id, by="bob")
        jobs.resume(job.id, by="ann")
        jobs.cancel(job.id, by="bob")
        found = facts()
        assert [(fact.subtype, fact.data["by"]) for fact in found] == [
            ("replay_job_started", "ann"), ("replay_job_paused", "bob"),
            ("replay_job_resumed", "ann"), ("replay_job_cancelled", "bob"),
        ]  # fmt: skip
        assert {fact.data["job_id"] for fact in found} == {job.id}
        assert len({fact.id for fact in found}) == len(found)

    def test_a_job_that_waits_for_another_person_tells_who_proposed_and_who_approved(
        self, ledger, jobs, facts
    ):
        entries = ledger.add_failed_events([letter_of("e1"), letter_of("e2")])
        job = begin(jobs, *entries, approval_over=1)
        assert jobs.approve(job.id, by="ann") is None
        jobs.approve(job.id, by="bob")
        proposed, approved = facts()
        assert (proposed.subtype, proposed.data["by"]) == ("replay_job_proposed", "ann")
        assert (approved.subtype, approved.data["approved_by"]) == ("replay_job_approved", "bob")

    def test_the_same_job_twice_leaves_one_fact(self, jobs, held, facts):
        begin(jobs, held, job_id="a")
        begin(jobs, held, job_id="a")
        assert len(facts()) == 1

    def test_the_canary_and_the_end_of_a_job_are_facts_too(self, ledger, jobs, held, facts, clock):
        job = begin(jobs, held)
        facts()
        work_on(jobs, ledger, job, held)
        done = [fact for fact in facts() if fact.subtype.startswith("replay_job")]
        assert [fact.subtype for fact in done] == ["replay_job_done"]
        assert (done[0].data["handled"], done[0].data["by"]) == (1, "worker")

    def test_a_transaction_that_fails_leaves_neither_act_nor_fact(
        self, ledger, held, facts, monkeypatch
    ):
        monkeypatch.setattr("angzarr.adapters.sql.ledger.store.count", fail)
        with pytest.raises(ZeroDivisionError):
            act(ledger, held, Verb.SKIP)
        assert facts() == []
        assert ledger.open(held.id).entry.status is Status.HELD


def traced_letter():
    letter = letter_of("e1")
    event = replace(letter.event, root="o-1", traceparent=f"00-{'7' * 32}-{'1' * 16}-01")
    return replace(letter, event=event)


def fail(*_args):
    raise ZeroDivisionError


def skip_of(entry):
    return Act(entry_id=entry.id, revision=entry.revision, verb=Verb.SKIP)


def act(ledger, entry, verb, note=""):
    one = Act(entry_id=entry.id, revision=entry.revision, verb=verb, note=note)
    assert ledger.act([one], by="ann") == [True]


def begin_replay(ledger, entry, **options):
    lease = timedelta(seconds=30)
    begun = ledger.mark_retrying(
        entry.id, 1, revision=entry.revision, by="ann", lease=lease, **options
    )
    assert begun is not None


def amend(ledger, entry, status):
    group = ledger.open_group(entry.fingerprint)
    amendment = Amendment(status=status)
    return ledger.amend(group.fingerprint, amendment, revision=group.revision, by="ann")


def begin(jobs, *entries, **options):
    wanted = Selection(entry_ids=tuple(entry.id for entry in entries))
    return jobs.begin(wanted, JobPlan(), by="ann", **options)


def work_on(jobs, ledger, job, entry):
    """Have the one entry of *job* sent and handled."""
    (taken,) = jobs.take("engine", lease=timedelta(seconds=30), limit=1)
    (begun,) = jobs.begin_next(taken.id, "engine", limit=10, most_replays=3, by="worker")
    begin_replay(ledger, ledger.open(entry.id).entry)
    jobs.note(job.id, "engine", [Noted(begun.position, ItemState.SENT)], by="worker")
    ledger.mark_published(
        entry.id, 1, answer_by=ledger.open(entry.id).entry.first_failed_at + timedelta(days=1)
    )
    ledger.note_answers([ReplayAnswer(entry.id, 1, "replay 1")])
    jobs.reconcile(job.id, "engine", by="worker")
