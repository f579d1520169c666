"""What every log of rejected commands must do. Adapters' tests subclass this on the real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import pytest

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, Origin
from angzarr.events.event import Event, Priority
from angzarr.events.headers import MAX_SEQUENCE
from angzarr.sagas.log import (
    CLOSED,
    ENDED,
    MAX_REJECTION,
    SETTLED,
    AskedAgain,
    Case,
    CaseFilter,
    RejectionLog,
    RejectionStatus,
    case_of,
)
from angzarr.sagas.rejection import Rejection, read_rejection, rejection_of
from angzarr.sagas.rejection_answers import CompensationStep

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
LATER = AT + timedelta(minutes=5)
ZONE = timezone(timedelta(hours=5, minutes=30))
ODD = "ü\x00\u2028\ud800'\"\\%_"

ASKED = AskedAgain("kim@desk", LATER, "mended")


def a_rejection(reason: str = "the table is full", *, data: object = 7, **origin: object):
    event = Event(
        id=str(uuid4()), type="SeatPlayer", data=data, domain="table", root="t-1",
        correlation_id="flow", causation_id="because", tenant_id="acme", depth=3,
        priority=Priority.REALTIME, config_pins={"a": "1"}, traceparent="00-1-2-03",
    )  # fmt: skip
    said = {"saga": "seating", "source": Address("player", "p-1"), "sequence": 3} | origin
    came_from = Origin(**said)
    return rejection_of(Command(event=event, origin=came_from), came_from, reason, AT)


def a_case(rejection: Rejection | None = None, **fields: object) -> Case:
    return replace(case_of(rejection or a_rejection(), AT), **fields)


def ended(case: Case, status: RejectionStatus = RejectionStatus.FAILED, **fields: object) -> Case:
    return replace(case, status=status, answer="it broke", changed_at=LATER, **fields)


class RejectionLogContract:
    """Subclasses give `log`. Others may have cases in it: each test names its own saga."""

    @pytest.fixture
    def log(self) -> RejectionLog:
        raise NotImplementedError

    @pytest.fixture
    def saga(self):
        return f"saga-{uuid4()}"

    @pytest.fixture
    def kept(self, log):
        def kept(id):
            (case,) = log.look(id)
            return case

        return kept

    # -- noting ------------------------------------------------------------------------------

    def test_what_is_noted_is_looked_up_as_it_was(self, log, kept):
        case = a_case(
            status=RejectionStatus.COMPENSATED,
            answer="so",
            first_event=4,
            event_count=2,
            note="why",
            steps=(CompensationStep.DEAD_LETTER, CompensationStep.ESCALATE),
            asked_again=3,
            asked_by="kim",
        )
        log.note(case)
        assert kept(case.id) == case

    def test_a_case_goes_as_far_as_sequences_do(self, log, kept):
        case = a_case(a_rejection(sequence=MAX_SEQUENCE))
        log.note(case)
        assert kept(case.id) == case

    def test_the_one_that_is_just_so_is_found_first(self, log):
        mine = str(uuid4())
        for ending in ("-b", "-a", "", "-c"):
            log.note(a_case(id=f"{mine}{ending}"))
        first, _ = log.look(mine)
        assert first.id == mine

    def test_the_rejection_can_be_read_from_its_case(self, log, kept):
        rejection = a_rejection(data={"n": [1.5, None, {"x": True}]})
        log.note(case_of(rejection, AT))
        assert read_rejection(kept(rejection.id).rejection) == rejection

    def test_text_that_databases_refuse_is_kept(self, log, kept, saga):
        rejection = a_rejection(
            ODD, data=ODD, saga=f"{saga}{ODD}", source=Address("player", f"p{ODD}", ODD)
        )
        case = a_case(
            rejection, id=f"{uuid4()}{ODD}", target=Address(f"d{ODD}", ODD, ODD), answer=ODD,
            correlation_id=ODD, command_id=ODD, command_type=ODD, asked_by=ODD, note=ODD,
        )  # fmt: skip
        log.note(case)
        assert kept(case.id) == case
        listed = log.cases(CaseFilter(saga=f"{saga}{ODD}", correlation_id=ODD), limit=5)
        assert listed == [replace(case, rejection=None)]
        assert log.ask_again(case.id, ASKED).id == case.id

    def test_times_of_any_zone_are_kept(self, log, kept):
        case = a_case(rejected_at=AT.astimezone(ZONE), changed_at=LATER.astimezone(ZONE))
        log.note(case)
        found = kept(case.id)
        assert (found.rejected_at, found.changed_at) == (AT, LATER)
        assert found.rejected_at.utcoffset() is not None

    def test_a_rejection_that_is_too_large_is_not_kept_its_case_is(self, log, kept):
        case = case_of(a_rejection(data="x" * MAX_REJECTION), AT)
        log.note(case)
        assert kept(case.id).rejection is None
        assert kept(case.id).reason == "the table is full"

    @pytest.mark.parametrize("status", sorted(ENDED))
    def test_told_never_overwrites_an_end(self, log, kept, status):
        case = a_case()
        end = ended(case, status)
        log.note(end)
        assert log.note(case) == end
        assert kept(case.id) == end

    def test_what_is_told_twice_is_kept_as_it_was_told_first(self, log, kept):
        case = a_case()
        log.note(case)
        assert log.note(replace(case, rejected_at=LATER, changed_at=LATER)) == case
        assert kept(case.id) == case

    def test_an_end_overwrites_what_was_there_but_not_what_was_rejected_and_asked(self, log, kept):
        case = a_case()
        log.note(case)
        log.ask_again(case.id, ASKED)
        late = ended(case, rejected_at=LATER, rejection={"headers": {}, "data": None})
        wanted = ended(case, asked_again=1, asked_by="kim@desk", note="mended")
        assert log.note(late) == wanted
        assert kept(case.id) == wanted

    def test_one_end_follows_another(self, log, kept):
        case = a_case()
        log.note(ended(case))
        log.note(ended(case, RejectionStatus.COMPENSATED, first_event=4, event_count=1))
        found = kept(case.id)
        assert (found.status, found.first_event) == (RejectionStatus.COMPENSATED, 4)

    def test_of_many_who_note_at_once_the_end_stays(self, log, kept):
        case = a_case()
        noted = [case, ended(case), *[case] * 10]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(log.note, noted))
        assert kept(case.id) == ended(case)

    # -- asking again ------------------------------------------------------------------------

    @pytest.mark.parametrize("status", sorted(set(RejectionStatus) - SETTLED))
    def test_who_asks_again_is_counted_and_the_case_is_told(self, log, kept, status):
        case = a_case()
        log.note(ended(case, status, steps=(CompensationStep.ESCALATE,)))
        after = log.ask_again(case.id, ASKED)
        assert after == replace(
            case, asked_again=1, asked_by="kim@desk", note="mended", changed_at=LATER
        )
        assert kept(case.id) == after
        assert log.ask_again(case.id, ASKED).asked_again == 2

    @pytest.mark.parametrize("status", sorted(SETTLED))
    def test_who_asks_again_about_a_settled_case_changes_nothing(self, log, kept, status):
        case = ended(a_case(), status)
        log.note(case)
        assert log.ask_again(case.id, ASKED) == case
        assert kept(case.id) == case

    def test_nobody_is_asked_again_about_a_case_that_is_not_there(self, log):
        assert log.ask_again(str(uuid4()), ASKED) is None

    def test_all_who_ask_at_once_are_counted_apart(self, log):
        case = a_case()
        log.note(case)
        with ThreadPoolExecutor(6) as pool:
            found = pool.map(lambda _number: log.ask_again(case.id, ASKED), range(12))
            counts = [one.asked_again for one in found]
        assert sorted(counts) == list(range(1, 13))

    # -- looking up --------------------------------------------------------------------------

    def test_a_beginning_finds_at_most_two(self, log):
        beginning = str(uuid4())
        cases = [a_case(id=f"{beginning}{number}") for number in range(3)]
        for case in cases:
            log.note(case)
        assert len(log.look(beginning)) == 2
        assert log.look(cases[1].id) == [cases[1]]
        assert log.look(str(uuid4())) == []

    @pytest.mark.parametrize("wild", ["%", "_", "*", "?", "[a-z]", "\\", "/", "'"])
    def test_a_beginning_is_no_pattern(self, log, wild):
        beginning = str(uuid4())
        log.note(a_case(id=f"{beginning}xyz"))
        assert log.look(f"{beginning}{wild}") == []
        log.note(a_case(id=f"{beginning}{wild}z"))
        assert [case.id for case in log.look(f"{beginning}{wild}")] == [f"{beginning}{wild}z"]

    def test_a_beginning_says_capitals(self, log):
        beginning = str(uuid4())
        log.note(a_case(id=f"{beginning}abc"))
        assert log.look(f"{beginning}ABC") == []

    # -- listing -----------------------------------------------------------------------------

    def test_the_newest_come_first_without_their_rejections(self, log, saga):
        cases = [
            a_case(saga=saga, rejected_at=AT + timedelta(seconds=number)) for number in (2, 1, 3)
        ]
        for case in cases:
            log.note(case)
        first, second, third = cases
        wanted = [replace(case, rejection=None) for case in (third, first, second)]
        assert log.cases(CaseFilter(saga=saga), limit=9) == wanted
        assert log.cases(CaseFilter(saga=saga), limit=2) == wanted[:2]

    def test_pages_of_equal_times_leave_nothing_out_and_tell_nothing_twice(self, log, saga):
        for number in range(11):
            log.note(a_case(saga=saga, rejected_at=AT + timedelta(microseconds=number // 4)))
        found, before = [], None
        while page := log.cases(CaseFilter(saga=saga), limit=3, before=before):
            found += page
            before = (page[-1].rejected_at, page[-1].id)
        assert len({case.id for case in found}) == len(found) == 11
        assert [case.id for case in found] == [
            c.id for c in log.cases(CaseFilter(saga=saga), limit=99)
        ]

    def test_the_place_of_a_page_may_be_told_in_any_zone(self, log, saga):
        for number in range(4):
            log.note(a_case(saga=saga, rejected_at=AT + timedelta(hours=number)))
        first, second, *_ = log.cases(CaseFilter(saga=saga), limit=4)
        elsewhere = first.rejected_at.astimezone(ZONE)
        assert log.cases(CaseFilter(saga=saga), limit=1, before=(elsewhere, first.id)) == [second]

    def test_a_list_is_of_what_is_wanted(self, log, saga):
        one = a_case(a_rejection(saga=saga, source=Address(f"d-{saga}", "r")))
        two = replace(ended(a_case(saga=saga)), correlation_id=f"c-{saga}")
        three = a_case(a_rejection(saga=f"x{saga}"), correlation_id=f"c-{saga}")
        for case in (one, two, three):
            log.note(case)

        def ids(**wanted):
            return {case.id for case in log.cases(CaseFilter(**wanted), limit=9)}

        assert ids(saga=saga) == {one.id, two.id}
        assert ids(domain=f"d-{saga}") == {one.id}
        assert ids(saga=saga, status=RejectionStatus.FAILED) == {two.id}
        assert ids(correlation_id=f"c-{saga}") == {two.id, three.id}
        assert ids(correlation_id=f"c-{saga}", status=RejectionStatus.TOLD) == {three.id}
        assert ids(saga=saga, domain="table") == set()

    # -- pruning -----------------------------------------------------------------------------

    @pytest.fixture
    def pruned(self, log):
        """Removes cases that others left."""
        while log.prune(LATER + timedelta(days=9999), limit=500):
            pass

    def test_closed_cases_go_once_they_are_old(self, log, saga, pruned):
        cases = [a_case(saga=saga, status=status) for status in RejectionStatus]
        for case in cases:
            log.note(case)
        assert log.prune(AT, limit=500) == 0
        assert log.prune(AT + timedelta(seconds=1), limit=500) == len(CLOSED)
        left = {case.status for case in log.cases(CaseFilter(saga=saga), limit=99)}
        assert left == {RejectionStatus.TOLD, RejectionStatus.FAILED}

    def test_cases_go_a_few_at_a_time(self, log, saga, pruned):
        for number in range(5):
            log.note(a_case(id=f"{uuid4()}{number}", saga=saga, status=RejectionStatus.COMPENSATED))
        there = (AT + timedelta(seconds=1)).astimezone(ZONE)
        assert [log.prune(there, limit=2) for _ in range(4)] == [2, 2, 1, 0]
        assert log.cases(CaseFilter(saga=saga), limit=9) == []

    def test_an_old_case_that_changed_lately_stays(self, log, saga, pruned):
        case = a_case(saga=saga)
        log.note(case)
        log.note(ended(case, RejectionStatus.REVOKED))
        assert log.prune(LATER, limit=500) == 0
        assert log.prune(LATER + timedelta(seconds=1), limit=500) == 1

    def test_a_case_that_was_asked_again_stays_until_that_ended(self, log, saga, kept, pruned):
        case = a_case(saga=saga, status=RejectionStatus.DECLINED)
        log.note(case)
        log.ask_again(case.id, ASKED)
        assert log.prune(LATER + timedelta(days=999), limit=500) == 0
        assert kept(case.id).status is RejectionStatus.TOLD

    def test_what_is_noted_of_a_case_that_is_gone_is_kept(self, log, saga, kept, pruned):
        case = a_case(saga=saga, status=RejectionStatus.COMPENSATED)
        log.note(case)
        assert log.prune(LATER, limit=500) == 1
        assert log.ask_again(case.id, ASKED) is None
        log.note(case)
        assert kept(case.id) == case

    def test_closing_twice_is_safe(self, log):
        log.close()
        log.close()
