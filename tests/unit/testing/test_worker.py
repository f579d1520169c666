from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from datetime import timedelta

import pytest
from celery import signals
from tests.unit.testing import shop
from tests.unit.testing.shop import START, Counted, Packed, Paid, Placed, fails

from angzarr import Angzarr, GiveUp, Postpone, Skip
from angzarr.events.event import task_id_for
from angzarr.testing import FakeClock, NotSettled
from polling import wait_until

HOUR = timedelta(hours=1)


def test_an_event_is_handled_and_its_value_told(angzarr_worker):
    (one,) = angzarr_worker.publish(Placed(order_id="o-1"), id="e-1")
    assert (one.handler, one.event_id, one.outcome) == ("shop.charge", "e-1", "handled")
    assert one.value == "charged o-1"
    assert shop.asked == ["o-1"]


def test_retries_of_hours_run_at_once_and_end_as_a_letter(angzarr_worker, dead_letters, fake_clock):
    shop.says.append(fails(ConnectionError("nobody there")))
    done = angzarr_worker.publish(Placed(order_id="o-1"), id="e-1")
    assert [one.outcome for one in done] == ["retried"] * 3 + ["dead_lettered"]
    assert angzarr_worker.waits("e-1") == [HOUR, 2 * HOUR, 4 * HOUR]
    assert fake_clock.now() == START + 7 * HOUR
    letter = dead_letters.only()
    assert (letter.reason, letter.attempts, letter.error_type) == (
        "exhausted", 4, "ConnectionError",
    )  # fmt: skip
    assert letter.full.sent_to_dlq_at == fake_clock.now()


def test_what_is_to_come_later_waits_until_the_clock_is_moved(angzarr_worker, fake_clock):
    shop.says[:] = [fails(ConnectionError("once")), lambda: None]
    angzarr_worker.app.publish(Placed(order_id="o-1"), id="e-1")
    angzarr_worker.run_due()
    (waiting,) = angzarr_worker.waiting
    assert (waiting.handler, waiting.event_id, waiting.attempt) == ("shop.charge", "e-1", 2)
    assert waiting.due_at == START + HOUR
    fake_clock.advance(minutes=59)
    assert angzarr_worker.run_due() == []
    fake_clock.advance(minutes=1)
    assert [one.outcome for one in angzarr_worker.run_due()] == ["handled"]
    assert angzarr_worker.waiting == []


def test_what_a_coroutine_awaits_to_be_published_belongs_to_its_flow(angzarr_worker):
    parents, published = [], []

    def note(headers, **_told):
        parents.append(headers["parent_id"])

    async def publish():
        signals.before_task_publish.connect(note)
        published.append(await shop.app.apublish(Packed(order_id="o-9"), id="e-9"))
        signals.before_task_publish.disconnect(note)

    shop.says.append(publish)
    done = angzarr_worker.publish(Paid(order_id="o-1"), id="e-1")
    assert ("e-9", "shop.ship") in [(one.event_id, one.handler) for one in done]
    assert [(one.causation_id, one.correlation_id) for one in published] == [("e-1", "e-1")]
    assert parents == [task_id_for("e-1", "shop.mail")]


def test_a_countdown_and_an_eta_go_by_the_clock(angzarr_worker, fake_clock):
    angzarr_worker.app.publish(Placed(order_id="o-1"), id="e-1", countdown=3600)
    assert angzarr_worker.run_due() == []
    fake_clock.advance(hours=2)
    angzarr_worker.app.publish(
        Placed(order_id="o-2"), id="e-2", eta=fake_clock.now() + timedelta(days=2)
    )
    assert [one.event_id for one in angzarr_worker.run_due()] == ["e-1"]
    assert [one.event_id for one in angzarr_worker.run_until_settled()] == ["e-2"]
    assert fake_clock.now() == START + timedelta(days=2, hours=2)


def test_coroutines_run_and_what_handlers_publish_is_handled_too(angzarr_worker):
    done = angzarr_worker.publish(Paid(order_id="o-1"), id="e-1")
    assert [(one.handler, one.outcome) for one in done] == [
        ("shop.mail", "handled"), ("shop.ship", "handled"),
    ]  # fmt: skip
    assert done[1].event.causation_id == "e-1"


def test_plain_tasks_run_and_chains_go_on(angzarr_worker):
    (shop.plain.s(1) | shop.plain.s()).apply_async()
    done = angzarr_worker.run_until_settled()
    assert [one.value for one in done] == [2, 3]


def test_the_test_may_ask_for_a_result(angzarr_worker):
    result = shop.plain.delay(1)
    angzarr_worker.run_until_settled()
    assert result.get(timeout=60) == 2


def test_code_that_waits_for_a_result_finds_it_with_a_running_worker(running_worker):
    assert shop.plain.delay(1).get(timeout=60) == 2


def test_skipped_postponed_and_duplicate_events_are_told_as_such(angzarr_worker):
    shop.says[:] = [fails(Skip("a guest"))]
    (one,) = angzarr_worker.publish(Placed(order_id="o-1"), id="e-1")
    assert (one.outcome, one.why) == ("skipped", "a guest")
    shop.says[:] = [fails(Postpone(timedelta(days=1), "not open")), lambda: None]
    done = angzarr_worker.publish(Placed(order_id="o-2"), id="e-2")
    assert [one.outcome for one in done] == ["postponed", "handled"]
    assert done[0].delay == timedelta(days=1)
    (again,) = angzarr_worker.publish(Placed(order_id="o-2"), id="e-2")
    assert (again.outcome, again.value) == ("duplicate", "charged o-2")


def test_facts_and_letters_read_well(angzarr_worker, dead_letters, facts):
    shop.says.append(fails(GiveUp("negative total")))
    (one,) = angzarr_worker.publish(Placed(order_id="o-1"), id="e-1")
    assert repr(one) == (
        "<shop.charge of 'e-1', attempt 1: dead_lettered: refused, GiveUp: negative total>"
    )
    assert repr(dead_letters).startswith("[<refused letter of shop.charge for Placed 'e-1': ")
    assert facts.where(event_id="e-1", subtype="refused")
    assert facts.where(event_id="other") == []


def test_letters_are_found_by_their_fields_or_the_failure_lists_them(angzarr_worker, dead_letters):
    assert dead_letters == []
    with pytest.raises(AssertionError, match=r"^0 dead letters, not one dead letter; .* none at"):
        dead_letters.only()
    with pytest.raises(TypeError, match="Letter has no field 'resaon'"):
        dead_letters.where(resaon="refused")  # else this would be empty, and a test content
    shop.says.append(fails(GiveUp("no")))
    for number in (1, 2):
        angzarr_worker.publish(Placed(order_id=f"o-{number}"), id=f"e-{number}")
    assert dead_letters.only(event_id="e-2").data == {"order_id": "o-2"}
    assert dead_letters.only(event_id=lambda found: found.endswith("1")).attempts == 1
    with pytest.raises(AssertionError, match=r"^2 dead letters with reason='refused', not one"):
        dead_letters.only(reason="refused")
    assert [one.event_id for one in dead_letters[:1]] == ["e-1"]


@pytest.mark.parametrize("number", [1, 2])
def test_tests_share_nothing(angzarr_worker, dead_letters, facts, ledger, number):
    """Both publish the event of one id, which both handle as their first."""
    assert (dead_letters, list(facts), list(ledger)) == ([], [], [])
    (one,) = angzarr_worker.publish(Placed(order_id="o-1"), id="e-1")
    assert (one.outcome, one.attempt) == ("handled", 1)


def test_the_users_settings_are_put_over_those_of_the_app(angzarr_app):
    assert angzarr_app.settings.store == "memory://"
    assert angzarr_app.settings.dlq.backend == "channel"


class TestOtherSettings:
    @pytest.fixture
    def angzarr_settings(self):
        return {"retry": {"policies": {"default": {"base": 8, "max_attempts": 2}}}}

    @pytest.fixture
    def angzarr_chance(self):
        return lambda: 0.5

    def test_they_hold_for_this_test(self, angzarr_worker):
        shop.says.append(fails(ConnectionError("x")))
        angzarr_worker.publish(Paid(order_id="o-1"), id="e-1")
        assert angzarr_worker.waits() == [timedelta(seconds=10)]  # half of the jitter's half


# -- what does not end -----------------------------------------------------------------------


def test_a_handler_that_hangs_is_named_with_its_line(angzarr_worker):
    angzarr_worker.publish(Placed(order_id="warm"), id="e-0")
    shop.says.append(lambda: time.sleep(60))
    angzarr_worker.app.publish(Placed(order_id="o-1"), id="e-1")
    with pytest.raises(NotSettled) as raised:
        angzarr_worker.run_until_settled(timeout=2)
    assert str(raised.value).startswith(
        "shop.charge of event 'e-1' (Placed) did not return within 2 s: it is at "
    )
    assert "test_worker.py:" in str(raised.value)


def test_a_coroutine_that_hangs_is_named_too(angzarr_worker):
    angzarr_worker.publish(Paid(order_id="warm"), id="e-0")
    shop.says.append(lambda: asyncio.sleep(60))
    angzarr_worker.app.publish(Paid(order_id="o-1"), id="e-1")
    with pytest.raises(NotSettled, match=r"^shop\.mail of event 'e-1' \(Paid\) did not ") as raised:
        angzarr_worker.run_until_settled(timeout=2)
    assert re.search(r"it is at \S+shop\.py:\d+ in mail$", str(raised.value))


def test_a_coroutine_that_blocks_its_loop_is_named_with_what_it_called(angzarr_worker):
    async def blocks():
        time.sleep(60)  # noqa: ASYNC251 - the mistake it is about

    angzarr_worker.publish(Paid(order_id="warm"), id="e-0")
    shop.says.append(blocks)
    with pytest.raises(NotSettled, match=r"test_worker\.py:\d+ in blocks$"):
        angzarr_worker.publish(Paid(order_id="o-1"), timeout=2)


def test_what_waits_beyond_the_span_is_named_with_its_reason(angzarr_worker):
    shop.says.append(fails(ConnectionError("nobody there")))
    angzarr_worker.app.publish(Placed(order_id="o-1"), id="e-1")
    with pytest.raises(NotSettled) as raised:
        angzarr_worker.run_until_settled(within=2 * HOUR)
    assert str(raised.value) == (
        "not settled within 2:00:00: shop.charge of event 'e-1' waits until"
        " 2026-01-01T15:00:00+00:00 for attempt 3, after retried (ConnectionError: nobody there)"
    )


def test_what_goes_round_for_ever_is_told(angzarr_worker):
    shop.says.append(fails(Postpone(timedelta(seconds=1), "again")))
    angzarr_worker.app.publish(Placed(order_id="o-1"), id="e-1")
    with pytest.raises(NotSettled, match=r"1001 deliveries and no end: is there a circle\?"):
        angzarr_worker.run_until_settled(timeout=60)


def test_a_test_that_leaves_retries_waiting_leaves_them_to_nobody(angzarr_worker):
    shop.says.append(fails(ConnectionError("x")))
    angzarr_worker.app.publish(Placed(order_id="o-1"), id="left")
    angzarr_worker.run_due()
    assert len(angzarr_worker.waiting) == 1


def test_what_was_left_waiting_is_not_there_in_the_next_test(angzarr_worker, fake_clock):
    fake_clock.advance(days=30)
    assert angzarr_worker.run_until_settled() == []


def test_what_a_handler_raises_to_end_the_test_ends_it(angzarr_worker):
    shop.says.append(lambda: pytest.fail("seen by pytest"))
    with pytest.raises(pytest.fail.Exception, match="seen by pytest"):
        angzarr_worker.publish(Placed(order_id="o-1"))


def test_the_timer_of_whoever_else_uses_it_runs_on(angzarr_worker):
    rang = []
    before = signal.signal(signal.SIGALRM, lambda *_: rang.append(True))
    left, _ = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        angzarr_worker.publish(Placed(order_id="o-1"))
        assert 700 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
        shop.says.append(lambda: time.sleep(60))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(NotSettled):
            angzarr_worker.publish(Placed(order_id="o-2"))
        assert rang == [True]
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0, "it rang, and rings no second time"
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)


class Left:
    """What takes a while to be finalized."""

    def __del__(self) -> None:
        time.sleep(0.3)


def test_a_timeout_that_meets_a_finalizer_is_told_after_it(angzarr_worker):
    shop.says.append(lambda: (Left() and None, time.sleep(60)))
    with pytest.raises(NotSettled, match=r"did not return within 0\.1 s"):
        angzarr_worker.publish(Placed(order_id="o-1"), timeout=0.1)


# -- threads and loops -----------------------------------------------------------------------


def test_a_running_worker_handles_what_is_published(running_worker):
    shop.says[:] = [fails(ConnectionError("once")), lambda: None]
    running_worker.app.publish(Placed(order_id="o-1"), id="e-1")
    wait_until(lambda: [one.outcome for one in running_worker.settled] == ["retried", "handled"])


def test_what_breaks_a_running_worker_is_raised_by_the_test(angzarr_worker):
    shop.says.append(lambda: pytest.fail("seen by pytest"))

    def test() -> None:
        with angzarr_worker.running():
            angzarr_worker.app.publish(Placed(order_id="o-1"))
            wait_until(lambda: shop.asked)

    with pytest.raises(pytest.fail.Exception, match="seen by pytest"):
        test()


def test_a_running_worker_that_hangs_is_told_and_does_not_hang_the_test(
    angzarr_worker, monkeypatch
):
    monkeypatch.setattr("angzarr.testing.worker.TIMEOUT", 0.3)
    end = threading.Event()
    shop.says.append(lambda: end.wait(60))

    def test() -> None:
        with angzarr_worker.running():
            angzarr_worker.app.publish(Placed(order_id="o-1"), id="e-1")
            wait_until(lambda: shop.asked)

    with pytest.raises(NotSettled, match=r"^shop\.charge of event 'e-1' \(Placed\) did not return"):
        test()
    with pytest.raises(NotSettled, match=r"did not return within 0\.1 s"):
        angzarr_worker.run_due(timeout=0.1)
    end.set()
    wait_until(lambda: len(angzarr_worker.settled) == 1)


def test_a_test_that_is_a_coroutine_awaits_it(angzarr_worker):
    async def test() -> list[object]:
        angzarr_worker.app.publish(Paid(order_id="o-1"), id="e-1")
        with pytest.raises(RuntimeError, match="await arun_until_settled"):
            angzarr_worker.run_until_settled()
        return await angzarr_worker.arun_until_settled()

    assert len(asyncio.run(test())) == 2


def test_handlers_run_on_the_thread_of_the_test(angzarr_worker):
    seen = []
    shop.says.append(lambda: seen.append(threading.current_thread()))
    angzarr_worker.publish(Placed(order_id="o-1"))
    assert seen == [threading.current_thread()]


# -- the clock -------------------------------------------------------------------------------


def test_the_clock_never_goes_back():
    clock = FakeClock(START)
    with pytest.raises(ValueError, match="time does not go back"):
        clock.advance(seconds=-1)
    assert clock.move_to(START - HOUR) == START
    clock.sleep(-HOUR)
    assert clock.advance(HOUR, minutes=30) == START + 1.5 * HOUR
    assert repr(clock) == "<FakeClock 2026-01-01T13:30:00+00:00>"


def test_two_apps_of_one_session_have_brokers_of_their_own(angzarr_worker, tmp_path):
    from angzarr.testing.staging import staged
    from angzarr.testing.worker import open_in_process

    other = Angzarr("other", broker="memory://", set_as_current=False)
    taken = []
    other.handler(Placed, domain="order", name="other.take")(_noting(taken))
    angzarr_worker.app.publish(Placed(order_id="o-1"))
    clock = FakeClock()
    with (
        staged(other, tmp_path, clock, chance=lambda: 0.0),
        open_in_process(other, clock) as worker,
    ):
        assert worker.run_until_settled() == []
        (one,) = worker.publish(Placed(order_id="o-2"))
        assert (one.handler, taken) == ("other.take", ["o-2"])
    (mine,) = angzarr_worker.run_until_settled()
    assert mine.handler == "shop.charge"
    assert shop.asked == ["o-1"]


# -- what an app may have that a worker in a test has not ------------------------------------


@pytest.fixture
def own_app():
    """An app as Django configures it, with limits that a solo pool has not."""
    app = Angzarr("limits", set_as_current=False)
    conf = {"CELERY_BROKER_URL": "redis://nowhere.invalid", "CELERY_TASK_TIME_LIMIT": 30}
    app.config_from_object(conf, namespace="CELERY")
    return app


class TestLimits:
    @pytest.fixture
    def app_under_test(self, own_app):
        self.seen = []
        options = {
            "time_limit": 5,
            "soft_time_limit": 4,
            "rate_limit": "1/h",
            "name": "limits.take",
        }
        own_app.handler(Placed, domain="order", **options)(_noting(self.seen))
        return own_app

    @pytest.fixture
    def fake_clock(self):
        return FakeClock()

    def test_time_and_rate_limits_keep_no_test_from_running(self, angzarr_worker):
        for number in range(3):
            angzarr_worker.app.publish(Placed(order_id=f"o-{number}"))
        angzarr_worker.run_until_settled()
        assert self.seen == ["o-0", "o-1", "o-2"]

    def test_what_has_expired_by_the_clock_is_a_letter(self, angzarr_worker, dead_letters):
        publish = angzarr_worker.app.publish
        publish(Placed(order_id="o-1"), id="e-1", expires=60)
        angzarr_worker.run_until_settled()
        assert self.seen == ["o-1"]
        publish(Placed(order_id="o-2"), id="e-2", expires=60, countdown=3600)
        angzarr_worker.run_until_settled()
        assert dead_letters.only().event_id == "e-2"
        assert self.seen == ["o-1"]


class TestUnsafe:
    @pytest.fixture
    def app_under_test(self, own_app):
        own_app.task(name="limits.unsafe", acks_late=False)(_noting([]))
        return own_app

    def test_an_app_that_loses_messages_is_refused_as_by_a_worker(self, request):
        with pytest.raises(pytest.fail.Exception, match=r"limits\.unsafe has acks_late=False"):
            request.getfixturevalue("angzarr_worker")


# -- ordered handlers ------------------------------------------------------------------------


class TestOrdered:
    @pytest.fixture
    def app_under_test(self):
        app = Angzarr("lanes", broker="memory://", set_as_current=False)
        self.seen = []
        take = _noting(self.seen)
        app.handler(Placed, domain="order", name="lanes.take", ordered_by="root")(take)
        return app

    def test_what_comes_early_waits_for_its_turn(self, angzarr_worker):
        send = angzarr_worker.app.publish
        send(Placed(order_id="second"), root="r", sequence=1)
        assert [one.outcome for one in angzarr_worker.run_until_settled()] == ["parked"]
        send(Placed(order_id="first"), root="r", sequence=0)
        angzarr_worker.run_until_settled()
        assert self.seen == ["first", "second"]


def _noting(seen):
    def take(placed: Placed) -> None:
        seen.append(placed.order_id)

    return take


def test_a_batch_handler_gets_all_that_is_there_and_does_not_wait(angzarr_worker):
    for n in range(5):
        angzarr_worker.app.publish(Counted(n=n), id=f"c-{n}")
    done = angzarr_worker.run_due()
    assert [one.outcome for one in done] == ["handled"] * 5
    assert shop.counted == [[0, 1, 2], [3, 4]]


def test_each_event_of_a_batch_has_an_outcome_of_its_own(angzarr_worker, dead_letters):
    shop.uncountable[1] = GiveUp("not that one")
    for n in range(3):
        angzarr_worker.app.publish(Counted(n=n), id=f"c-{n}")
    done = {one.event_id: one.outcome for one in angzarr_worker.run_due()}
    assert done == {"c-0": "handled", "c-1": "dead_lettered", "c-2": "handled"}
    assert dead_letters.only().event_id == "c-1"
