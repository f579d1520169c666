"""The road of one delivery over memory adapters: each outcome, made true in the right order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from angzarr.dead_letters.letter import Reason
from angzarr.delivery.async_runner import Interrupt
from angzarr.delivery.delivery import (
    DeadLettered,
    Duplicate,
    Handled,
    Postponed,
    Refused,
    Retried,
    Skipped,
    Superseded,
)
from angzarr.delivery.handlers import Domains
from angzarr.delivery.schedule import SLEPT
from angzarr.errors import (
    DecodeError,
    DeliveryError,
    GivenBack,
    GiveUp,
    Postpone,
    RetryLater,
    Skip,
    StoreUnavailable,
)
from angzarr.events import headers as names
from angzarr.resilience.backoff import Policy
from angzarr.resilience.claim_memory import LEASE
from angzarr.resilience.idempotency import Claimed, InProgress, Position, Wait
from angzarr.resilience.taxonomy import Category, Verdict, VerdictRule

TWICE = Policy(
    name="twice", base=timedelta(seconds=1), max_delay=timedelta(seconds=9), max_attempts=2
)


def raising(error):
    def call(_data, _context):
        raise error

    return call


def test_handled_publishes_followers_then_the_fact_then_completes(world):
    world.handler(lambda data, _context: data * 2)
    outcome = world.take(data="ab")
    assert outcome == Handled(value="abab", result='"abab"')
    assert world.journal.entries == ["followers", "fact", "complete"]
    assert world.journal.followed == [("e1", "abab")]


def test_a_second_delivery_is_a_duplicate_with_the_cached_result(world):
    runs = []
    world.handler(lambda data, _context: runs.append(data) or 7)
    world.take()
    assert world.take() == Duplicate(value=7)
    assert runs == ["data"]


def test_two_handlers_of_one_event_do_not_share_a_claim(world):
    runs = []
    for name in ("one", "two"):
        world.handler(lambda _data, context: runs.append(context.delivery.handler), name=name)
    world.take(task="one")
    world.take(task="two")
    assert runs == ["one", "two"]


def test_a_transient_error_is_retried_by_a_copy_one_hop_and_one_attempt_on(world):
    world.handler(raising(ConnectionResetError("gone")), policy=TWICE)
    outcome = world.take(custom="kept", **{"x-delivery-count": 7})
    assert isinstance(outcome, Retried)
    assert world.journal.entries == ["tell_retry", "copy", "fact", "wait"]
    copy, at = world.journal.copies[0]
    assert at - world.clock.now() == timedelta(seconds=1)
    assert copy.body == world.message().body
    assert copy.headers[names.ATTEMPT] == 2
    assert copy.headers[names.HOP] == 1
    assert copy.headers["retries"] == 1
    assert copy.headers["custom"] == "kept"
    assert "x-delivery-count" not in copy.headers


def test_attempts_used_up_is_a_dead_letter_that_counts_them(world):
    world.handler(raising(ConnectionResetError("gone")), policy=TWICE)
    world.take()
    world.clock.sleep(timedelta(seconds=2))
    outcome = world.take(world.last_copy())
    assert isinstance(outcome, DeadLettered)
    letter = world.journal.letters[0]
    assert (letter.reason, letter.attempts, letter.category) == (Reason.EXHAUSTED, 2, "transient")
    assert letter.first_attempt_at < letter.last_attempt_at
    assert world.journal.facts[-1].subtype == "max_retries_exceeded"


def test_a_failed_event_is_refused_with_its_cached_error_and_no_second_letter(world):
    world.handler(raising(GiveUp("negative total")))
    world.take()
    outcome = world.take()
    assert isinstance(outcome, Refused)
    assert "negative total" in str(outcome.error)
    assert len(world.journal.letters) == 1


def test_give_up_is_never_retried_and_the_letter_is_written_before_the_claim_ends(world):
    world.handler(raising(GiveUp("negative total")))
    outcome = world.take()
    assert isinstance(outcome, DeadLettered)
    assert outcome.letter.reason is Reason.REFUSED
    assert "negative total" in outcome.letter.explanation
    assert world.journal.entries == ["letter", "fact", "fail"]


def test_a_bug_is_a_dead_letter_with_its_stack(world):
    world.handler(lambda data, _context: data.no_such_thing)
    letter = world.take().letter
    assert letter.category == "unknown"
    assert letter.error_type == "AttributeError"
    assert "no_such_thing" in letter.error_stack


def test_skip_is_recorded_and_runs_no_followers(world):
    world.handler(raising(Skip("not our customer")))
    assert world.take() == Skipped(reason="not our customer")
    assert world.journal.entries == ["fact", "complete"]
    assert world.journal.facts[0].data["reason"] == "not our customer"


def test_a_category_can_be_skipped_by_rule(world):
    rule = VerdictRule(category=Category.CLIENT, verdict=Verdict.SKIP)
    world.handler(raising(DecodeError("no such order")), verdicts=(rule,))
    assert isinstance(world.take(), Skipped)


def test_retry_later_uses_the_asked_delay_and_an_attempt(world):
    world.handler(raising(RetryLater(90)), policy=TWICE)
    outcome = world.take()
    assert outcome.delay == timedelta(seconds=90)
    assert world.journal.copies[-1][1] == world.clock.now() + timedelta(seconds=90)
    assert isinstance(world.take(world.last_copy()), DeadLettered)


def test_postpone_uses_no_attempt(world):
    world.handler(raising(Postpone(5)))
    world.take()
    assert world.last_copy().headers[names.ATTEMPT] == 1
    assert world.last_copy().headers[names.HOP] == 1


def test_a_policy_may_not_retry_this_category(world):
    only_conflict = Policy(
        name="c", base=timedelta(seconds=1), max_delay=timedelta(seconds=1), max_attempts=5,
        retry_on=frozenset({Category.CONFLICT}),
    )  # fmt: skip
    world.handler(raising(ConnectionResetError()), policy=only_conflict)
    assert world.take().letter.reason is Reason.REFUSED


def test_an_event_that_does_not_fit_is_a_dead_letter_before_any_claim(world):
    def bind(_delivery, _context):
        raise DecodeError("the event does not fit")

    world.handler(None, bind=bind)
    assert world.take().letter.reason is Reason.UNDELIVERABLE
    assert world.journal.entries == ["letter", "fact"]


def test_an_unknown_handler_is_a_dead_letter(world):
    letter = world.take(task="gone.away").letter
    assert letter.reason is Reason.UNDELIVERABLE
    assert letter.domain == "unknown"
    assert "gone.away" in letter.explanation


@pytest.mark.parametrize(("said", "found"), [("made-up", "unknown"), ("billing", "billing")])
def test_a_letter_goes_where_it_is_read_and_its_event_keeps_its_own_domain(world, said, found):
    world.domains = Domains(read=frozenset({"billing"}))
    letter = world.take(task="gone.away", **{names.DOMAIN: said}).letter
    assert (letter.domain, letter.event.domain) == (found, said)


def test_an_event_in_another_workers_hands_is_postponed_on_the_same_hop(world):
    world.handler(lambda _data, _context: None)
    held = world.delivery()
    world.store.claim([held.claim])
    outcome = world.take()
    assert outcome == Postponed(delay=timedelta(seconds=2), why="in progress", claimed=False)
    assert world.last_copy().headers[names.HOP] == 0
    assert world.last_copy().headers[names.ATTEMPT] == 1


def test_a_copy_that_can_never_be_put_is_a_letter_where_another_worker_has_the_event(
    world, monkeypatch
):
    """Not ours to end, but ours to acknowledge: without copy and letter it would be gone."""
    world.handler(lambda _data, _context: None)
    held = world.delivery()
    world.store.claim([held.claim])

    def refuse(*_given):
        raise DeliveryError("its headers are nested too deeply to be kept")

    monkeypatch.setattr(world.journal, "schedule_put", refuse)
    outcome = world.take()
    assert isinstance(outcome, DeadLettered)
    assert len(world.journal.letters) == 1
    assert world.store.owns(held.key, held.token)


def test_a_copy_that_comes_before_its_predecessor_ended_its_claim_waits_for_that(
    world, monkeypatch
):
    ran = []
    world.handler(lambda _data, context: ran.append(context.attempt))
    before = world.delivery()
    world.store.claim([before.claim])
    began, sleep = world.clock.now(), world.clock.sleep

    def sleep_while_it_ends(span):
        sleep(span)
        if world.clock.now() - began >= timedelta(milliseconds=20):
            ended = Wait(position=Position(0, 1), delay=timedelta(0))
            world.store.settle(before.key, before.token, ended)

    monkeypatch.setattr(world.clock, "sleep", sleep_while_it_ends)
    copy = world.message(**{names.HOP: 1, names.ATTEMPT: 2})
    assert isinstance(world.take(copy), Handled)
    assert ran == [2]
    assert world.clock.now() - began < SLEPT


def test_a_copy_whose_event_stays_in_anothers_hands_keeps_its_slot_for_100_ms_at_most(world):
    world.handler(lambda _data, _context: pytest.fail("must not run"))
    world.store.claim([world.delivery().claim])
    began = world.clock.now()
    outcome = world.take(world.message(**{names.HOP: 1}))
    assert outcome == Postponed(delay=timedelta(seconds=2), why="in progress", claimed=False)
    assert world.clock.now() - began <= SLEPT


def test_what_was_taken_over_while_its_process_stood_still_does_not_begin(world):
    """It was claimed with its fetch, and its worker, which was frozen then, counted as dead."""
    world.handler(lambda _data, _context: pytest.fail("must not run"))
    stale = world.boarded()
    world.clock.sleep(LEASE)
    world.leases.renew("w2", LEASE)
    (taken,) = world.store.claim([world.delivery(owner="w2").claim])
    assert isinstance(taken, Claimed)
    outcome = world.road().take(stale)
    assert outcome == Postponed(delay=timedelta(seconds=2), why="taken over", claimed=False)
    assert world.last_copy().headers[names.HOP] == 0
    assert world.store.owns(stale.key, world.last_token())


def test_what_nobody_took_over_meanwhile_begins_and_nobody_can_any_more(world):
    ran = []
    world.handler(lambda data, _context: ran.append(world.rival()))
    stale = world.boarded()
    world.clock.sleep(LEASE)
    assert isinstance(world.road().take(stale), Handled)
    assert ran == [[InProgress()]]


def test_what_is_claimed_when_no_lease_runs_is_nobodys_to_take_over(world):
    """Its store was away for longer than its lease, and no renewal came through yet."""
    ran = []
    world.handler(lambda data, _context: ran.append(world.rival()))
    world.tenure = world.tenure_of(LEASE)
    world.leases.end("w1")
    assert isinstance(world.take(), Handled)
    assert ran == [[InProgress()]]


def test_a_claim_that_is_safe_costs_no_question(world):
    world.handler(lambda _data, _context: None)
    ridden = world.boarded()
    world.clock.sleep(LEASE / 2)
    assert isinstance(world.road().take(ridden), Handled)
    assert world.store.asked == []


def test_a_dead_workers_event_is_taken_over_and_its_start_counted(world):
    runs = []
    world.handler(lambda _data, context: runs.append(context.delivery.token))
    world.leases.renew("w0", timedelta(seconds=8))
    dead = world.delivery(owner="w0")
    world.store.claim([dead.claim])
    world.clock.sleep(timedelta(seconds=9))
    assert isinstance(world.take(), Handled)
    assert runs == ["t2"]


def test_the_fourth_start_is_poison(world):
    world.handler(lambda _data, _context: pytest.fail("must not run"))
    world.died(3)
    letter = world.take().letter
    assert letter.reason is Reason.POISON
    assert "started 3 times" in letter.explanation


def side_by_side(world, deaths):
    """Take two events that died so often, the second while the first runs; return what became."""
    road, ran, beside = world.road(), [], []

    def call(data, _context):
        ran.append(data)
        if data == "one":
            beside.append(road.take(world.delivery(data="two", event_id="two")))

    world.handler(call)
    for event in ("one", "two"):
        world.died(deaths, data=event, event_id=event)
    assert isinstance(road.take(world.delivery(data="one", event_id="one")), Handled)
    return road, ran, beside[0]


def test_the_last_start_of_an_event_runs_beside_no_other_last_start(world):
    """Or the one that kills its process could not be told from those that only ran beside it."""
    road, ran, other = side_by_side(world, deaths=2)
    assert (other.delay, ran) == (timedelta(seconds=2), ["one"])
    world.clock.sleep(other.delay)
    copy = world.delivery(world.last_copy())
    assert isinstance(road.take(copy), Handled), "its start was not counted"
    assert ran == ["one", "two"]


def test_earlier_starts_run_side_by_side(world):
    _, ran, other = side_by_side(world, deaths=1)
    assert isinstance(other, Handled)
    assert ran == ["one", "two"]


def test_the_late_owner_publishes_nothing_and_says_so(world):
    def slow(_data, _context):
        world.leases.end("w0")
        world.store.claim([world.delivery(owner="w1").claim])
        raise ConnectionResetError

    world.leases.renew("w0", timedelta(days=1))
    world.handler(slow, policy=TWICE)
    assert world.take(owner="w0") is None
    assert world.journal.copies == []
    assert [fact.subtype for fact in world.journal.facts] == ["fenced"]


def test_the_message_whose_copy_exists_is_superseded(world):
    world.handler(raising(ConnectionResetError()), policy=TWICE)
    world.take()
    assert world.take() == Superseded()
    assert len(world.journal.copies) == 1


def test_one_id_with_another_body_is_a_conflict(world):
    world.handler(lambda _data, _context: None)
    world.take(data="one")
    letter = world.take(data="two").letter
    assert letter.reason is Reason.CONFLICT
    assert letter.category == "integrity"
    third = world.take(data="three").letter
    assert third.id != letter.id, "every body has a letter of its own"


def test_a_replay_passes_its_own_failure_and_is_answered(world):
    fates = [GiveUp("first"), None]

    def call(_data, _context):
        if error := fates.pop(0):
            raise error

    world.handler(call)
    world.take()
    replay = {names.REPLAYED: "true", names.REPLAY: 1, names.LETTER_ID: "letter"}
    assert isinstance(world.take(**replay), Handled)
    told = world.journal.replayed[0]
    assert (told.letter_id, told.replay, told.outcome) == ("letter", 1, "handled")
    assert isinstance(world.take(**replay), Duplicate)


def test_a_replay_that_fails_again_writes_a_letter_of_its_own(world):
    world.handler(raising(GiveUp("still")))
    first = world.take().letter
    second = world.take(**{names.REPLAY: 1, names.LETTER_ID: first.id}).letter
    assert first.id != second.id
    assert second.replay == 1
    assert world.journal.replayed[0].outcome == "dead_lettered"


def test_failed_publish_holds_the_message_and_settles_once_the_broker_is_back(world):
    world.handler(raising(ConnectionResetError()), policy=TWICE)
    world.journal.broker_away.times = 4
    assert isinstance(world.take(), Retried)
    assert len(world.journal.copies) == 1
    made = [step for step in world.journal.entries if step != "tell_retry"]
    assert made == ["copy", "fact", "wait"]


def test_a_refused_letter_is_put_again_until_it_is_confirmed(world):
    world.handler(raising(GiveUp("no")))
    world.journal.refusal = "queue is full"
    assert isinstance(world.take(), DeadLettered)
    assert len(world.journal.letters) == 1


def test_a_store_that_is_away_holds_the_message_and_runs_it_once(world, monkeypatch):
    runs, away = [], [StoreUnavailable("away")] * 3
    claim = world.store.claim

    def flaky(claims):
        if away:
            raise away.pop()
        return claim(claims)

    monkeypatch.setattr(world.store, "claim", flaky)
    world.handler(lambda data, _context: runs.append(data))
    assert isinstance(world.take(), Handled)
    assert runs == ["data"]


@pytest.mark.parametrize("boarded", [True, False])
@pytest.mark.parametrize(("where", "verb"), [("leases", "renew"), ("store", "owns")])
def test_a_store_that_is_away_when_a_lease_is_not_sure_holds_the_message(
    world, monkeypatch, boarded, where, verb
):
    ran, away, asked = [], [StoreUnavailable("away")] * 3, []
    world.handler(lambda data, _context: ran.append(data))
    delivery = world.boarded() if boarded else world.delivery()
    world.tenure = world.tenure_of(LEASE)
    world.clock.sleep(LEASE)
    ask = getattr(getattr(world, where), verb)

    def flaky(*about):
        asked.append(about)
        if away:
            raise away.pop()
        return ask(*about)

    monkeypatch.setattr(getattr(world, where), verb, flaky)
    assert isinstance(world.road().take(delivery), Handled)
    assert ran == ["data"]
    assert len(asked) == (4 if boarded or verb == "renew" else 0), "what is claimed now is sure"


def test_a_worker_that_stops_while_it_asks_for_its_claim_gives_the_message_back(world, monkeypatch):
    world.handler(lambda _data, _context: pytest.fail("must not run"))
    stale = world.boarded()
    world.clock.sleep(LEASE)
    monkeypatch.setattr(world.store, "owns", raising(StoreUnavailable("away")))
    world.stop = True
    with pytest.raises(GivenBack):
        world.road().take(stale)
    (again,) = world.store.claim([world.delivery(owner="w2").claim])
    assert again == Claimed(starts=1), "its claim has ended, and it counted no start"


def test_a_worker_that_stops_while_it_holds_gives_back_and_counts_no_start(world):
    world.handler(raising(GiveUp("no")))
    world.journal.letters_away.times = 10**9
    world.stop = True
    with pytest.raises(GivenBack):
        world.take()
    world.stop = False
    world.journal.letters_away.times = 0
    for _ in range(5):  # not counted as a start: never poison
        assert world.take() is not None
    assert world.journal.letters[0].reason is Reason.REFUSED


def test_a_worker_that_stops_begins_nothing_and_claims_nothing(world):
    runs = []
    world.handler(lambda data, _context: runs.append(data))
    world.closed = True
    with pytest.raises(GivenBack, match="had not begun"):
        world.take()
    assert runs == []
    assert world.store._records == {}


def test_a_cut_handler_gives_its_claim_back_however_often_it_is_cut(world):
    def cut(_data, _context):
        raise Interrupt

    world.handler(cut)
    for _ in range(10):  # no start is counted, no attempt used
        with pytest.raises(GivenBack, match="cut short"):
            world.take()
    assert world.journal.letters == []
    assert world.journal.copies == []


def _retried_once(world):
    """A handler that asks for a retry in 10 s, and when it ran."""
    ran = []

    def work(_data, _context):
        ran.append(world.clock.now())
        if len(ran) == 1:
            raise RetryLater(10)

    world.handler(work)
    world.take()
    return ran


@pytest.mark.parametrize("off", [-365 * 86400, -600, -2, 0, 2, 7200])
def test_what_the_schedule_says_is_due_runs_whatever_the_readers_clock_says(world, off):
    """The copy is due by the store's clock; the machine that gets it is off by so many seconds."""
    ran = _retried_once(world)
    assert world.journal.copies[-1][1] == world.clock.now() + timedelta(seconds=10)
    world.clock.time += timedelta(seconds=10 + off)
    assert isinstance(world.take(world.last_copy()), Handled)
    assert len(ran) == 2
    assert len(world.journal.copies) == 1


@pytest.mark.parametrize(("said", "slept"), [(0, 0), (1, 1), (50, 50), (100, 100), (10**9, 100)])
def test_what_rabbitmqs_whole_seconds_leave_is_slept_and_no_more(world, said, slept):
    ran = _retried_once(world)
    copy = world.last_copy()
    before = world.clock.now()
    world.take(replace(copy, headers={**copy.headers, names.REST: said}))
    assert ran[1] == before + timedelta(milliseconds=slept)


def test_a_coroutine_is_awaited_never_reported_as_success_unawaited(world):
    ran = []

    async def work(data, _context):
        ran.append(data)
        return "done"

    world.handler(work)
    assert world.take() == Handled(value="done", result='"done"')
    assert ran == ["data"]


def test_a_result_that_is_no_json_is_handled_but_not_kept(world):
    world.handler(lambda _data, _context: object())
    assert world.take().result is None
    assert world.take() == Duplicate(kept=False)
    assert len(world.journal.followed) == 1, "a duplicate without its value sends nothing on"


def test_an_open_breaker_postpones_without_using_an_attempt(world):
    world.breakers.isolate("crm", by="me")
    world.handler(lambda _data, _context: pytest.fail("must not run"), breaker="crm")
    outcome = world.take()
    assert isinstance(outcome, Postponed)
    assert "crm" in outcome.why
    assert world.last_copy().headers[names.ATTEMPT] == 1


def test_nothing_waits_behind_a_breaker_for_ever(world):
    world.breakers.isolate("crm", by="me")
    world.handler(lambda _data, _context: None, breaker="crm", max_age=timedelta(minutes=1))
    world.take()
    world.clock.sleep(timedelta(hours=1))
    assert world.take(world.last_copy()).letter.reason is Reason.TOO_OLD


def test_a_hook_that_raises_fails_no_delivery(world):
    from angzarr.delivery.invoke import Hooks

    class Broken:
        def attempt(self, _delivery):
            raise RuntimeError

        def settled(self, _delivery, _outcome):
            raise RuntimeError

    world.hooks = Hooks([Broken()])
    world.handler(lambda _data, _context: 1)
    assert isinstance(world.take(), Handled)


def test_an_ending_whose_reply_was_lost_is_not_mistaken_for_a_fence(world, monkeypatch):
    settle, lost = world.store.settle, [True, True]

    def lossy(key, token, ending, facts=()):
        done = settle(key, token, ending, facts)
        if lost:
            lost.pop()
            raise StoreUnavailable("the reply was lost")
        return done

    monkeypatch.setattr(world.store, "settle", lossy)
    world.handler(raising(GiveUp("no")))
    assert isinstance(world.take(), DeadLettered)
    assert "fenced" not in [fact.subtype for fact in world.journal.facts]
