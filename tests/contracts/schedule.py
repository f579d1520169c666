"""What every schedule must do. Each adapter's tests subclass this on the real server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from tests.contracts.schedule_model import run_random_histories

from angzarr.delivery.schedule import OpenSchedule, id_of, read_row
from angzarr.events import headers as names
from angzarr.events.event import Message

LONG = timedelta(minutes=10)
WEEK = timedelta(days=7)
#: A wait or lease in tests that let it pass on a real server.
SHORT = timedelta(milliseconds=300)
NOTHING = timedelta(0)


def message(name: str = "m1", *, hop: int = 0, **fields: object) -> Message:
    plain = Message(
        body=b'[[{"n": 1}], {}, {"chain": null}]', content_type="application/json",
        content_encoding="utf-8", queue="orders", exchange="shop", routing_key="orders.eu",
        priority=3, properties={"correlation_id": name, "reply_to": "me"},
        headers={"id": name, "task": "shop.ship", names.HOP: hop},
    )  # fmt: skip
    return replace(plain, **fields)


ODD = [
    message(body=b"\xff\x00 no text \xfe"),
    message(body="grün \x00 \u2028 \U0001f600".encode()),
    message(body=b"", content_type="", content_encoding="", priority=None, properties={}),
    message(queue="", exchange="", routing_key=""),
    message(headers={"id": "m1", "task": "t", "deep": [{"a": [None, True, 1.5, -1]}, ("x",)]}),
    message(headers={"id": "m1", "task": "t", "$dict": {"$bytes": "no tag"}, "bytes": b"\xff"}),
    message(headers={"id": "m1", "task": "t", "n": 2**70, "d": Decimal("1.10"), "\x00": "\udcff"}),
    message(headers={"id": "m1", "task": "t", "at": datetime(2026, 1, 1, tzinfo=dt.UTC)}),
    message(headers={}),
]


class ScheduleContract:
    """Subclasses give `schedule`, empty, and `let_pass`; `now` is the clock of who puts.

    `let_pass` waits, or moves a clock of the test's; `pretend` lets time pass for all that waits.
    """

    @pytest.fixture
    def schedule(self) -> OpenSchedule:
        raise NotImplementedError

    @pytest.fixture
    def let_pass(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    @pytest.fixture
    def pretend(self) -> Callable[[timedelta], None]:
        raise NotImplementedError

    @pytest.fixture
    def now(self) -> Callable[[], datetime]:
        return lambda: datetime.now(UTC)

    @pytest.fixture
    def put(self, schedule, now):
        def put(copy: Message, wait: timedelta = NOTHING) -> str:
            schedule.put(copy, now() + wait)
            return id_of(copy)

        return put

    @pytest.fixture
    def take(self, schedule):
        """Take as a mover; return the ids in the order they came."""

        def take(token: str = "a", limit: int = 100, lease: timedelta = LONG) -> list[str]:
            return [row.id for row in schedule.take(token, limit, lease).rows]

        return take

    # -- messages -----------------------------------------------------------------------------

    @pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
    def test_a_message_comes_back_as_it_was(self, schedule, put, odd):
        put(odd)
        (row,) = schedule.take("a", 10, LONG).rows
        assert read_row(row.text) == odd

    def test_a_large_message_comes_back_as_it_was(self, schedule, put):
        large = message(body=b'["' + b"x" * 3_000_000 + b'"]')
        put(large)
        (row,) = schedule.take("a", 10, LONG).rows
        assert read_row(row.text) == large

    # -- time ---------------------------------------------------------------------------------

    def test_nothing_is_lent_before_its_time_and_all_is_after_it(self, put, take, let_pass):
        put(message("later"), LONG)
        assert take() == []
        soon = put(message("soon"), SHORT)
        let_pass(SHORT)
        assert take() == [soon]

    def test_it_says_when_the_next_is_due(self, schedule, put):
        assert schedule.take("a", 10, LONG).next_in is None
        put(message("week"), timedelta(days=7))
        week = schedule.take("a", 10, LONG).next_in
        assert timedelta(days=7) - timedelta(seconds=20) < week <= timedelta(days=7)
        put(message("minute"), timedelta(minutes=1))
        assert NOTHING < schedule.take("a", 10, LONG).next_in <= timedelta(minutes=1)
        put(message("now"))
        put(message("also now"))
        assert schedule.take("a", 1, LONG).next_in <= NOTHING

    def test_what_waits_a_week_is_lent_at_its_time_and_not_before(
        self, schedule, put, take, pretend
    ):
        week, spare = put(message(), WEEK), timedelta(seconds=5)
        assert take() == []
        pretend(WEEK - LONG)
        assert take() == []
        left = schedule.take("a", 10, LONG).next_in
        assert LONG - timedelta(seconds=20) < left <= LONG
        pretend(left - spare)
        assert take() == []
        pretend(spare)
        assert take() == [week]

    def test_what_was_due_long_ago_is_due(self, put, take):
        put(message(), -timedelta(days=400))
        assert len(take()) == 1

    def test_the_longest_overdue_come_first_and_no_more_than_asked_for(self, put, take, let_pass):
        ids = [put(message(f"m{n}")) for n in range(5) if not let_pass(timedelta(milliseconds=3))]
        assert take("a", 2) == ids[:2]
        assert take("b", 9) == ids[2:]

    # -- one mover ----------------------------------------------------------------------------

    def test_what_is_done_is_gone(self, schedule, put, take, let_pass):
        row = put(message())
        assert take(lease=SHORT) == [row]
        for _ in range(2):
            schedule.done("a", [row])
        let_pass(SHORT)
        assert take("b") == []
        assert schedule.take("b", 1, LONG).next_in is None

    def test_a_take_sent_twice_lends_the_same_rows(self, put, take):
        ids = [put(message(f"m{n}")) for n in range(3)]
        assert set(take("a", 3)) == set(take("a", 3)) == set(ids)

    def test_a_take_sent_twice_lends_no_others(self, schedule, put, take):
        first, other = put(message("m1")), put(message("m2"))
        assert take("a", 1) == take("a", 1) == [first]
        schedule.done("a", [first])
        assert take("a", 1) == [other]

    def test_what_is_given_back_is_due_at_once_or_later(self, schedule, put, take, let_pass):
        row = put(message())
        take("a")
        schedule.give_back("a", [row], NOTHING)
        assert take("b") == [row]
        schedule.give_back("b", [row], SHORT)
        let_pass(SHORT)
        assert take("c") == [row]
        schedule.give_back("c", [row], LONG)
        assert take("d") == []

    # -- many movers --------------------------------------------------------------------------

    def test_what_one_has_another_gets_only_when_its_lease_ended(self, put, take, let_pass):
        row = put(message())
        assert take("a", lease=SHORT) == [row]
        let_pass(SHORT)
        assert take("b") == [row]
        assert take("c") == []

    def test_who_lost_its_lease_changes_nothing(self, schedule, put, take, let_pass):
        row = put(message())
        take("a", lease=SHORT)
        let_pass(SHORT)
        take("b")
        schedule.done("a", [row])
        schedule.give_back("a", [row], NOTHING)
        assert take("c") == []
        schedule.give_back("b", [row], NOTHING)
        assert take("c") == [row]

    def test_many_movers_at_once_lend_each_row_once(self, put, take):
        ids = {put(message(f"m{n}")) for n in range(60)}

        def move(number: int) -> list[str]:
            return [row for turn in range(4) for row in take(f"{number}.{turn}", 5)]

        with ThreadPoolExecutor(8) as pool:
            lent = [row for rows in pool.map(move, range(8)) for row in rows]
        lent += take("last")
        assert sorted(lent) == sorted(ids)

    # -- put again ----------------------------------------------------------------------------

    def test_a_copy_put_twice_waits_once_for_the_later_puts_time(self, put, take):
        assert put(message()) == put(message(), LONG)
        assert take() == []
        row = put(message())
        assert take() == [row]

    def test_a_row_put_again_while_a_mover_has_it_is_not_deleted_by_it(self, schedule, put, take):
        row = put(message())
        take("a")
        put(message())
        schedule.done("a", [row])
        assert take("b") == [row]

    def test_a_row_put_again_while_a_mover_has_it_keeps_its_new_time(self, schedule, put, take):
        row = put(message())
        take("a")
        put(message(), LONG)
        schedule.give_back("a", [row], NOTHING)
        assert take("b") == []

    def test_the_later_put_is_what_comes(self, schedule, put):
        put(message(properties={"reply_to": "first"}))
        put(message(properties={"reply_to": "second"}))
        (row,) = schedule.take("a", 10, LONG).rows
        assert read_row(row.text).properties == {"reply_to": "second"}

    def test_random_histories_lose_no_put(self, schedule, put, let_pass):
        run_random_histories(schedule, put, message, let_pass)

    def test_it_can_be_used_after_it_was_closed(self, schedule, put, take):
        put(message())
        schedule.close()
        assert len(take()) == 1
