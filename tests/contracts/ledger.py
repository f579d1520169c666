"""What every ledger must do. Subclass `LedgerContract` and give it the `ledger` fixture."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.hand_clock import START, HandClock

from angzarr.analysis.ledger.entry import FailureClass, Hold, Status
from angzarr.analysis.ledger.failure import Unreadable, entry_id_of
from angzarr.analysis.ledger.ledger import Decided, EntryFilter, Ledger, ReplayAnswer
from angzarr.analysis.ledger.operator_actions import UNSENT, Act, Verb
from angzarr.analysis.ledger.replay_options import AS_IT_IS, Expectation, ReplayOrder
from angzarr.analysis.ledger.transition import UNDECIDED, Action, EntryDecision
from angzarr.dead_letters.letter import (
    ORDERED_HANDLER,
    DeadLetter,
    Mismatch,
    Reason,
    letter_id,
    unreadable_letter_id,
)
from angzarr.dead_letters.record import ForeignRecord
from angzarr.errors import LedgerUnavailable
from angzarr.events import headers as names
from angzarr.events.event import Event, Message

LEASE = timedelta(seconds=30)
HOLD = EntryDecision(action=Action.HOLD, failure_class=FailureClass.CODE_DEFECT, evidence="a bug")
REPLAY = EntryDecision(
    action=Action.REPLAY,
    failure_class=FailureClass.TRANSIENT_ONGOING,
    evidence="transient",
    delay=timedelta(seconds=30),
)


def message_of(event_id: str = "e1", task: str = "orders.sync", **headers: object) -> Message:
    return Message(
        body=b'[[{"total": 3}], {}, {"callbacks": null}]',
        content_type="application/json",
        content_encoding="utf-8",
        headers={"task": task, "id": f"task-{event_id}", names.EVENT_ID: event_id, **headers},
        queue="orders",
        exchange="",
        routing_key="orders",
    )


def resolve(ledger: Ledger, entry_id: str, by: str = "ann") -> bool:
    """Resolve an entry as it is now, as *by* does who dealt with it by hand."""
    revision = ledger.open(entry_id).entry.revision
    return ledger.act([Act(entry_id=entry_id, revision=revision, verb=Verb.RESOLVE)], by=by)[0]


def letter_of(event_id: str = "e1", replay: int = 0, **fields: object) -> DeadLetter:
    """A transient failure of *event_id* in its replay *replay*."""
    handler, domain = fields.get("handler", "orders.sync"), fields.get("domain", "order")
    headers: dict[str, object] = {}
    if replay:
        headers = {
            names.REPLAY: replay,
            names.LETTER_ID: letter_id(domain, handler, event_id, replay - 1),
        }
    known: dict[str, object] = {
        "id": letter_id(domain, handler, event_id, replay),
        "domain": domain,
        "handler": handler,
        "reason": Reason.EXHAUSTED,
        "explanation": "failed 5 times, no attempt is left",
        "message": message_of(event_id, **headers),
        "event": Event(
            id=event_id,
            type="OrderPlaced",
            data={"total": 3},
            domain="order",
            tenant_id="acme",
            correlation_id="c1",
        ),
        "error_type": "TimeoutError",
        "error_code": "TIMEOUT",
        "error_message": "timed out after 3 s",
        "error_stack": 'File "/srv/app/orders.py", line 12, in sync\n',
        "category": "transient",
        "attempts": 5,
        "replay": replay,
        "first_attempt_at": START - timedelta(minutes=5),
        "last_attempt_at": START + timedelta(minutes=replay),
        "sent_to_dlq_at": START + timedelta(minutes=replay),
        "worker": "w1",
        "version": "1.0",
    }
    return DeadLetter(**{**known, **fields})  # type: ignore[arg-type]


def ordered_letter_of(
    event_id: str = "e1", sequence: int | None = 3, root: str | None = "o-1", **fields: object
) -> DeadLetter:
    """A failure of an ordered handler: later events of *root* wait behind it."""
    event = Event(
        id=event_id, type="OrderPaid", data={}, domain="order", root=root, sequence=sequence
    )
    message = message_of(event_id, **{names.SEQUENCE: sequence})
    known = {"component_type": ORDERED_HANDLER, "event": event, "message": message}
    return letter_of(event_id, **{**known, **fields})


def unreadable_message(replay: int = 0, **headers: object) -> DeadLetter:
    """A letter whose message nobody could read: its id is the hash of the bytes."""
    message = Message(
        body=b"\xff\x00",
        content_type="application/json",
        content_encoding="binary",
        headers={"task": "orders.sync", "id": "t1", **headers},
        queue="orders",
    )
    return letter_of(
        "?",
        id=unreadable_letter_id("orders", message.body),
        event=None,
        message=message,
        reason=Reason.UNDELIVERABLE,
        replay=replay,
    )


class LedgerContract:
    """The suite; `ledger` begins empty and reads `clock`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def ledger(self, clock: HandClock) -> Ledger:
        raise NotImplementedError

    @pytest.fixture
    def replaying(self, ledger: Ledger) -> Callable[[str], str]:
        """Bring a fresh entry to its first, published replay; return its id."""

        def begin(event_id: str = "e1") -> str:
            entry = ledger.add_failed_event(letter_of(event_id))
            begun = ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="me", lease=LEASE)
            assert begun
            assert ledger.mark_published(entry.id, 1, answer_by=START + timedelta(hours=1))
            return entry.id

        return begin

    # -- filing --------------------------------------------------------------------------

    def test_filed_letter_has_all_fields_of_the_spec(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        detail = ledger.open(entry.id)
        assert detail.entry == entry
        assert detail.failure == letter_of()
        assert (entry.event_id, entry.handler_name, entry.event_type, entry.domain) == (
            "e1", "orders.sync", "OrderPlaced", "order",
        )  # fmt: skip
        assert (entry.error_type, entry.error_message) == ("TimeoutError", "timed out after 3 s")
        assert (entry.tenant_id, entry.correlation_id) == ("acme", "c1")
        assert (entry.retry_count, entry.replays, entry.occurrences) == (4, 0, 1)
        assert entry.first_failed_at == START - timedelta(minutes=5)
        assert entry.last_failed_at == START
        assert entry.status is Status.FAILED
        assert entry.fingerprint
        assert detail.event_data == {"total": 3}
        assert "orders.py" in detail.error_stacktrace
        assert detail.context["worker"] == "w1"
        assert [(line.what, line.who) for line in detail.history] == [("failed", "w1")]

    def test_same_letter_twice_adds_no_occurrence(self, ledger):
        first = ledger.add_failed_event(letter_of())
        assert ledger.add_failed_event(letter_of()) == first
        assert ledger.add_failed_events([letter_of(), letter_of()]) == [first, first]
        assert len(ledger.open(first.id).history) == 1

    def test_same_letter_twice_does_not_undo_a_decision(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        ledger.decide([Decided(entry_id=entry.id, revision=entry.revision, decision=HOLD)], by="me")
        assert ledger.add_failed_event(letter_of()).status is Status.HELD

    def test_failed_replay_updates_the_same_entry(self, ledger, replaying):
        entry_id = replaying()
        again = ledger.add_failed_event(
            letter_of(replay=1, error_message="refused", explanation="failed again")
        )
        assert again.id == entry_id
        assert (again.status, again.occurrences, again.replays) == (Status.FAILED, 2, 1)
        assert again.error_message == "refused"
        assert again.first_failed_at == START - timedelta(minutes=5)
        assert again.last_failed_at == START + timedelta(minutes=1)
        detail = ledger.open(entry_id)
        assert detail.failure.replay == 1
        assert [line.what for line in detail.history] == [
            "failed", "retrying", "published", "failed",
        ]  # fmt: skip

    def test_late_letter_of_an_older_replay_is_only_counted(self, ledger):
        entry = ledger.add_failed_event(letter_of(replay=2))
        late = ledger.add_failed_event(letter_of(replay=1, error_message="old"))
        assert late.id == entry.id
        assert (late.replays, late.occurrences) == (2, 2)
        assert late.error_message == entry.error_message
        assert ledger.open(entry.id).failure.replay == 2

    def test_one_batch_may_hold_several_failures_of_one_event(self, ledger):
        first, second = ledger.add_failed_events([letter_of(), letter_of(replay=1)])
        assert first.id == second.id
        assert ledger.open(first.id).entry.occurrences == 2

    def test_one_event_fails_in_each_handler_for_itself(self, ledger):
        one = ledger.add_failed_event(letter_of())
        two = ledger.add_failed_event(letter_of(handler="mail.send"))
        assert one.id != two.id

    def test_unreadable_letter_is_kept_as_raw_bytes(self, ledger):
        broken = Unreadable(
            domain="order", raw=b"\x00\xff{", content_type="text/x", problem="no letter",
            received_at=START,
        )  # fmt: skip
        entry = ledger.add_failed_event(broken)
        assert entry.id == unreadable_letter_id("order", b"\x00\xff{")
        assert entry.reason == "unreadable"
        assert ledger.open(entry.id).failure == broken
        assert ledger.add_failed_event(broken) == entry

    def test_records_of_other_systems_stay_apart_and_keep_what_carried_them(self, ledger):
        records = [
            ForeignRecord(
                broker="kafka",
                place={"topic": "dlq", "partition": 0, "offset": offset},
                is_unique=True,
                key=b"\xff",
                headers=(
                    ("__connect.errors.exception.class.name", b"org.DataException"),
                    ("__connect.errors.exception.message", b"no such column"),
                    ("__connect.errors.connector.name", b"sink"),
                    ("correlation_id", b"c-1"),
                    ("task", None),
                ),
                properties={"tombstone": True},
            )
            for offset in (1, 2)
        ]
        failures = [
            Unreadable(
                domain="order", raw=b"", content_type="", problem="empty", received_at=START,
                record=record,
            )
            for record in records
        ]  # fmt: skip
        one, two = ledger.add_failed_events(failures)
        assert one.id != two.id
        assert one.fingerprint == two.fingerprint
        assert [ledger.open(entry.id).failure for entry in (one, two)] == failures
        assert (one.error_type, one.error_message) == ("org.DataException", "no such column")
        assert (one.handler_name, one.correlation_id) == ("sink", "c-1")
        wanted = EntryFilter(correlation_id="c-1", handler_name="sink")
        assert len(ledger.get_failed_events(wanted, status=None).entries) == 2
        assert ledger.add_failed_events(failures) == [one, two]  # the same records again
        assert ledger.letter_sizes([one.id])[one.id] > 0

    def test_replay_that_reads_the_event_at_last_stays_in_its_entry(self, ledger):
        raw = unreadable_message()
        entry = ledger.add_failed_event(raw)
        ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="me", lease=LEASE)
        readable = letter_of(
            replay=1, message=message_of(**{names.REPLAY: 1, names.LETTER_ID: raw.id})
        )
        found = ledger.add_failed_event(readable)
        assert found.id == entry.id
        assert (found.event_id, found.status) == ("e1", Status.FAILED)
        assert ledger.add_failed_event(readable) == found

    def test_forged_letter_id_does_not_reach_the_entry_of_another_event(self, ledger):
        victim = ledger.add_failed_event(letter_of("victim"))
        forged = letter_of(
            "other",
            replay=1,
            message=message_of("other", **{names.REPLAY: 1, names.LETTER_ID: victim.letter_id}),
        )
        assert ledger.add_failed_event(forged).id != victim.id

    def test_replay_of_unreadable_bytes_that_fails_again_is_a_new_occurrence(self, ledger):
        raw = unreadable_message()
        entry = ledger.add_failed_event(raw)
        ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="me", lease=LEASE)
        again = ledger.add_failed_event(unreadable_message(replay=1, **{names.LETTER_ID: raw.id}))
        assert (again.id, again.status, again.occurrences) == (entry.id, Status.FAILED, 2)

    def test_letters_that_claim_one_id_are_two_entries(self, ledger):
        first = ledger.add_failed_event(letter_of("e1", id="theirs"))
        second = ledger.add_failed_event(letter_of("e2", id="theirs"))
        raw = unreadable_message()
        third = ledger.add_failed_event(replace(raw, id=first.id))
        fourth = ledger.add_failed_event(
            replace(raw, id=first.id, message=replace(raw.message, body=b"other"))
        )
        assert len({first.id, second.id, third.id, fourth.id}) == 4

    def test_a_second_body_under_one_event_id_replaces_nothing(self, ledger):
        first = ledger.add_failed_event(letter_of("e1"))
        second = ledger.add_failed_event(letter_of("e1", id="other", reason=Reason.CONFLICT))
        assert second.id != first.id
        assert ledger.open(first.id).failure.reason is Reason.EXHAUSTED

    def test_text_that_databases_refuse_is_stored(self, ledger):
        hostile = letter_of(
            "e\x00\ud800", error_message="nul \x00, half \ud800", handler="h" * 5000,
            error_type="x" * 5000,
        )  # fmt: skip
        entry = ledger.add_failed_event(hostile)
        assert ledger.open(entry.id) is not None
        assert len(ledger.get_failed_events().entries) == 1

    # -- deciding ------------------------------------------------------------------------

    def test_decision_is_carried_out_and_told(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        decided = Decided(entry_id=entry.id, revision=entry.revision, decision=HOLD)
        assert ledger.decide([decided], by="analysis@a") == [True]
        detail = ledger.open(entry.id)
        assert detail.entry.status is Status.HELD
        assert detail.entry.failure_class is FailureClass.CODE_DEFECT
        assert detail.entry.evidence == "a bug"
        assert (detail.history[-1].who, detail.history[-1].what) == ("analysis@a", "held")
        assert "a bug" in detail.history[-1].detail

    def test_what_a_rule_compensates_is_due_at_once_and_compensated_by_one_of_two(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        decision = replace(HOLD, action=Action.COMPENSATE)
        decided = Decided(entry_id=entry.id, revision=entry.revision, decision=decision)
        assert ledger.decide([decided], by="analysis@a") == [True]
        (due,) = ledger.due(limit=9, lease=timedelta(seconds=30))
        assert (due.status, due.next_replay_at, due.resolved_by) == (Status.WAITING, None, "")
        assert not ledger.due(limit=9, lease=timedelta(seconds=30)), "somebody has it"
        act = Act(entry_id=due.id, revision=due.revision, verb=Verb.COMPENSATE, note="rule no")
        assert [ledger.act([act], by=who) for who in ("analysis@a", "analysis@b")] == [
            [True],
            [False],
        ]
        found = ledger.open(entry.id)
        assert (found.entry.status, found.entry.resolved_by) == (Status.COMPENSATED, "analysis@a")
        assert (found.history[-1].what, found.history[-1].detail) == ("compensate", "rule no")

    def test_decision_about_an_older_revision_changes_nothing(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        decided = Decided(entry_id=entry.id, revision=entry.revision, decision=HOLD)
        late = replace(decided, decision=REPLAY)
        assert ledger.decide([decided, late], by="me") == [True, False]
        assert ledger.decide([late], by="me") == [False]
        assert ledger.open(entry.id).entry.status is Status.HELD

    # -- decided while it is filed -------------------------------------------------------

    def test_what_is_decided_while_it_is_filed_is_stored_once_and_told_in_two_lines(self, ledger):
        asked = []

        def decide(undecided):
            asked.extend(undecided)
            return [HOLD, REPLAY]

        letters = [letter_of("e1"), letter_of("e2")]
        held, waits = ledger.add_failed_events(letters, decide=decide, by="analysis@a")
        assert [(one.failure, one.stored) for one in asked] == [(one, None) for one in letters]
        assert {one.entry.status for one in asked} == {Status.FAILED}
        assert (held.status, waits.status) == (Status.HELD, Status.WAITING)
        for entry in (held, waits):
            detail = ledger.open(entry.id)
            assert detail.entry == entry
            assert [line.what for line in detail.history] == ["failed", entry.status.value]
            assert detail.history[-1].who == "analysis@a"
        assert ledger.get_failure_stats().by_status == {"held": 1, "waiting": 1}

    def test_only_what_fails_anew_is_decided(self, ledger):
        ledger.add_failed_events([letter_of("e1")], decide=lambda _: [HOLD], by="me")
        asked = []

        def decide(undecided):
            asked.extend(undecided)
            return [REPLAY for _ in undecided]

        again, new = ledger.add_failed_events(
            [letter_of("e1"), letter_of("e2")], decide=decide, by="me"
        )
        assert [one.failure.event.id for one in asked] == ["e2"]
        assert (again.status, new.status) == (Status.HELD, Status.WAITING)

    def test_a_failed_replay_is_decided_with_what_the_ledger_had(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        begun = ledger.mark_retrying(
            entry.id, 1, revision=entry.revision, by="me", lease=timedelta(minutes=1)
        )
        asked = []

        def decide(undecided):
            asked.extend(undecided)
            return [HOLD]

        (held,) = ledger.add_failed_events([letter_of(replay=1)], decide=decide, by="me")
        assert (asked[0].stored, asked[0].entry.replays) == (begun, 1)
        assert (held.id, held.status) == (entry.id, Status.HELD)

    def test_the_letter_that_the_entry_keeps_is_the_one_that_is_decided(self, ledger):
        letters = [letter_of(replay=1), letter_of()]  # the second tells of what was before
        asked = []

        def decide(undecided):
            asked.extend(undecided)
            return [HOLD]

        ledger.add_failed_events(letters, decide=decide, by="me")
        assert [one.failure for one in asked] == letters[:1]

    def test_a_letter_with_a_very_long_id_is_filed_once(self, ledger):
        letter = replace(letter_of(), id="x" * 3_000)
        first = ledger.add_failed_event(letter)
        again = ledger.add_failed_events([letter, letter])
        assert [entry.id for entry in again] == [first.id, first.id]
        assert ledger.get_failure_stats().occurrences == 1

    def test_two_letters_of_one_event_are_decided_by_the_last(self, ledger):
        letters = [letter_of(), letter_of(replay=1)]
        asked = []

        def decide(undecided):
            asked.extend(undecided)
            return [HOLD]

        first, second = ledger.add_failed_events(letters, decide=decide, by="me")
        assert first == second
        assert [one.failure for one in asked] == letters[1:]
        assert [line.what for line in ledger.open(first.id).history] == ["failed", "failed", "held"]

    def test_what_nobody_decides_is_filed_and_due_later(self, ledger, clock):
        entries = ledger.add_failed_events(
            [letter_of("e1"), letter_of("e2")], decide=lambda _: [HOLD], by="me"
        )
        assert [entry.status for entry in entries] == [Status.HELD, Status.FAILED]
        clock.sleep(UNDECIDED)
        assert [one.event_id for one in ledger.due(limit=10, lease=LEASE)] == ["e2"]

    def test_where_deciding_fails_nothing_is_filed(self, ledger):
        def decide(_undecided):
            raise LedgerUnavailable("away")

        with pytest.raises(LedgerUnavailable):
            ledger.add_failed_events([letter_of()], decide=decide, by="me")
        assert not ledger.get_failed_events(status=None).entries

    def test_decision_about_an_unknown_entry_changes_nothing(self, ledger):
        nobody = Decided(entry_id="f" * 64, revision=1, decision=HOLD)
        assert ledger.decide([nobody], by="me") == [False]
        assert ledger.decide([], by="me") == []

    # -- what is due ---------------------------------------------------------------------

    def test_replay_is_due_when_its_delay_has_passed(self, ledger, clock):
        entry = ledger.add_failed_event(letter_of())
        decided = Decided(entry_id=entry.id, revision=entry.revision, decision=REPLAY)
        ledger.decide([decided], by="me")
        clock.sleep(timedelta(seconds=29))
        assert ledger.due(limit=10, lease=LEASE) == []
        clock.sleep(timedelta(seconds=1))
        (due,) = ledger.due(limit=10, lease=LEASE)
        assert (due.id, due.status) == (entry.id, Status.WAITING)
        assert due.next_replay_at == START + timedelta(seconds=30)

    def test_leased_entry_is_due_again_when_the_lease_ends(self, ledger, clock):
        ledger.add_failed_event(letter_of())
        clock.sleep(UNDECIDED)
        assert len(ledger.due(limit=10, lease=LEASE)) == 1
        assert ledger.due(limit=10, lease=LEASE) == []
        clock.sleep(LEASE)
        assert len(ledger.due(limit=10, lease=LEASE)) == 1

    def test_longest_overdue_come_first_and_no_more_than_asked(self, ledger, clock):
        for number in range(3):
            ledger.add_failed_event(letter_of(f"e{number}"))
            clock.sleep(timedelta(seconds=1))
        clock.sleep(UNDECIDED)
        assert [e.event_id for e in ledger.due(limit=2, lease=LEASE)] == ["e0", "e1"]
        assert [e.event_id for e in ledger.due(limit=2, lease=LEASE)] == ["e2"]

    def test_held_and_resolved_entries_are_never_due(self, ledger, clock):
        held, resolved = ledger.add_failed_events([letter_of("e1"), letter_of("e2")])
        decided = Decided(entry_id=held.id, revision=held.revision, decision=HOLD)
        ledger.decide([decided], by="me")
        resolve(ledger, resolved.id, "ann")
        clock.sleep(timedelta(days=30))
        assert ledger.due(limit=10, lease=LEASE) == []

    def test_what_is_left_asleep_is_due_later(self, ledger, clock):
        entry = ledger.add_failed_event(letter_of("e1"))
        waits = ledger.add_failed_event(letter_of("e2"))
        ledger.decide(
            [Decided(entry_id=waits.id, revision=waits.revision, decision=REPLAY)], by="me"
        )
        clock.sleep(timedelta(hours=1))
        taken = ledger.due(limit=10, lease=LEASE, besides={Status.WAITING})
        assert [one.id for one in taken] == [entry.id]
        assert [one.id for one in ledger.due(limit=10, lease=LEASE)] == [waits.id]

    def test_workers_share_what_is_due_without_overlap(self, ledger, clock):
        ledger.add_failed_events([letter_of(f"e{number}") for number in range(20)])
        clock.sleep(UNDECIDED)
        barrier = threading.Barrier(4)

        def take(_worker: int) -> list[str]:
            barrier.wait()
            return [e.id for _ in range(5) for e in ledger.due(limit=2, lease=LEASE)]

        with ThreadPoolExecutor(4) as pool:
            taken = Counter(itertools.chain(*pool.map(take, range(4))))
        assert len(taken) == 20
        assert set(taken.values()) == {1}

    # -- replaying -----------------------------------------------------------------------

    def test_replay_begins_once(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        begin = {"revision": entry.revision, "by": "me", "lease": LEASE}
        begun = ledger.mark_retrying(entry.id, 1, **begin)
        assert (begun.status, begun.replays) == (Status.RETRYING, 1)
        assert ledger.mark_retrying(entry.id, 1, **begin) is None
        assert ledger.mark_retrying(entry.id, 2, **{**begin, "revision": begun.revision}) is None

    def test_only_the_next_replay_can_begin(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        for wrong in (0, 2):
            begun = ledger.mark_retrying(
                entry.id, wrong, revision=entry.revision, by="me", lease=LEASE
            )
            assert begun is None

    def test_many_who_begin_one_replay_are_one(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        barrier = threading.Barrier(4)

        def begin(worker: int) -> bool:
            barrier.wait()
            begun = ledger.mark_retrying(
                entry.id, 1, revision=entry.revision, by=f"w{worker}", lease=LEASE
            )
            return begun is not None

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(begin, range(4))) == [False, False, False, True]

    def test_many_who_file_one_letter_make_one_entry(self, ledger):
        barrier = threading.Barrier(4)
        letters = [letter_of(f"e{number}") for number in range(5)]

        def file(worker: int) -> list[str]:
            barrier.wait()
            return [e.id for e in ledger.add_failed_events(letters[worker:] + letters[:worker])]

        with ThreadPoolExecutor(4) as pool:
            filed = [set(ids) for ids in pool.map(file, range(4))]
        assert all(ids == filed[0] for ids in filed)
        entries = ledger.get_failed_events().entries
        assert [entry.occurrences for entry in entries] == [1] * 5

    def test_unconfirmed_replay_is_due_again_under_the_same_number(self, ledger, clock):
        entry = ledger.add_failed_event(letter_of())
        ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="me", lease=LEASE)
        clock.sleep(LEASE)
        (due,) = ledger.due(limit=10, lease=LEASE)
        assert (due.status, due.replays, due.published_at) == (Status.RETRYING, 1, None)

    def test_confirmed_replay_is_due_only_at_its_deadline(self, ledger, clock, replaying):
        replaying()
        clock.sleep(timedelta(minutes=59))
        assert ledger.due(limit=10, lease=LEASE) == []
        clock.sleep(timedelta(minutes=1))
        (due,) = ledger.due(limit=10, lease=LEASE)
        assert due.published_at == START

    def test_confirmation_of_another_replay_changes_nothing(self, ledger, replaying):
        entry_id = replaying()
        answer_by = START + timedelta(days=1)
        assert not ledger.mark_published(entry_id, 2, answer_by=answer_by)
        assert not ledger.mark_published("f" * 64, 1, answer_by=answer_by)

    # -- resolving -----------------------------------------------------------------------

    def test_answered_replay_resolves_the_entry(self, ledger, replaying):
        entry_id = replaying()
        assert ledger.mark_answered(entry_id, 1, by="replay 1 (handled)")
        detail = ledger.open(entry_id)
        assert detail.entry.status is Status.RESOLVED
        assert detail.entry.resolved_by == "replay 1 (handled)"
        assert detail.entry.resolved_at == START
        assert (detail.history[-1].what, detail.history[-1].who) == (
            "resolved", "replay 1 (handled)",
        )  # fmt: skip
        assert not ledger.mark_answered(entry_id, 1, by="again")

    def test_answer_to_an_older_replay_changes_nothing(self, ledger):
        entry = ledger.add_failed_event(letter_of(replay=1))
        begun = ledger.mark_retrying(entry.id, 2, revision=entry.revision, by="me", lease=LEASE)
        assert not ledger.mark_answered(entry.id, 1, by="replay 1 (handled)")
        assert ledger.open(entry.id).entry == begun

    def test_letter_outweighs_every_other_answer_to_its_replay(self, ledger, replaying):
        first = replaying("e1")
        ledger.add_failed_event(letter_of("e1", replay=1))
        assert not ledger.mark_answered(first, 1, by="replay 1 (duplicate)")
        second = replaying("e2")
        assert ledger.mark_answered(second, 1, by="replay 1 (duplicate)")
        assert ledger.add_failed_event(letter_of("e2", replay=1)).status is Status.FAILED

    def test_letter_outweighs_a_late_answer_to_its_replay_once_held(self, ledger, replaying):
        replaying()
        failed = ledger.add_failed_event(letter_of(replay=1))
        held = Decided(entry_id=failed.id, revision=failed.revision, decision=HOLD)
        assert ledger.decide([held], by="me") == [True]
        assert not ledger.mark_answered(failed.id, 1, by="replay 1 (duplicate)")
        assert ledger.open(failed.id).entry.status is Status.HELD

    def test_late_answer_resolves_an_entry_held_meanwhile(self, ledger, replaying):
        entry = ledger.open(replaying()).entry
        ledger.decide([Decided(entry_id=entry.id, revision=entry.revision, decision=HOLD)], by="me")
        assert ledger.mark_answered(entry.id, 1, by="replay 1 (handled)")

    def test_answer_may_overtake_the_confirmation(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="me", lease=LEASE)
        assert ledger.mark_answered(entry.id, 1, by="replay 1 (handled)")
        assert not ledger.mark_published(entry.id, 1, answer_by=START + timedelta(days=1))
        assert ledger.open(entry.id).entry.status is Status.RESOLVED

    def test_skipped_replay_skips_the_entry(self, ledger, replaying):
        entry_id = replaying()
        ledger.mark_answered(entry_id, 1, by="replay 1 (skipped)", status=Status.SKIPPED)
        assert ledger.open(entry_id).entry.status is Status.SKIPPED

    def test_person_resolves_an_entry_once(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        assert resolve(ledger, entry.id, "ann")
        assert not resolve(ledger, entry.id, "bob")
        assert ledger.open(entry.id).entry.resolved_by == "ann"
        unknown = Act(entry_id="f" * 64, revision=1, verb=Verb.RESOLVE)
        assert ledger.act([unknown], by="ann") == [False]

    def test_an_entry_that_went_leaves_no_order_of_a_replay_behind(self, ledger, clock):
        entry = ledger.add_failed_event(letter_of())
        order = ReplayOrder(to_queue="elsewhere")
        ledger.mark_retrying(
            entry.id, 1, revision=entry.revision, by="me", lease=LEASE, order=order
        )
        assert ledger.open(entry.id).order == order
        ledger.mark_answered(entry.id, 1, by="replay 1 (handled)")
        clock.sleep(timedelta(days=1))
        assert ledger.prune({Status.RESOLVED: clock.now()}, limit=1) == 1
        again = ledger.add_failed_event(letter_of())
        ledger.mark_retrying(again.id, 1, revision=again.revision, by="me", lease=LEASE)
        assert ledger.open(again.id).order == AS_IT_IS

    # -- what people do ------------------------------------------------------------------

    def test_a_person_skips_and_restores_an_entry_and_is_named(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        skip = Act(entry_id=entry.id, revision=1, verb=Verb.SKIP, note="a test order")
        assert ledger.act([skip], by="ann") == [True]
        found = ledger.open(entry.id)
        assert (found.entry.status, found.entry.resolved_by) == (Status.SKIPPED, "ann")
        assert (found.history[-1].who, found.history[-1].what) == ("ann", "skip")
        assert found.history[-1].detail == "a test order"
        restore = Act(entry_id=entry.id, revision=2, verb=Verb.RESTORE)
        assert ledger.act([restore], by="bob") == [True]
        assert ledger.open(entry.id).entry.status is Status.HELD

    def test_an_act_on_what_changed_or_does_not_apply_changes_nothing(self, ledger, replaying):
        entry = ledger.add_failed_event(letter_of("e2"))
        under_way = ledger.open(replaying("e1")).entry
        acts = [
            Act(entry_id=entry.id, revision=7, verb=Verb.SKIP),
            Act(entry_id=under_way.id, revision=under_way.revision, verb=Verb.SKIP),
            Act(entry_id="f" * 64, revision=1, verb=Verb.SKIP),
            Act(entry_id=entry.id, revision=1, verb=Verb.RESTORE),
            Act(entry_id=entry.id, revision=1, verb=Verb.ESCALATE),
        ]
        assert ledger.act(acts, by="ann") == [False, False, False, False, True]
        assert ledger.open(entry.id).entry.status is Status.ESCALATED
        assert ledger.open(under_way.id).entry == under_way

    def test_an_entry_closed_with_a_skip_is_due_until_that_is_answered(self, ledger, clock):
        entry = ledger.add_failed_event(letter_of(component_type=ORDERED_HANDLER))
        skip = Act(entry_id=entry.id, revision=1, verb=Verb.RESOLVE, note="by hand", skips=True)
        assert ledger.act([skip], by="ann") == [True]
        assert ledger.due(limit=9, lease=LEASE) == []
        clock.sleep(UNSENT)
        (due,) = ledger.due(limit=9, lease=LEASE)
        assert (due.status, due.replays, due.published_at) == (Status.RESOLVED, 1, None)
        assert ledger.due(limit=9, lease=LEASE, besides={Status.RESOLVED}) == []
        answer_by = clock.now() + timedelta(days=1)
        assert ledger.mark_published(entry.id, 1, answer_by=answer_by)
        clock.sleep(timedelta(hours=23))
        assert ledger.due(limit=9, lease=LEASE) == []
        answer = ReplayAnswer(entry.id, 1, "replay 1 (skipped)", Status.SKIPPED)
        assert ledger.note_answers([answer, answer]) == [True, False]
        assert not ledger.mark_published(entry.id, 1, answer_by=answer_by)
        clock.sleep(timedelta(hours=2))
        assert ledger.due(limit=9, lease=LEASE) == []
        found = ledger.open(entry.id)
        assert (found.entry.status, found.entry.resolved_by) == (Status.RESOLVED, "ann")
        story = [line.what for line in found.history]
        assert story == ["failed", "resolve", "published", "went on"]
        assert ledger.get_failure_stats().by_status == {"resolved": 1}

    def test_a_skip_that_became_a_letter_holds_its_entry_for_a_person(self, ledger, clock):
        entry = ledger.add_failed_event(letter_of(component_type=ORDERED_HANDLER))
        skip = Act(entry_id=entry.id, revision=1, verb=Verb.SKIP, skips=True)
        assert ledger.act([skip], by="ann") == [True]
        assert ledger.mark_published(entry.id, 1, answer_by=clock.now() + LEASE)
        failed = letter_of(replay=1, component_type=ORDERED_HANDLER, reason=Reason.TOO_OLD)
        asked = []
        ledger.add_failed_events([failed], decide=lambda some: asked.append(some) or [], by="me")
        after = ledger.open(entry.id).entry
        assert (after.status, after.hold, after.letter_replay) == (Status.HELD, Hold.ANSWER, 1)
        assert not asked, "nothing is decided: a person must look"

    def test_a_parked_replay_is_never_due_and_answered_in_its_turn(self, ledger, clock, replaying):
        entry_id = replaying()
        parked = ReplayAnswer(entry_id, 1, "replay 1 (parked)", Status.RETRYING)
        assert ledger.note_answers([parked, parked]) == [True, False]
        clock.sleep(timedelta(days=30))
        assert ledger.due(limit=9, lease=LEASE) == []
        found = ledger.open(entry_id)
        assert (found.entry.status, found.entry.hold) == (Status.RETRYING, Hold.LANE)
        assert found.history[-1].what == "parked"
        wanted = EntryFilter(hold=Hold.LANE)
        assert ledger.get_failed_events(wanted, status=None).entries == (found.entry,)
        assert ledger.mark_answered(entry_id, 1, by="replay 1 (handled)")
        assert ledger.open(entry_id).entry.hold is None

    def test_late_answer_resolves_an_entry_escalated_meanwhile(self, ledger, replaying):
        entry_id = replaying()
        revision = ledger.open(entry_id).entry.revision
        held = Decided(entry_id=entry_id, revision=revision, decision=HOLD)
        assert ledger.decide([held], by="me") == [True]
        act = Act(entry_id=entry_id, revision=revision + 1, verb=Verb.ESCALATE)
        assert ledger.act([act], by="ann") == [True]
        assert ledger.mark_answered(entry_id, 1, by="replay 1 (handled)")
        assert ledger.open(entry_id).entry.status is Status.RESOLVED

    # -- looking -------------------------------------------------------------------------

    def test_entry_is_found_by_each_of_its_letters(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        ledger.add_failed_event(letter_of(replay=1))
        other = ledger.add_failed_event(letter_of("e2"))
        asked = [letter_of().id, letter_of(replay=1).id, other.letter_id, "unknown\x00"]
        found = ledger.find_by_letters(asked)
        assert [found[one].id for one in asked[:3]] == [entry.id, entry.id, other.id]
        assert "unknown\x00" not in found
        assert not ledger.find_by_letters([])

    def test_many_are_opened_at_once_each_with_what_is_its_own(self, ledger):
        first, second = ledger.add_failed_events([letter_of("e1"), letter_of("e2")])
        ledger.mark_retrying(
            second.id, 1, revision=second.revision, by="me", lease=LEASE,
            order=ReplayOrder(to_queue="elsewhere"),
        )  # fmt: skip
        found = ledger.open_all([first.id, second.id, "f" * 64])
        assert found == {one.id: ledger.open(one.id) for one in (first, second)}
        assert [found[one.id].failure.event.id for one in (first, second)] == ["e1", "e2"]
        assert [len(found[one.id].history) for one in (first, second)] == [1, 2]
        assert [found[one.id].order.to_queue for one in (first, second)] == ["", "elsewhere"]
        assert not ledger.open_all([])

    def test_the_sizes_of_letters_are_known_before_they_are_opened(self, ledger):
        large = replace(message_of("e2"), body=json.dumps("x" * 50_000).encode())
        one, two = ledger.add_failed_events([letter_of("e1"), letter_of("e2", message=large)])
        small, big = (ledger.letter_sizes([one.id, two.id, "f" * 64])[it.id] for it in (one, two))
        assert 0 < small < 20_000
        assert 50_000 < big < 200_000
        assert not ledger.letter_sizes([])
        assert not ledger.letter_sizes(["f" * 64])
        ledger.mark_retrying(
            one.id, 1, revision=one.revision, by="me", lease=LEASE,
            order=ReplayOrder(letter=letter_of("e2", message=large), before=letter_of("e1")),
        )  # fmt: skip
        assert ledger.letter_sizes([one.id])[one.id] > 50_000

    def test_answers_are_noted_together_and_each_only_where_it_fits(self, ledger):
        entries = ledger.add_failed_events([letter_of("e1"), letter_of("e2"), letter_of("e3")])
        for entry in entries[:2]:
            ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="me", lease=LEASE)
        answers = [ReplayAnswer(entry.id, 1, "replay 1 (handled)") for entry in entries]
        answers[1] = answers[1]._replace(status=Status.SKIPPED)
        noted = ledger.note_answers([*answers, answers[0], ReplayAnswer("f" * 64, 1, "nobody")])
        assert noted == [True, True, False, False, False]
        found = [ledger.open(entry.id).entry.status for entry in entries]
        assert found == [Status.RESOLVED, Status.SKIPPED, Status.FAILED]

    def test_unknown_entry_is_none(self, ledger):
        assert ledger.open("f" * 64) is None

    def test_pages_show_every_entry_once_newest_first(self, ledger):
        letters = [
            letter_of(f"e{number}", last_attempt_at=START + timedelta(seconds=number // 2))
            for number in range(7)
        ]
        ledger.add_failed_events(letters)
        seen, after = [], ""
        while True:
            page = ledger.get_failed_events(limit=3, after=after)
            seen += page.entries
            if not page.next:
                break
            after = page.next
        assert len(seen) == len({entry.id for entry in seen}) == 7
        times = [entry.last_failed_at for entry in seen]
        assert times == sorted(times, reverse=True)

    def test_full_last_page_has_no_next(self, ledger):
        ledger.add_failed_events([letter_of("e1"), letter_of("e2")])
        assert ledger.get_failed_events(limit=2).next == ""

    def test_malformed_cursor_is_refused(self, ledger):
        with pytest.raises(ValueError, match="not a cursor"):
            ledger.get_failed_events(after="yesterday")

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            (EntryFilter(), {"e1", "e2"}),
            (EntryFilter(handler_name="mail.send"), {"e2"}),
            (EntryFilter(domain="mail"), {"e2"}),
            (EntryFilter(event_type="OrderPlaced"), {"e1", "e2"}),
            (EntryFilter(event_id="e1"), {"e1"}),
            (EntryFilter(tenant_id="nobody"), set()),
            (EntryFilter(fingerprint="f2"), {"e2"}),
            (EntryFilter(failure_class=FailureClass.POISON), set()),
            (EntryFilter(correlation_id="c1"), {"e1", "e2"}),
            (EntryFilter(reason="exhausted"), {"e1", "e2"}),
            (EntryFilter(category="unknown"), set()),
            (EntryFilter(error_type="TimeoutError", error_code="TIMEOUT"), {"e1", "e2"}),
            (EntryFilter(version="1.1"), set()),
            (EntryFilter(since=START + timedelta(minutes=1)), {"e2"}),
            (EntryFilter(until=START + timedelta(minutes=1)), {"e1"}),
            (EntryFilter(id_prefix="zz"), set()),
        ],
    )
    def test_filter_finds_what_it_names(self, ledger, wanted, found):
        later = START + timedelta(minutes=1)
        second = letter_of(
            "e2", handler="mail.send", domain="mail", fingerprint="f2", last_attempt_at=later
        )
        ledger.add_failed_events([letter_of("e1"), second])
        page = ledger.get_failed_events(wanted)
        assert {entry.event_id for entry in page.entries} == found

    def test_filter_finds_an_id_by_its_beginning(self, ledger):
        entry, _ = ledger.add_failed_events([letter_of("e1"), letter_of("e2")])
        page = ledger.get_failed_events(EntryFilter(id_prefix=entry.id[:10]))
        assert [one.id for one in page.entries] == [entry_id_of(letter_of("e1"))]

    def test_the_open_entries_that_failed_first_longest_ago_are_found(self, ledger):
        for minutes in (2, 9, 5, 7):
            at = START - timedelta(minutes=minutes)
            ledger.add_failed_event(letter_of(f"e{minutes}", first_attempt_at=at))
        resolve(ledger, ledger.oldest_open()[0].id, "ada")
        assert [one.event_id for one in ledger.oldest_open(limit=2)] == ["e7", "e5"]
        assert [one.event_id for one in ledger.oldest_open()] == ["e7"]

    def test_failed_entries_are_shown_unless_another_status_is_asked_for(self, ledger):
        entry, _ = ledger.add_failed_events([letter_of("e1"), letter_of("e2")])
        resolve(ledger, entry.id, "ann")
        assert [e.event_id for e in ledger.get_failed_events().entries] == ["e2"]
        resolved = ledger.get_failed_events(status=Status.RESOLVED).entries
        assert [e.event_id for e in resolved] == ["e1"]
        assert len(ledger.get_failed_events(status=None).entries) == 2

    def test_statistics_count_every_entry(self, ledger):
        first, _ = ledger.add_failed_events([letter_of("e1"), letter_of("e2", domain="mail")])
        ledger.decide([Decided(entry_id=first.id, revision=first.revision, decision=HOLD)], by="me")
        ledger.mark_retrying(first.id, 1, revision=first.revision + 1, by="me", lease=LEASE)
        stats = ledger.get_failure_stats()
        assert stats.total == 2
        assert stats.by_status == {"retrying": 1, "failed": 1}
        assert stats.by_class == {"code_defect": 1, "": 1}
        assert stats.by_domain == {"order": 1, "mail": 1}
        assert stats.by_handler == {"orders.sync": 2}
        assert (stats.occurrences, stats.replays) == (2, 1)
        assert stats.oldest_open_at == START - timedelta(minutes=5)

    def test_statistics_of_an_empty_ledger_are_zero(self, ledger):
        stats = ledger.get_failure_stats()
        assert (stats.total, stats.occurrences, stats.oldest_open_at) == (0, 0, None)

    def test_the_order_of_a_replay_is_kept_with_its_number(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        order = ReplayOrder(to_queue="other", letter=letter_of(error_message="e"), said="/total")
        begun = ledger.mark_retrying(
            entry.id, 1, revision=entry.revision, by="me", lease=LEASE, order=order
        )
        detail = ledger.open(entry.id)
        assert detail.order == order
        assert detail.failure == letter_of()
        assert detail.history[-1].detail == "replay 1 to queue other, edited: /total"
        stale = {"revision": entry.revision, "by": "me", "lease": LEASE}
        assert ledger.mark_retrying(entry.id, 2, **stale, order=order) is None
        held = Decided(entry_id=entry.id, revision=begun.revision, decision=HOLD)
        assert ledger.decide([held], by="me") == [True]
        again = ledger.open(entry.id).entry
        assert ledger.mark_retrying(entry.id, 2, revision=again.revision, by="me", lease=LEASE)
        assert not ledger.open(entry.id).order

    def test_a_fresh_sequence_is_kept_with_the_number_of_its_replay(self, ledger):
        letter = letter_of(reason=Reason.SEQUENCE_MISMATCH, mismatch=Mismatch(3, 5, 3))
        entry = ledger.add_failed_event(letter)
        order = ReplayOrder(sequence=Expectation.FRESH_SEQUENCE)
        begun = ledger.mark_retrying(
            entry.id, 1, revision=entry.revision, by="me", lease=LEASE, order=order
        )
        detail = ledger.open(entry.id)
        assert (detail.order, detail.mismatch) == (order, Mismatch(3, 5, 3))
        assert detail.history[-1].detail == "replay 1 with a fresh sequence"
        held = Decided(entry_id=entry.id, revision=begun.revision, decision=HOLD)
        assert ledger.decide([held], by="me") == [True]
        again = ledger.open(entry.id).entry
        assert ledger.mark_retrying(entry.id, 2, revision=again.revision, by="me", lease=LEASE)
        assert ledger.open(entry.id).order == AS_IT_IS

    def test_chosen_configurations_are_kept_with_the_number_of_their_replay(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        order = ReplayOrder(config=(("pricing", "3"), ("tax", "2026-Q1")))
        begun = ledger.mark_retrying(
            entry.id, 1, revision=entry.revision, by="me", lease=LEASE, order=order
        )
        detail = ledger.open(entry.id)
        assert detail.order == order
        told = "with configuration pricing 3 and tax 2026-Q1 where it was pinned to another"
        assert detail.history[-1].detail == f"replay 1 {told}"
        held = Decided(entry_id=entry.id, revision=begun.revision, decision=HOLD)
        assert ledger.decide([held], by="me") == [True]
        again = ledger.open(entry.id).entry
        assert ledger.mark_retrying(entry.id, 2, revision=again.revision, by="me", lease=LEASE)
        assert ledger.open(entry.id).order == AS_IT_IS

    def test_the_letter_before_the_newest_edit_is_kept_whatever_is_replayed_since(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        assert ledger.open(entry.id).before is None
        orders = [
            ReplayOrder(letter=letter_of(error_message="b"), before=letter_of()),
            ReplayOrder(letter=letter_of(error_message="c"), before=letter_of(error_message="b")),
            ReplayOrder(to_queue="other"),
            ReplayOrder(),
        ]
        for replay, order in enumerate(orders, 1):
            seen = ledger.open(entry.id).entry
            begun = ledger.mark_retrying(
                entry.id, replay, revision=seen.revision, by="me", lease=LEASE, order=order
            )
            held = Decided(entry_id=entry.id, revision=begun.revision, decision=HOLD)
            assert ledger.decide([held], by="me") == [True]
            found = ledger.open(entry.id)
            assert found.order == order
            assert found.before == (orders[0] if replay == 1 else orders[1]).before
