from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of
from tests.hand_clock import START
from tests.unit.analysis.alerted import HOUR, MINUTE, group_of, grown, job_of, new_watch

from angzarr.analysis.alerts.alert import JOB, LEDGER, AlertKind, Watch
from angzarr.analysis.alerts.alert_form import AlertSeverity
from angzarr.analysis.alerts.alert_rules import (
    see_group,
    see_job,
    see_oldest,
    see_settled,
    wants_attempts,
)
from angzarr.analysis.alerts.alert_state import AlertRules, of_storm, untold
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.group import GroupStatus
from angzarr.analysis.ledger.transition import filed
from angzarr.analysis.replay.job import JobStatus

RULES = AlertRules()
QUIET = replace(RULES, dead_letter_every=None)


def kinds(seen):
    return [found.kind for found in seen.findings]


def look(group, watch=None, now=START, rules=QUIET, newest=()):
    return see_group(watch or new_watch(), group, now, rules, newest)


def entry_of(event_id="e1", **fields):
    return filed(letter_of(event_id, **fields), START).entry


# -- new groups --------------------------------------------------------------------------------


def test_a_group_that_was_never_seen_is_new_once():
    first = look(group_of())
    assert kinds(first) == [AlertKind.NEW_GROUP]
    (found,) = first.findings
    assert (found.count, found.severity) == (3, AlertSeverity.ERROR)
    assert found.since == group_of().first_failed_at
    assert kinds(look(group_of(), first.watch)) == []


@pytest.mark.parametrize("status", [GroupStatus.ACKNOWLEDGED, GroupStatus.FIXED])
def test_a_group_that_people_know_is_not_new(status):
    assert kinds(look(group_of(status=status))) == []


def test_a_look_that_sees_nothing_new_changes_nothing():
    watch = look(group_of()).watch
    again = look(group_of(), watch, START + HOUR)
    assert again.watch is watch


def test_each_change_is_one_revision_on():
    seen = look(group_of())
    assert seen.watch.revision == 1
    assert look(grown(group_of(), 40), seen.watch, START + MINUTE).watch.revision == 2


# -- growth ------------------------------------------------------------------------------------


def test_a_group_that_doubled_within_the_window_grows():
    watch = look(group_of(entries=20)).watch
    seen = look(group_of(entries=40), watch, START + 30 * MINUTE)
    assert kinds(seen) == [AlertKind.GROUP_GROWING]
    assert (seen.findings[0].count, seen.findings[0].since) == (20, START)


@pytest.mark.parametrize(
    ("before", "after"),
    [(20, 39), (3, 12)],
    ids=["not by the factor", "by too few entries"],
)
def test_a_group_that_grew_little_does_not(before, after):
    watch = look(group_of(entries=before)).watch
    assert kinds(look(group_of(entries=after), watch, START + 30 * MINUTE)) == []


def test_growth_that_takes_longer_than_the_window_is_none():
    watch, group = look(group_of(entries=100)).watch, group_of(entries=100)
    for quarter in range(1, 40):  # a tenth an hour
        group = grown(group, 3)
        seen = look(group, watch, START + quarter * 15 * MINUTE)
        assert kinds(seen) == []
        watch = seen.watch


def test_growth_across_the_edges_of_any_slice_is_seen():
    watch, group = look(group_of(entries=100)).watch, group_of(entries=100)
    said = []
    for minute in range(1, 180):  # doubles within 50 minutes, from the 70th on
        group = grown(group, 2 if minute > 70 else 0)
        seen = look(group, watch, START + minute * MINUTE)
        said += [(minute, kind) for kind in kinds(seen)]
        watch = seen.watch
    assert said[0] == (120, AlertKind.GROUP_GROWING)


def test_a_group_that_goes_on_growing_is_told_again_only_when_it_doubled_again():
    watch, group = look(group_of(entries=10)).watch, group_of(entries=10)
    told = []
    for minute in range(1, 300):
        group = grown(group, 10)
        seen = look(group, watch, START + minute * MINUTE)
        told += [minute for _ in seen.findings]
        watch = seen.watch
    assert told == [1, 61, 123]  # later an hour does not double it


def test_entries_that_were_removed_are_no_growth_when_others_come():
    watch = look(group_of(entries=100)).watch
    watch = look(group_of(entries=10), watch, START + MINUTE).watch
    assert kinds(look(group_of(entries=15), watch, START + 2 * MINUTE)) == []
    assert kinds(look(group_of(entries=20), watch, START + 2 * MINUTE)) == [AlertKind.GROUP_GROWING]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 90)), max_size=40))
def test_however_a_group_grows_samples_stay_few_and_growth_is_true(steps):
    group, watch, now, seen_at = group_of(entries=20), new_watch(), START, {}
    for more, minutes in [(0, 1), *steps]:
        now += minutes * MINUTE
        group = grown(group, more)
        seen_at[now] = group.entries
        seen = look(group, watch, now)
        for found in seen.findings:
            if found.kind is AlertKind.GROUP_GROWING:
                longest = RULES.window * 1.25 + 90 * MINUTE  # a look may come late
                was = min(count for at, count in seen_at.items() if now - at <= longest)
                assert group.entries - was >= found.count >= RULES.growth_least
        watch = seen.watch
        assert len(watch.samples) <= 7


def test_letters_are_told_after_others_were_removed():
    watch = look(group_of(entries=100), rules=RULES).watch
    watch = look(group_of(entries=10), watch, START + HOUR, RULES).watch
    after = look(group_of(entries=11), watch, START + 2 * HOUR, RULES)
    assert [(found.kind, found.count) for found in after.findings] == [(AlertKind.DEAD_LETTER, 1)]


@pytest.mark.parametrize("entries", [2, 100, 101])
def test_a_group_that_was_removed_whole_and_fails_again_is_new(entries):
    watch = look(group_of(entries=100)).watch
    later = START + 900 * HOUR
    again = group_of(entries=entries, first_failed_at=later, last_failed_at=later)
    back = look(again, watch, START + 901 * HOUR)
    assert kinds(back) == [AlertKind.NEW_GROUP]
    assert back.watch.revision == watch.revision + 1
    assert kinds(look(again, back.watch, START + 902 * HOUR)) == []
    gone = see_settled(watch, None, START + 900 * HOUR).watch
    assert kinds(look(again, gone, START + 901 * HOUR)) == [AlertKind.NEW_GROUP]


# -- poison, regressions -----------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"failure_class": FailureClass.POISON}, {"reason": "poison"}])
def test_poison_is_told_instead_of_a_new_group(how):
    assert kinds(look(group_of(**how))) == [AlertKind.POISON]


def test_poison_that_comes_again_is_told_once_an_hour():
    group = group_of(reason="poison")
    watch = look(group).watch
    early = look(grown(group, 1), watch, START + 59 * MINUTE)
    assert kinds(early) == []
    late = look(grown(group, 2), early.watch, START + 60 * MINUTE)
    assert kinds(late) == [AlertKind.POISON]
    assert kinds(look(grown(group, 2), late.watch, START + 5 * HOUR)) == []


def test_a_regression_is_told_each_time_that_it_happens():
    watch = look(group_of(status=GroupStatus.FIXED)).watch
    back = look(group_of(status=GroupStatus.REGRESSED), watch, START + MINUTE)
    assert kinds(back) == [AlertKind.GROUP_REGRESSED]
    assert kinds(look(group_of(status=GroupStatus.REGRESSED), back.watch)) == []
    fixed = look(group_of(status=GroupStatus.FIXED), back.watch, START + 2 * MINUTE)
    again = look(group_of(status=GroupStatus.REGRESSED), fixed.watch, START + 3 * MINUTE)
    assert kinds(again) == [AlertKind.GROUP_REGRESSED]


# -- dead letters ------------------------------------------------------------------------------


def test_a_dead_letter_is_a_warning_at_most_every_five_minutes_a_group():
    first = look(group_of(), rules=RULES)
    assert kinds(first) == [AlertKind.NEW_GROUP, AlertKind.DEAD_LETTER]
    assert first.findings[1].severity is AlertSeverity.WARNING
    early = look(grown(group_of(), 2), first.watch, START + 4 * MINUTE, RULES)
    assert kinds(early) == []
    late = look(grown(group_of(), 3), early.watch, START + 5 * MINUTE, RULES)
    assert kinds(late) == [AlertKind.DEAD_LETTER]
    assert late.findings[0].count == 3
    assert kinds(look(grown(group_of(), 3), late.watch, START + HOUR, RULES)) == []


def test_dead_letters_can_be_quiet():
    first = look(group_of(), rules=QUIET)
    assert kinds(look(grown(group_of(), 3), first.watch, START + HOUR, QUIET)) == []


def test_letters_with_more_than_three_attempts_are_an_alert_of_their_own():
    newest = [entry_of("e1", attempts=4), entry_of("e2", attempts=3), entry_of("e3", attempts=9)]
    seen = look(group_of(), newest=newest)
    assert kinds(seen) == [AlertKind.NEW_GROUP, AlertKind.MANY_ATTEMPTS]
    assert seen.findings[1].count == 2
    assert kinds(look(group_of(), newest=newest[1:2])) == [AlertKind.NEW_GROUP]


def test_entries_are_read_only_where_something_would_be_said_of_them():
    group = group_of()
    assert wants_attempts(new_watch(), group, START, RULES)
    watch = look(group, newest=[entry_of(attempts=5)]).watch
    assert not wants_attempts(watch, group, START + 2 * HOUR, RULES)
    more = grown(group, 1, last_failed_at=START + MINUTE)
    assert not wants_attempts(watch, more, START + 59 * MINUTE, RULES)
    assert wants_attempts(watch, more, START + 60 * MINUTE, RULES)
    muted = replace(more, muted_until=START + 9 * HOUR)
    assert not wants_attempts(watch, muted, START + 60 * MINUTE, RULES)


def test_entries_that_could_not_be_read_in_a_look_are_for_a_later_one():
    group, newest = group_of(), [entry_of(attempts=5)]
    seen = see_group(new_watch(), group, START, RULES)
    assert kinds(seen) == [AlertKind.NEW_GROUP, AlertKind.DEAD_LETTER]
    assert wants_attempts(seen.watch, group, START + MINUTE, RULES)
    assert kinds(look(group, seen.watch, START + MINUTE, RULES, newest)) == [
        AlertKind.MANY_ATTEMPTS
    ]


def test_letters_with_many_attempts_are_told_of_once_however_many_easier_ones_follow():
    group, old = group_of(), entry_of("e1", attempts=9)
    watch = look(group, newest=[old]).watch
    for day in range(1, 5):
        now = START + day * 24 * HOUR
        group = grown(group, 1, last_failed_at=now)
        new = replace(entry_of(f"e{day + 1}", attempts=1), last_failed_at=now)
        assert wants_attempts(watch, group, now, QUIET)
        seen = look(group, watch, now, newest=[new, old])
        assert AlertKind.MANY_ATTEMPTS not in kinds(seen)
        watch = seen.watch
    many = replace(entry_of("e9", attempts=4), last_failed_at=now + HOUR)
    again = look(grown(group, 1, last_failed_at=now + HOUR), watch, now + HOUR, newest=[many, old])
    assert [(one.kind, one.count) for one in again.findings] == [(AlertKind.MANY_ATTEMPTS, 1)]


# -- mutes -------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 500), max_size=20), st.sampled_from(GroupStatus), st.booleans())
def test_of_a_muted_group_nothing_is_said(growth, status, poison):
    group = group_of(muted_until=START + 9 * HOUR, status=status, reason="poison" * poison)
    watch = new_watch()
    for minutes, more in enumerate(growth):
        group = grown(group, more)
        seen = look(group, watch, START + minutes * MINUTE, RULES, [entry_of(attempts=9)])
        assert kinds(seen) == []
        watch = seen.watch


def test_a_mute_that_ends_while_the_group_grows_raises_it_again():
    group = group_of(entries=20)
    watch = look(group).watch
    grows = look(grown(group, 20), watch, START + MINUTE)
    assert kinds(grows) == [AlertKind.GROUP_GROWING]
    muted = replace(grown(group, 60), muted_until=START + 10 * MINUTE)
    quiet = look(muted, grows.watch, START + 5 * MINUTE)
    assert kinds(quiet) == []
    after = look(muted, quiet.watch, START + 10 * MINUTE)
    assert kinds(after) == [AlertKind.GROUP_GROWING]


def test_a_mute_that_ends_when_the_group_is_calm_raises_nothing():
    group = group_of(entries=20, muted_until=START + HOUR)
    watch = look(group).watch
    assert kinds(look(group, watch, START + HOUR, RULES)) == []


# -- settled -----------------------------------------------------------------------------------


def test_what_was_raised_is_resolved_once_when_no_entry_is_open():
    watch = look(group_of(reason="poison"), rules=RULES).watch
    over = see_settled(watch, group_of(open_entries=0), START + HOUR)
    assert [(found.kind, found.resolved) for found in over.findings] == [(AlertKind.POISON, True)]
    assert over.findings[0].since == group_of().first_failed_at
    assert over.watch.open == {}


def test_a_group_that_is_gone_is_resolved_too():
    watch = look(group_of()).watch
    assert kinds(see_settled(watch, None, START + HOUR)) == [AlertKind.NEW_GROUP]


def test_the_end_of_a_muted_group_is_silent():
    watch = look(group_of()).watch
    muted = group_of(open_entries=0, muted_until=START + 9 * HOUR)
    over = see_settled(watch, muted, START + HOUR)
    assert (kinds(over), over.watch.open) == ([], {})


def test_a_group_that_was_settled_and_fails_again_is_told_but_not_every_minute():
    group = group_of()
    watch = see_settled(look(group).watch, replace(group, open_entries=0), START + HOUR).watch
    restored = look(group, watch, START + HOUR + MINUTE)  # a person restored one: no new letter
    assert kinds(restored) == []
    failed = look(replace(group, open_entries=1, occurrences=4), restored.watch, START + 2 * HOUR)
    assert kinds(failed) == [AlertKind.GROUP_REGRESSED]  # what they restored, or another
    back = look(replace(group, open_entries=1, occurrences=4), watch, START + 2 * HOUR)
    assert kinds(back) == [AlertKind.GROUP_REGRESSED]
    again = replace(group, open_entries=1, occurrences=5)
    assert kinds(look(again, back.watch, START + 4 * HOUR)) == []
    over = see_settled(back.watch, replace(group, open_entries=0, occurrences=4), START + 2 * HOUR)
    assert kinds(over) == [AlertKind.GROUP_REGRESSED]
    soon = look(again, over.watch, START + 2 * HOUR + MINUTE)
    assert kinds(soon) == []
    assert kinds(look(again, soon.watch, START + 3 * HOUR)) == [AlertKind.GROUP_REGRESSED]


def test_a_settled_group_that_fails_again_is_told_although_retention_took_some_of_it():
    group = group_of(entries=2)
    watch = look(group, rules=RULES).watch
    watch = see_settled(watch, replace(group, open_entries=0), START + HOUR).watch
    later = START + 900 * HOUR
    for removed in (1, 0):  # of two entries one is left, or both are, and one comes
        left = replace(group, entries=3 - removed, occurrences=3 - removed, open_entries=1)
        back = look(replace(left, last_failed_at=later), watch, later, RULES)
        assert kinds(back) == [AlertKind.GROUP_REGRESSED, AlertKind.DEAD_LETTER]
        assert back.findings[1].count == 1


def test_a_group_that_was_restored_closed_and_fails_again_is_told():
    group = group_of()
    closed = replace(group, open_entries=0)
    watch = see_settled(look(group).watch, closed, START + HOUR).watch
    restored = look(replace(group, open_entries=1), watch, START + 2 * HOUR)
    assert (kinds(restored), restored.watch.open) == ([], {})
    back = look(grown(group, 1), restored.watch, START + 9 * HOUR)
    assert kinds(back) == [AlertKind.GROUP_REGRESSED]


def test_a_group_that_was_called_fixed_and_flaps_is_told_once_an_hour():
    group, told, watch = group_of(status=GroupStatus.REGRESSED), 0, None
    for minute in range(0, 60, 2):
        seen = look(group, watch, START + minute * MINUTE)
        told += len(kinds(seen))
        closed = replace(group, open_entries=0)
        watch = see_settled(seen.watch, closed, START + (minute + 1) * MINUTE).watch
        group = grown(group, 1)
    assert told == 1


def test_a_group_that_was_settled_and_fails_again_grows_from_nothing():
    watch = look(group_of(entries=500)).watch
    watch = see_settled(watch, group_of(entries=500, open_entries=0), START + 2 * HOUR).watch
    few = look(group_of(entries=509, open_entries=9), watch, START + 3 * HOUR)
    assert kinds(few) == [AlertKind.GROUP_REGRESSED]
    many = look(group_of(entries=510, open_entries=10), few.watch, START + 3 * HOUR + MINUTE)
    assert kinds(many) == [AlertKind.GROUP_GROWING]
    assert many.findings[0].count == 10


# -- old entries -------------------------------------------------------------------------------


def test_old_entries_are_told_once_a_day_until_they_are_gone():
    watch, old = Watch(subject=LEDGER), [entry_of("e1"), entry_of("e2")]
    first = see_oldest(watch, old, START + 25 * HOUR, RULES)
    assert kinds(first) == [AlertKind.OLDEST_TOO_OLD]
    assert first.findings[0].since == old[0].first_failed_at
    assert kinds(see_oldest(first.watch, old, START + 48 * HOUR, RULES)) == []
    again = see_oldest(first.watch, old, START + 49 * HOUR, RULES)
    assert kinds(again) == [AlertKind.OLDEST_TOO_OLD]
    over = see_oldest(again.watch, [], START + 50 * HOUR, RULES)
    assert [found.resolved for found in over.findings] == [True]
    assert see_oldest(over.watch, [], START + 51 * HOUR, RULES).watch is over.watch


def test_the_first_look_is_remembered_even_if_nothing_is_old():
    seen = see_oldest(Watch(subject=LEDGER), [], START, RULES)
    assert (kinds(seen), seen.watch.revision) == ([], 1)


# -- storms ------------------------------------------------------------------------------------


def test_of_what_a_storm_spoke_for_the_end_is_not_told_but_of_what_was_told_before():
    told = look(group_of()).watch  # of itself, as new
    group = grown(group_of(status=GroupStatus.REGRESSED), 1)
    seen = look(group, told, START + HOUR)
    assert kinds(seen) == [AlertKind.GROUP_REGRESSED]
    follower = untold(told, seen)
    assert of_storm(follower)
    over = see_settled(follower, replace(group, open_entries=0), START + 2 * HOUR)
    assert kinds(over) == [AlertKind.NEW_GROUP]
    assert not of_storm(over.watch)


def test_what_is_told_of_a_group_for_which_a_storm_spoke_is_resolved():
    first = look(group_of())
    follower = untold(new_watch(), first)
    fixed = look(group_of(status=GroupStatus.FIXED), follower, START + HOUR).watch
    back = look(group_of(status=GroupStatus.REGRESSED), fixed, START + 2 * HOUR)
    over = see_settled(back.watch, group_of(open_entries=0), START + 3 * HOUR)
    assert kinds(over) == [AlertKind.GROUP_REGRESSED]


# -- replay jobs -------------------------------------------------------------------------------


def test_each_halt_of_a_job_is_told_once():
    watch = Watch(subject=JOB + "job-1")
    halted = see_job(watch, job_of(), START, RULES)
    assert kinds(halted) == [AlertKind.REPLAY_HALTED]
    assert kinds(see_job(halted.watch, job_of(failed=6), START, RULES)) == []
    once_more = see_job(halted.watch, job_of(sent=7), START, RULES)
    assert kinds(once_more) == [AlertKind.REPLAY_HALTED]


def test_a_job_that_goes_on_is_resolved():
    halted = see_job(Watch(subject=JOB + "job-1"), job_of(), START, RULES)
    over = see_job(halted.watch, job_of(status=JobStatus.RUNNING), START + MINUTE, RULES)
    assert [(found.kind, found.resolved) for found in over.findings] == [
        (AlertKind.REPLAY_HALTED, True)
    ]
    assert kinds(see_job(over.watch, job_of(sent=7), START + 2 * MINUTE, RULES)) == [
        AlertKind.REPLAY_HALTED
    ]


def test_a_job_that_waits_for_approval_is_told_at_once_and_once_a_day():
    watch, job = Watch(subject=JOB + "job-1"), job_of(status=JobStatus.PROPOSED, sent=0)
    asked = see_job(watch, job, START, RULES)
    (found,) = asked.findings
    assert (found.kind, found.count) == (AlertKind.APPROVAL_WANTED, 100)
    assert (found.since, found.severity) == (START - HOUR, AlertSeverity.ERROR)
    assert kinds(see_job(asked.watch, job, START + 23 * HOUR, RULES)) == []
    again = see_job(asked.watch, job, START + 24 * HOUR, RULES)
    assert kinds(again) == [AlertKind.APPROVAL_WANTED]
    for after in (job_of(status=JobStatus.RUNNING), job_of(status=JobStatus.CANCELLED), None):
        over = see_job(again.watch, after, START + 25 * HOUR, RULES)
        assert [(one.kind, one.resolved) for one in over.findings] == [
            (AlertKind.APPROVAL_WANTED, True)
        ]
        assert not over.watch.open


def test_a_job_that_was_approved_and_halted_between_two_looks_tells_both():
    asked = see_job(Watch(subject=JOB + "job-1"), job_of(status=JobStatus.PROPOSED), START, RULES)
    halted = see_job(asked.watch, job_of(), START + MINUTE, RULES)
    assert [(one.kind, one.resolved) for one in halted.findings] == [
        (AlertKind.APPROVAL_WANTED, True),
        (AlertKind.REPLAY_HALTED, False),
    ]
    assert set(halted.watch.open) == {AlertKind.REPLAY_HALTED}
    assert see_job(halted.watch, job_of(), START + HOUR, RULES).watch is halted.watch


def test_poison_that_is_back_is_told_as_poison():
    group = group_of(reason="poison")
    watch = see_settled(look(group).watch, replace(group, open_entries=0), START + HOUR).watch
    back = look(grown(group, 1), watch, START + 2 * HOUR)
    assert kinds(back) == [AlertKind.POISON]
    assert kinds(look(grown(group, 1), back.watch, START + 9 * HOUR)) == []


def test_letters_that_were_archived_meanwhile_are_told_before_their_group_is_settled():
    group = group_of(reason="poison")
    watch, later = look(group).watch, START + 2 * HOUR
    more = replace(grown(group, 1), open_entries=0, by_status={"archived": 4})
    assert see_settled(watch, more, later).watch is watch
    told = look(more, watch, later)
    assert kinds(told) == [AlertKind.POISON]
    assert kinds(see_settled(told.watch, more, later + MINUTE)) == [AlertKind.POISON]  # resolved
