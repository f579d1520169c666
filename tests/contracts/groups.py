"""What the groups of every ledger must do. Subclass `GroupsContract` and give it `ledger`."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.contracts.ledger import HOLD, LEASE, REPLAY, letter_of, resolve
from tests.hand_clock import START, HandClock

from angzarr.analysis.ledger.entry import OPEN, Status
from angzarr.analysis.ledger.group import Amendment, GroupFilter, GroupStatus
from angzarr.analysis.ledger.ledger import Decided, EntryFilter
from angzarr.analysis.ledger.operator_actions import Act, Verb
from angzarr.analysis.ledger.transition import Action
from angzarr.errors import ConfigurationError

ALL = GroupFilter(open_only=False)
FIXED = Amendment(status=GroupStatus.FIXED)


def decide(ledger, entry, decision=HOLD):
    decided = Decided(entry_id=entry.id, revision=entry.revision, decision=decision)
    return ledger.decide([decided], by="me")


def everything(ledger):
    """Return all entries, page by page."""
    entries, after = [], ""
    while True:
        page = ledger.get_failed_events(status=None, limit=50, after=after)
        entries += page.entries
        if not (after := page.next):
            return entries


def assert_counts_are_exact(ledger):
    """What is counted must be what a look at every entry finds."""
    entries, stats = everything(ledger), ledger.get_failure_stats()
    assert stats.total == len(entries)
    assert stats.by_status == Counter(e.status.value for e in entries)
    assert stats.by_class == Counter(str(e.failure_class or "") for e in entries)
    assert stats.by_domain == Counter(e.domain for e in entries)
    assert stats.by_handler == Counter(e.handler_name for e in entries)
    assert stats.occurrences == sum(e.occurrences for e in entries)
    assert stats.replays == sum(e.replays for e in entries)
    still = [e.first_failed_at for e in entries if e.status in OPEN]
    assert stats.oldest_open_at == min(still, default=None)
    by_name = {group.fingerprint: group for group in ledger.get_groups(ALL, limit=1000).groups}
    assert {e.fingerprint for e in entries} <= by_name.keys()
    for name, group in by_name.items():
        mine = [e for e in entries if e.fingerprint == name]
        assert group.entries == len(mine)
        assert group.open_entries == sum(e.status in OPEN for e in mine)
        assert group.occurrences == sum(e.occurrences for e in mine)
        assert dict(group.by_status) == Counter(e.status.value for e in mine)


class Hand:
    """Does to a ledger what workers and people do, by chance."""

    def __init__(self, ledger, seed: int, events: int = 12) -> None:
        self.ledger, self.chance, self.events = ledger, random.Random(seed), events
        self.replays = Counter()

    def move(self) -> None:
        self.chance.choice((self.file, self.file, self.decide, self.replay, self.resolve))()

    def file(self) -> None:
        some = [self._letter() for _ in range(self.chance.randint(1, 6))]
        self.ledger.add_failed_events(some)

    def decide(self) -> None:
        entries = self._some()
        self.ledger.decide(
            [
                Decided(
                    entry_id=e.id, revision=e.revision, decision=self.chance.choice((HOLD, REPLAY))
                )
                for e in entries
            ],
            by="me",
        )

    def replay(self) -> None:
        for e in self._some()[:1]:
            number = e.replays + 1
            begun = self.ledger.mark_retrying(
                e.id, number, revision=e.revision, by="me", lease=LEASE
            )
            if begun and self.chance.random() < 0.5:
                self.ledger.mark_published(e.id, number, answer_by=START + timedelta(hours=1))
                self.ledger.mark_answered(e.id, number, by=f"replay {number} (handled)")

    def resolve(self) -> None:
        for e in self._some()[:1]:
            resolve(self.ledger, e.id, "ann")

    def _some(self):
        entries = list(self.ledger.get_failed_events(status=None, limit=50).entries)
        return self.chance.sample(entries, min(len(entries), self.chance.randint(1, 5)))

    def _letter(self):
        event = f"e{self.chance.randrange(self.events)}"
        return letter_of(
            event,
            replay=self.chance.choice((0, 0, 1, 2)),
            fingerprint=f"f{self.chance.randrange(4)}",
            domain=self.chance.choice(("order", "mail")),
            last_attempt_at=START + timedelta(seconds=self.chance.randrange(100)),
        )


class GroupsContract:
    """The suite; `ledger` has groups, begins empty and reads `clock`."""

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def ledger(self, clock):
        raise NotImplementedError

    def group_of(self, ledger, entry):
        return ledger.open_group(entry.fingerprint)

    # -- counting ------------------------------------------------------------------------

    def test_group_tells_of_the_entry_that_failed_last(self, ledger):
        first, last = ledger.add_failed_events(
            [
                letter_of("e1", fingerprint="f1", error_message="early"),
                letter_of(
                    "e2", fingerprint="f1", error_message="late" * 1000,
                    last_attempt_at=START + timedelta(minutes=3),
                ),
            ]
        )  # fmt: skip
        group = ledger.open_group("f1")
        assert (group.handler_name, group.domain, group.event_type) == (
            "orders.sync", "order", "OrderPlaced",
        )  # fmt: skip
        assert group.error_message == ("late" * 1000)[:2000]
        assert (group.latest_entry_id, group.last_failed_at) == (last.id, last.last_failed_at)
        assert group.first_failed_at == first.first_failed_at
        assert (group.entries, group.open_entries, group.occurrences) == (2, 2, 2)
        assert group.by_status == {"failed": 2}
        assert (group.status, group.owner, group.muted_until) == (GroupStatus.NEW, "", None)

    def test_an_older_failure_filed_later_changes_only_the_counts(self, ledger):
        late = ledger.add_failed_event(
            letter_of("e1", fingerprint="f1", last_attempt_at=START + timedelta(minutes=3))
        )
        ledger.add_failed_event(letter_of("e2", fingerprint="f1", error_message="old"))
        group = ledger.open_group("f1")
        assert (group.latest_entry_id, group.entries) == (late.id, 2)
        assert group.error_message == "timed out after 3 s"

    def test_group_knows_the_class_of_its_latest_entry(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        assert self.group_of(ledger, entry).failure_class is None
        decide(ledger, entry)
        group = self.group_of(ledger, entry)
        assert (group.failure_class, group.by_status) == (HOLD.failure_class, {"held": 1})

    def test_closed_entries_are_not_open(self, ledger):
        entry = ledger.add_failed_event(letter_of())
        resolve(ledger, entry.id, "ann")
        group = self.group_of(ledger, entry)
        assert (group.entries, group.open_entries, group.by_status) == (1, 0, {"resolved": 1})

    def test_an_entry_that_fails_otherwise_moves_to_another_group(self, ledger):
        ledger.add_failed_event(letter_of(fingerprint="f1"))
        ledger.add_failed_event(letter_of(replay=1, fingerprint="f2"))
        assert ledger.open_group("f1").entries == 0
        group = ledger.open_group("f2")
        assert (group.entries, group.occurrences) == (1, 2)

    def test_names_that_databases_cut_or_refuse_are_one_group(self, ledger):
        hostile = "f\x00" + "ü\ud800" * 600
        entry = ledger.add_failed_event(
            letter_of("e1", fingerprint=hostile, handler="h" * 900, domain="d" * 900)
        )
        decide(ledger, entry)
        ledger.add_failed_event(letter_of("e2", fingerprint=hostile))
        assert ledger.open_group(hostile).entries == 2
        assert ledger.get_failure_stats().total == 2

    def test_unknown_group_is_none(self, ledger):
        assert ledger.open_group("f9\x00") is None
        assert ledger.group_history("f9") == ()

    @pytest.mark.parametrize("seed", range(4))
    def test_counts_equal_a_look_at_every_entry_whatever_was_done(self, ledger, seed):
        hand = Hand(ledger, seed)
        for _ in range(25):
            hand.move()
        assert_counts_are_exact(ledger)

    def test_workers_on_the_same_groups_neither_block_nor_miscount(self, ledger):
        barrier = threading.Barrier(4)

        def work(worker: int) -> None:
            hand = Hand(ledger, seed=100 + worker, events=30)
            barrier.wait()
            for _ in range(25):
                hand.move()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert_counts_are_exact(ledger)

    # -- looking -------------------------------------------------------------------------

    def test_pages_show_every_group_once_newest_first(self, ledger):
        ledger.add_failed_events(
            [
                letter_of(
                    f"e{n}", fingerprint=f"f{n}", last_attempt_at=START + timedelta(seconds=n // 2)
                )
                for n in range(7)
            ]
        )
        seen, after = [], ""
        while True:
            page = ledger.get_groups(limit=3, after=after)
            seen += page.groups
            if not (after := page.next):
                break
        assert [group.fingerprint for group in seen] == [f"f{n}" for n in (6, 5, 4, 3, 2, 1, 0)]
        assert all(group.by_status == {"failed": 1} for group in seen)

    def test_malformed_cursor_is_refused(self, ledger):
        with pytest.raises(ValueError, match="not a cursor"):
            ledger.get_groups(after="yesterday")

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            (GroupFilter(), {"fa", "fb"}),
            (ALL, {"fa", "fb", "gc"}),
            (GroupFilter(handler_name="mail.send"), {"fb"}),
            (GroupFilter(domain="mail"), {"fb"}),
            (GroupFilter(error_type="KeyError"), {"fb"}),
            (GroupFilter(owner="ann"), {"fa"}),
            (GroupFilter(status=GroupStatus.ACKNOWLEDGED), {"fa"}),
            (GroupFilter(since=START + timedelta(minutes=1)), {"fb"}),
            (GroupFilter(until=START + timedelta(minutes=1)), {"fa"}),
            (GroupFilter(prefix="f"), {"fa", "fb"}),
            (GroupFilter(prefix="F"), set()),
            (GroupFilter(prefix="%", open_only=False), set()),
        ],
    )
    def test_filter_finds_what_it_names(self, ledger, wanted, found):
        later = START + timedelta(minutes=1)
        *_, closed = ledger.add_failed_events(
            [
                letter_of("e1", fingerprint="fa"),
                letter_of(
                    "e2", fingerprint="fb", handler="mail.send", domain="mail",
                    error_type="KeyError", last_attempt_at=later,
                ),
                letter_of("e3", fingerprint="gc"),
            ]
        )  # fmt: skip
        resolve(ledger, closed.id, "ann")
        mine = Amendment(owner="ann", status=GroupStatus.ACKNOWLEDGED)
        ledger.amend("fa", mine, revision=1, by="ann")
        assert {group.fingerprint for group in ledger.get_groups(wanted).groups} == found

    def test_the_oldest_open_entries_are_found_behind_those_of_muted_groups(self, ledger, clock):
        for number, group in enumerate(("muted", "muted", "loud", "muted", "loud")):
            at = START - timedelta(hours=9 - number)
            ledger.add_failed_event(letter_of(f"e{number}", fingerprint=group, first_attempt_at=at))
        until = START + timedelta(days=1)
        ledger.amend("muted", Amendment(muted_until=until), revision=1, by="ann")

        def oldest():
            return [one.event_id for one in ledger.oldest_open(limit=2, unmuted=True)]

        assert oldest() == ["e2", "e4"]
        assert [one.event_id for one in ledger.oldest_open(limit=2)] == ["e0", "e1"]
        clock.sleep(timedelta(days=1))
        assert oldest() == ["e0", "e1"]

    # -- amending ------------------------------------------------------------------------

    def test_amendment_is_made_and_told(self, ledger):
        ledger.add_failed_event(letter_of(fingerprint="f1"))
        until = START + timedelta(days=2)
        wanted = Amendment(
            status=GroupStatus.ACKNOWLEDGED, owner="ann", note="looks\nlike DNS", muted_until=until
        )
        group = ledger.amend("f1", wanted, revision=1, by="bob")
        assert group == ledger.open_group("f1")
        assert (group.status, group.owner, group.note, group.muted_until, group.revision) == (
            GroupStatus.ACKNOWLEDGED, "ann", "looks\nlike DNS", until, 2,
        )  # fmt: skip
        (line,) = ledger.group_history("f1")
        assert (line.at, line.who, line.what) == (START, "bob", "amended")
        for said in ("status: acknowledged", "owner: ann", "note: looks", "2026-01-03"):
            assert said in line.detail

    def test_a_mute_can_be_ended(self, ledger):
        ledger.add_failed_event(letter_of(fingerprint="f1"))
        until = START + timedelta(days=2)
        ledger.amend("f1", Amendment(muted_until=until), revision=1, by="ann")
        ledger.amend("f1", Amendment(muted_until=until, unmute=True), revision=2, by="ann")
        assert ledger.open_group("f1").muted_until is None
        assert ledger.group_history("f1")[-1].detail == "muted_until: none"

    def test_amendment_of_an_older_revision_changes_nothing(self, ledger):
        ledger.add_failed_event(letter_of(fingerprint="f1"))
        assert ledger.amend("f1", Amendment(owner="ann"), revision=1, by="ann")
        assert ledger.amend("f1", Amendment(owner="bob"), revision=1, by="bob") is None
        assert ledger.amend("f9", Amendment(owner="bob"), revision=1, by="bob") is None
        assert ledger.open_group("f1").owner == "ann"

    def test_amendment_that_changes_nothing_leaves_no_line(self, ledger):
        ledger.add_failed_event(letter_of(fingerprint="f1"))
        group = ledger.amend("f1", Amendment(owner=""), revision=1, by="ann")
        assert group == ledger.open_group("f1")
        assert (group.revision, ledger.group_history("f1")) == (1, ())

    def test_texts_of_a_group_are_bounded(self):
        for bad in (
            {"owner": "x" * 201},
            {"note": "x" * 4001},
            {"status": GroupStatus.REGRESSED},
        ):
            with pytest.raises(ConfigurationError):
                Amendment(**bad)

    def test_filing_and_deciding_leave_peoples_words_alone(self, ledger):
        entry = ledger.add_failed_event(letter_of(fingerprint="f1"))
        words = Amendment(owner="ann", status=GroupStatus.ACKNOWLEDGED)
        ledger.amend("f1", words, revision=1, by="ann")
        decide(ledger, entry)
        ledger.add_failed_event(letter_of("e2", fingerprint="f1"))
        group = ledger.open_group("f1")
        assert (group.owner, group.status) == ("ann", GroupStatus.ACKNOWLEDGED)
        assert group.revision == 2

    # -- regressing ----------------------------------------------------------------------

    def test_a_fixed_group_that_fails_again_has_regressed(self, ledger, clock):
        first = ledger.add_failed_event(letter_of("e1", fingerprint="f1"))
        ledger.amend("f1", FIXED, revision=1, by="ann")
        decide(ledger, first)
        assert ledger.open_group("f1").status is GroupStatus.FIXED
        clock.sleep(timedelta(minutes=5))
        ledger.add_failed_event(letter_of("e2", fingerprint="f1"))
        group = ledger.open_group("f1")
        assert (group.status, group.revision) == (GroupStatus.REGRESSED, 3)
        assert ledger.amend("f1", Amendment(owner="ann"), revision=2, by="ann") is None
        line = ledger.group_history("f1")[-1]
        assert (line.what, line.at) == ("regressed", START + timedelta(minutes=5))

    def test_a_failed_replay_regresses_a_fixed_group_too(self, ledger):
        entry = ledger.add_failed_event(letter_of(fingerprint="f1"))
        ledger.amend("f1", FIXED, revision=1, by="ann")
        ledger.mark_retrying(entry.id, 1, revision=entry.revision, by="me", lease=LEASE)
        ledger.add_failed_event(letter_of(replay=1, fingerprint="f1"))
        assert ledger.open_group("f1").status is GroupStatus.REGRESSED

    def test_letters_that_tell_nothing_new_do_not_regress_a_group(self, ledger):
        ledger.add_failed_event(letter_of(replay=2, fingerprint="f1"))
        ledger.amend("f1", FIXED, revision=1, by="ann")
        ledger.add_failed_event(letter_of(replay=2, fingerprint="f1"))
        ledger.add_failed_event(letter_of(replay=1, fingerprint="f1"))
        group = ledger.open_group("f1")
        assert (group.status, group.occurrences) == (GroupStatus.FIXED, 2)

    def test_a_group_regresses_once(self, ledger):
        ledger.add_failed_event(letter_of("e1", fingerprint="f1"))
        ledger.amend("f1", FIXED, revision=1, by="ann")
        ledger.add_failed_events([letter_of(f"n{n}", fingerprint="f1") for n in range(3)])
        ledger.add_failed_event(letter_of("e3", fingerprint="f1"))
        assert [line.what for line in ledger.group_history("f1")] == ["amended", "regressed"]

    # -- pruning -------------------------------------------------------------------------

    def test_closed_entries_are_removed_and_open_ones_never(self, ledger, clock):
        names = ("failed", "waiting", "held", "retrying", "resolved", "skipped", "archived")
        entries = ledger.add_failed_events([letter_of(n, fingerprint=n) for n in names])
        waiting, held, retrying, resolved, skipped, archived = entries[1:]
        decide(ledger, waiting, REPLAY)
        decide(ledger, held)
        ledger.mark_retrying(retrying.id, 1, revision=1, by="me", lease=LEASE)
        resolve(ledger, resolved.id, "ann")
        decide(ledger, skipped, replace(HOLD, action=Action.SKIP))
        decide(ledger, archived, replace(HOLD, action=Action.ARCHIVE))
        clock.sleep(timedelta(days=400))
        every = dict.fromkeys(Status, clock.now())
        assert ledger.prune(every, limit=2) == 2
        assert ledger.prune(every, limit=10) == 1
        assert ledger.prune(every, limit=10) == 0
        left = {entry.event_id for entry in everything(ledger)}
        assert left == {"failed", "waiting", "held", "retrying"}
        assert ledger.open(resolved.id) is None
        assert not ledger.find_by_letters([resolved.letter_id])
        assert ledger.open_group("resolved") is None
        assert_counts_are_exact(ledger)

    def test_an_entry_is_kept_as_long_as_its_status_says(self, ledger, clock):
        resolved, archived = ledger.add_failed_events([letter_of("e1"), letter_of("e2")])
        resolve(ledger, resolved.id, "ann")
        decide(ledger, archived, replace(HOLD, action=Action.ARCHIVE))
        assert ledger.prune(dict.fromkeys(Status, START), limit=10) == 0
        clock.sleep(timedelta(days=30))
        assert ledger.prune({Status.RESOLVED: START + timedelta(days=1)}, limit=10) == 1
        assert [entry.id for entry in everything(ledger)] == [archived.id]

    def test_what_was_archived_lately_is_kept_however_long_ago_it_was_skipped(self, ledger, clock):
        entry = ledger.add_failed_event(letter_of())
        skip = Act(entry_id=entry.id, revision=1, verb=Verb.SKIP)
        assert ledger.act([skip], by="ann") == [True]
        clock.sleep(timedelta(days=300))
        archive = Act(entry_id=entry.id, revision=2, verb=Verb.ARCHIVE)
        assert ledger.act([archive], by="ann") == [True]
        assert ledger.prune({Status.ARCHIVED: START + timedelta(days=120)}, limit=10) == 0
        clock.sleep(timedelta(days=1))
        assert ledger.prune({Status.ARCHIVED: clock.now()}, limit=10) == 1

    def test_a_compensation_that_is_not_sent_yet_is_kept(self, ledger, clock):
        entry = ledger.add_failed_event(letter_of())
        act = Act(entry_id=entry.id, revision=1, verb=Verb.COMPENSATE)
        assert ledger.act([act], by="ann") == [True]
        clock.sleep(timedelta(days=300))
        assert ledger.prune(dict.fromkeys(Status, clock.now()), limit=10) == 0
        ledger.mark_compensated(entry.id)
        assert ledger.prune(dict.fromkeys(Status, clock.now() + LEASE), limit=10) == 1

    def test_a_group_of_which_people_spoke_outlives_its_entries(self, ledger, clock):
        entry = ledger.add_failed_event(letter_of(fingerprint="f1"))
        ledger.amend("f1", FIXED, revision=1, by="ann")
        resolve(ledger, entry.id, "ann")
        clock.sleep(timedelta(days=300))
        assert ledger.prune(dict.fromkeys(Status, clock.now()), limit=10) == 1
        group = ledger.open_group("f1")
        assert (group.entries, group.occurrences, group.by_status) == (0, 0, {})
        ledger.add_failed_event(letter_of("e2", fingerprint="f1"))
        assert ledger.open_group("f1").status is GroupStatus.REGRESSED

    def test_workers_share_what_is_to_be_removed(self, ledger, clock):
        letters = [letter_of(f"e{n}", fingerprint=f"f{n % 3}") for n in range(40)]
        for entry in ledger.add_failed_events(letters):
            resolve(ledger, entry.id, "ann")
        clock.sleep(timedelta(days=300))
        barrier, every = threading.Barrier(4), dict.fromkeys(Status, clock.now())

        def remove(_worker: int) -> int:
            barrier.wait()
            return sum(ledger.prune(every, limit=5) for _ in range(8))

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(remove, range(4))) == 40
        assert_counts_are_exact(ledger)

    # -- pages of entries by what groups know --------------------------------------------

    def test_every_filter_finds_what_a_look_at_every_entry_finds(self, ledger):
        hand = Hand(ledger, seed=0, events=40)
        for _ in range(20):
            hand.move()
        entries = everything(ledger)
        choices = {
            "handler_name": (None, "orders.sync"),
            "domain": (None, "order"),
            "fingerprint": (None, "f1"),
            "tenant_id": (None, "acme"),
            "failure_class": (None, HOLD.failure_class),
            "since": (None, START + timedelta(seconds=30)),
        }
        for values in itertools.product(*choices.values(), (None, Status.HELD)):
            *asked, status = values
            given = dict(zip(choices, asked, strict=True))
            expected = [
                e.id
                for e in entries
                if all(
                    want is None or getattr(e, name) == want
                    for name, want in given.items()
                    if name != "since"
                )
                and (given["since"] is None or e.last_failed_at >= given["since"])
                and status in {None, e.status}
            ]
            found, after = [], ""
            while True:
                page = ledger.get_failed_events(
                    EntryFilter(**given), status=status, limit=15, after=after
                )
                found += [e.id for e in page.entries]
                if not (after := page.next):
                    break
            assert found == expected, given
