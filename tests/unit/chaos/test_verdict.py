"""Every kind of breach is found, each in a history made by hand; and what is well is let be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.chaos.conftest import a_run, an_entry, around, cut, disturbed, entry_of, planned

from chaos import rules
from chaos import verdict as v
from chaos.disturbances import Circumstances, Outage, What
from chaos.fates import FATES, LETHAL, PAIR, STEPS
from chaos.history import DYING, FAILED
from chaos.revocations import IGNORED, Revocation

OK, PERMANENT = planned("ok"), planned("permanent")


# -- what is well ----------------------------------------------------------------------------------


def test_handled_and_in_the_ledger_are_ends(verdict):
    runs = [a_run(), a_run(how=FAILED, event="permanent-1")]
    breaches, ends = verdict(OK, PERMANENT, runs=runs, entries=[an_entry()])
    assert breaches == []
    assert ends == {("ok", "handled"): 1, ("permanent", "refused"): 1}


def test_each_handler_of_an_event_counts_for_itself(verdict):
    pair = planned("pair")
    one = a_run(event="pair-1", handler=PAIR[0])
    assert verdict(pair, runs=[one, replace(one, pair=(PAIR[1], "pair-1"))])[0] == []
    breaches, ends = verdict(pair, runs=[one])
    assert breaches == [(v.LOST, "pair-1")]
    assert ends == {("pair", "handled"): 1, ("pair", "lost"): 1}


def test_each_step_of_a_chain_has_an_id_of_its_own(verdict):
    first = a_run(event="chain-1-1", handler=STEPS[0])
    assert verdict(planned("chain"), runs=[first])[0] == [(v.LOST, "chain-1-2")]


# -- ends ------------------------------------------------------------------------------------------


def test_an_event_that_never_ran_is_lost(verdict):
    assert verdict(OK) == ([(v.LOST, "ok-1")], {("ok", "lost"): 1})


def test_an_event_that_was_cut_and_never_came_back_is_lost(verdict):
    killed = around(disturbed())
    assert verdict(OK, runs=[cut()], around=killed)[0] == [(v.LOST, "ok-1")]


def test_an_event_that_failed_without_a_letter_is_lost(verdict):
    run = a_run(how=FAILED, event="permanent-1")
    assert verdict(PERMANENT, runs=[run])[0] == [(v.LOST, "permanent-1")]


def test_a_reason_that_does_not_fit_the_fate_is_found(verdict):
    run = a_run(how=FAILED, event="permanent-1")
    entry = an_entry(reason="exhausted")
    assert verdict(PERMANENT, runs=[run], entries=[entry])[0] == [(v.END, "permanent-1")]
    assert verdict(PERMANENT, runs=[a_run(event="permanent-1")])[0] == [(v.END, "permanent-1")]


def test_poison_fits_any_fate_that_was_cut_often_enough(verdict):
    runs = [cut(n, worker=f"w{n}") for n in range(3)]
    killed = around(*(disturbed(start=n + 0.5, worker=f"w{n}") for n in range(3)))
    entry = an_entry("ok-1", "poison")
    assert verdict(OK, runs=runs, entries=[entry], around=killed)[0] == []
    assert verdict(OK, runs=runs[:2], entries=[entry], around=killed)[0] == [(v.END, "ok-1")]


def test_poison_fits_no_event_that_failed_in_order(verdict):
    transient, entry = planned("transient"), an_entry("transient-1", "poison")
    runs = [a_run(n, n + 0.5, FAILED, event="transient-1", attempt=n, hop=n - 1) for n in (1, 2, 3)]
    assert verdict(transient, runs=runs, entries=[entry])[0] == [(v.END, "transient-1")]
    mixed = [*runs[:1], *(cut(n, event="transient-1", attempt=2, hop=1) for n in (5, 7))]
    killed = around(disturbed(start=5.5), disturbed(start=7.5))
    found, _ = verdict(transient, runs=mixed, entries=[entry], around=killed)
    assert found == [(v.END, "transient-1")], "two starts were left open, not three"


def test_a_failure_that_a_kill_kept_from_being_settled_counts_for_poison(verdict):
    runs = [a_run(n, n + 0.5, FAILED, worker=f"w{n}") for n in (1, 4, 7)]
    killed = around(*(disturbed(start=n + 0.6, worker=f"w{n}") for n in (1, 4, 7)))
    assert verdict(OK, runs=runs, entries=[an_entry("ok-1", "poison")], around=killed)[0] == []


def test_two_entries_of_one_event_are_found(verdict):
    run = a_run(how=FAILED, event="permanent-1")
    entries = [an_entry(), an_entry(id="e2")]
    assert verdict(PERMANENT, runs=[run], entries=entries)[0] == [(v.ENTRIES, "permanent-1")]


def test_an_entry_that_nobody_decided_still_waits(verdict):
    run = a_run(how=FAILED, event="permanent-1")
    for status in ("failed", "waiting", "retrying"):
        entry = an_entry(status=status)
        assert verdict(PERMANENT, runs=[run], entries=[entry])[0] == [(v.UNDECIDED, "permanent-1")]


# -- two ends --------------------------------------------------------------------------------------

FICKLE = planned("fickle")
FAILS = a_run(1, 3, FAILED, event="fickle-1")
HANDLES = a_run(10, 11, event="fickle-1", worker="w2")
LETTER = an_entry("fickle-1")


def test_an_event_that_was_handled_and_has_a_letter_has_two_ends(verdict):
    found, _ = verdict(OK, runs=[a_run()], entries=[an_entry("ok-1", "poison")])
    assert (v.BOTH, "ok-1") in found


def test_a_late_owner_that_writes_a_letter_was_not_fenced(verdict):
    late = replace(FAILS, closed=20.0)
    frozen = around(disturbed(What.FROZEN, 2.0, 15.0))
    found, _ = verdict(FICKLE, runs=[late, HANDLES], entries=[LETTER], around=frozen)
    assert found == [(v.BOTH, "fickle-1")]
    assert verdict(FICKLE, runs=[late, HANDLES], around=frozen)[0] == []


def test_what_a_frozen_worker_did_with_an_event_that_another_refused_is_no_end(verdict):
    frozen = around(disturbed(What.FROZEN, 0.5, 9.5, worker="w2"))
    assert verdict(FICKLE, runs=[FAILS, HANDLES], entries=[LETTER], around=frozen)[0] == []
    found, _ = verdict(FICKLE, runs=[FAILS, HANDLES], entries=[LETTER])
    assert (v.BOTH, "fickle-1") in found


def test_a_worker_that_died_between_letter_and_claim_leaves_two_ends(verdict):
    killed = around(disturbed(start=3.5))
    assert verdict(FICKLE, runs=[FAILS, HANDLES], entries=[LETTER], around=killed)[0] == []


def test_a_worker_that_died_between_effect_and_claim_leaves_two_ends(verdict):
    runs = [replace(HANDLES, began=1, closed=2), replace(FAILS, began=10, closed=11, worker="w1")]
    killed = around(disturbed(start=2.5, worker="w2"))
    assert verdict(FICKLE, runs=runs, entries=[LETTER], around=killed)[0] == []
    assert (v.BOTH, "fickle-1") in verdict(FICKLE, runs=runs, entries=[LETTER])[0]


# -- runs ------------------------------------------------------------------------------------------


def test_a_breach_of_the_rules_of_runs_names_its_event(verdict):
    runs = [a_run(1, 2), a_run(5, 6, worker="w2")]
    assert verdict(OK, runs=runs)[0] == [(rules.REPEATED, "ok-1")]


def test_runs_are_taken_in_the_order_in_which_they_began(verdict):
    runs = [a_run(3, 4, attempt=2, hop=1), a_run(1, 2, FAILED)]
    assert verdict(OK, runs=runs)[0] == []


@pytest.mark.parametrize("delay", [0.2, 1.0, 5.0])
def test_a_delayed_event_must_not_begin_early(verdict, delay):
    delayed = planned("delayed", delay=delay)
    assert verdict(delayed, runs=[a_run(delay, 6, event="delayed-1")])[0] == []
    for early in (0.0, delay - 0.1):
        found, _ = verdict(delayed, runs=[a_run(early, 6, event="delayed-1")])
        assert found == [(rules.SOON, "delayed-1")]


def test_a_delayed_event_must_not_begin_late(verdict):
    delayed = planned("delayed", delay=1.0)
    assert verdict(delayed, runs=[a_run(3.0, 4, event="delayed-1")])[0] == []
    late = [a_run(500, 501, event="delayed-1")]
    assert verdict(delayed, runs=late)[0] == [(rules.LATE, "delayed-1")]
    troubled = around(
        *(disturbed(start=n, end=n + 10) for n in range(0, 500, 16)),
        outages=[Outage(start=n, end=n + 2.0) for n in range(0, 500, 8)],
    )
    found, _ = verdict(delayed, runs=late, around=troubled)
    assert found == [(rules.LATE, "delayed-1")], "faults all the time excuse no more than they last"


def test_a_delayed_event_may_wait_as_long_as_others_do_then(verdict):
    delayed = planned("delayed", delay=1.0)
    late = a_run(28, 29, event="delayed-1")
    others = [planned("ok", number) for number in range(3)]
    runs = [a_run(25, 26, event=one.id) for one in others]
    assert verdict(delayed, *others, runs=[late, *runs])[0] == []
    quick = [a_run(1, 2, event=one.id) for one in others]
    assert verdict(delayed, *others, runs=[late, *quick])[0] == [(rules.LATE, "delayed-1")]


# -- revocations -----------------------------------------------------------------------------------

REVOKED = planned("revoked")
TOLD = Revocation(start=0.0, end=1.0, up=frozenset({"w1", "w2"}), heard=frozenset({"w1"}))


def test_a_worker_that_confirmed_a_revocation_must_not_run_it(verdict):
    run = a_run(5, 6, event="revoked-1", worker="w1")
    killed = around(disturbed(start=0.5))  # it confirmed all the same
    found, _ = verdict(REVOKED, runs=[run], revocations={"revoked-1": TOLD}, around=killed)
    assert found == [(IGNORED, "revoked-1")]


def test_a_worker_that_was_up_and_undisturbed_has_heard_a_revocation(verdict):
    run = a_run(5, 6, event="revoked-1", worker="w2")
    given = {"runs": [run], "revocations": {"revoked-1": TOLD}}
    assert verdict(REVOKED, **given)[0] == [(IGNORED, "revoked-1")]
    for reason in (
        around(disturbed(What.FROZEN, 0.5, 9, worker="w2")),
        around(disturbed(What.CUT_OFF, 0.5, 0.6, worker="")),
        around(outages=[Outage(start=0.5, end=0.6)]),
    ):
        assert verdict(REVOKED, around=reason, **given)[0] == []
    for elsewhere in (
        around(disturbed(What.FROZEN, 0.5, 9, worker="w3")),
        around(disturbed(What.FROZEN, 2, 9, worker="w2")),
        around(outages=[Outage(start=0.5, end=0.6, in_part=True)]),
    ):
        assert verdict(REVOKED, around=elsewhere, **given)[0] == [(IGNORED, "revoked-1")]


def test_a_worker_that_started_later_may_run_what_was_revoked(verdict):
    run = a_run(5, 6, event="revoked-1", worker="w1b")
    assert verdict(REVOKED, runs=[run], revocations={"revoked-1": TOLD})[0] == []


def test_a_process_of_its_own_may_have_started_after_a_revocation_unless_it_ran_something_before(
    verdict,
):
    run = a_run(5, 6, event="revoked-1", worker="w1", pid=7)
    given = {"revocations": {"revoked-1": TOLD}, "around": Circumstances(apart=frozenset({"w1"}))}
    assert verdict(REVOKED, runs=[run], **given)[0] == []
    known = a_run(-2, -1, worker="w1", pid=7)
    assert verdict(REVOKED, OK, runs=[run, known], **given)[0] == [(IGNORED, "revoked-1")]


def test_an_event_that_nobody_revoked_must_not_end_as_revoked(verdict):
    assert verdict(OK, entries=[an_entry("ok-1", "revoked")])[0] == [(v.END, "ok-1")]


def test_a_frozen_worker_may_end_what_another_had_a_letter_of_without_a_run(verdict):
    run = a_run(2, 12, event="revoked-1", worker="w2")
    entry = an_entry("revoked-1", "revoked")
    given = {"runs": [run], "entries": [entry]}
    assert verdict(REVOKED, **given)[0] == [(v.BOTH, "revoked-1")]
    frozen = around(disturbed(What.FROZEN, 2.5, 11.5, worker="w2"))
    assert verdict(REVOKED, around=frozen, **given)[0] == []


def test_too_many_starts_of_poison_are_found(verdict):
    poison = planned("poison")
    runs = [a_run(n, n + 0.1, DYING, event="poison-1", handler=LETHAL) for n in range(4)]
    entry = an_entry("poison-1", "poison", handler=LETHAL)
    assert verdict(poison, runs=runs, entries=[entry])[0] == [(rules.STARTS, "poison-1")]
    assert verdict(poison, runs=runs[:3], entries=[entry])[0] == []


def test_a_start_more_may_be_uncounted_where_whole_processes_die_and_only_there(verdict):
    poison = planned("poison")
    runs = [a_run(n, n + 0.1, DYING, event="poison-1", handler=LETHAL, pid=n) for n in range(5)]
    entry = an_entry("poison-1", "poison", handler=LETHAL)
    for apart, most in (({"w1"}, 4), ({"w2"}, 3)):
        around = Circumstances(apart=frozenset(apart))
        given = {"entries": [entry], "around": around}
        assert verdict(poison, runs=runs[:most], **given)[0] == []
        found = verdict(poison, runs=runs[: most + 1], **given)[0]
        assert found == [(rules.STARTS, "poison-1")]


def test_a_held_failure_may_run_again_when_its_worker_dies_before_its_letter(verdict):
    runs = [
        a_run(1, 2, FAILED, event="permanent-1"),
        a_run(20, 21, FAILED, event="permanent-1", worker="w2"),
    ]
    away = [Outage(start=1, end=9, in_part=True)]
    held = around(disturbed(start=8.0), outages=away)
    assert verdict(PERMANENT, runs=runs, entries=[an_entry()], around=held)[0] == []


# -- raw messages ----------------------------------------------------------------------------------

CUT_SHORT = replace(planned("garbage"), kind="body cut short")
NULL = replace(planned("garbage", 2), kind="body null")
DAMAGED = replace(planned("damaged", 3), kind="damaged")


@pytest.mark.parametrize("garbage", [CUT_SHORT, NULL, DAMAGED], ids=["body", "header", "envelope"])
def test_garbage_is_known_by_its_bytes_or_its_id(verdict, garbage):
    assert verdict(garbage, entries=[entry_of(garbage)])[0] == []
    assert verdict(garbage)[0] == [(v.LOST, garbage.id)]


def test_garbage_that_lost_a_byte_is_found(verdict):
    changed = entry_of(CUT_SHORT, body=b"[[")
    assert verdict(CUT_SHORT, entries=[changed])[0] == [(v.BYTES, "garbage-1")]
    other = replace(entry_of(DAMAGED), body=b"nothing like it")
    assert {kind for kind, _ in verdict(DAMAGED, entries=[other])[0]} == {v.LOST, v.STRAY}


def test_garbage_with_another_reason_or_two_entries_is_found(verdict):
    refused = entry_of(CUT_SHORT, reason="refused")
    assert verdict(CUT_SHORT, entries=[refused])[0] == [(v.END, "garbage-1")]
    two = [entry_of(CUT_SHORT), entry_of(CUT_SHORT, id="g2")]
    assert verdict(CUT_SHORT, entries=two)[0] == [(v.ENTRIES, "garbage-1")]


# -- the load --------------------------------------------------------------------------------------


def test_a_run_whose_work_was_done_when_the_faults_were_over_is_void(verdict):
    events = [planned("ok", number) for number in range(10)]
    runs = [a_run(n, n + 0.5, event=f"ok-{n}") for n in range(10)]
    assert verdict(*events, runs=runs, faulted=(0.0, 7.0))[0] == []
    assert verdict(*events, runs=runs, faulted=(0.0, 6.9))[0] == [(v.VOID, "")]
    assert verdict(*events, runs=runs, faulted=(3.0, 20.0))[0] == [(v.VOID, "")]
    assert verdict(*events, runs=runs, faulted=None)[0] == [], "no faults were asked for"


# -- the whole -------------------------------------------------------------------------------------


def test_what_nobody_published_is_a_stray(verdict):
    found, _ = verdict(OK, runs=[a_run(), a_run(event="nobody")])
    assert found == [(v.STRAY, "nobody")]
    found, _ = verdict(OK, runs=[a_run()], entries=[an_entry("nobody")])
    assert found == [(v.STRAY, "nobody")]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"left": {"chaos": 2, "chaos-lethal": 0}}, v.LEFT),
        ({"claims": {"angzarr:idempotency:chaos.main:ok-1": "is pending"}}, v.CLAIM),
        ({"deaths": ["p1.1 ended with 1"]}, v.DIED),
        ({"quiet": False}, v.RESTLESS),
        ({"refused": {"delayed-9": "ValueError"}}, v.REFUSED),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_is_left_or_went_wrong_as_a_whole_is_found(verdict, more, kind):
    found, _ = verdict(OK, runs=[a_run()], **more)
    assert [one for one, _ in found] == [kind]


def test_every_fate_has_ends_that_a_verdict_can_tell():
    reasons = {
        "handled", "skipped", "refused", "exhausted", "poison", "undeliverable", "too_old",
        "revoked",
    }  # fmt: skip
    assert set().union(*(fate.ends for fate in FATES.values())) == reasons
