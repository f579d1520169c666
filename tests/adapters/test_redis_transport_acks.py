"""Acknowledge, reject, requeue, close: who holds a message, and where it is when nobody does."""

from __future__ import annotations

import threading

import pytest
from tests.adapters.redis_sides import OURS, connect, consuming, each_side, held, publish

from angzarr.runtime.group_commit import GROUP_COMMIT
from redis_servers import wait_until


@each_side
def test_an_acknowledged_message_leaves_nothing_behind(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, range(50))
        with consuming(connection, unique_name, prefetch=7) as inbox:
            inbox.wait(50)
    assert list(raw.scan_iter(f"*{unique_name}*")) == []
    assert held(raw) == 0


@pytest.mark.parametrize("end", ["acknowledged", "closed"])
def test_what_is_told_of_a_message_is_written_before_it_is_let_go(
    redis_broker, raw, unique_name, end
):
    seen = []
    GROUP_COMMIT.open()
    try:
        with connect(redis_broker, OURS) as connection:
            publish(connection, unique_name, ["told", "other"])
            with consuming(connection, unique_name, ack=False) as inbox:
                inbox.wait(2)
                GROUP_COMMIT.add(lambda _items: seen.append(held(raw)), ["a fact"])
                inbox.messages[0].ack()
                if end == "acknowledged":
                    inbox.messages[1].ack()
        assert seen == [2]
        assert held(raw) == 0
    finally:
        GROUP_COMMIT.close()


def test_what_cuts_a_write_short_loses_no_acknowledgement(redis_broker, raw, unique_name):
    cuts, written = iter([SystemExit()]), []

    def to(items):
        for cut in cuts:
            raise cut
        written.extend(items)

    GROUP_COMMIT.open()
    try:
        with connect(redis_broker, OURS) as connection:
            publish(connection, unique_name, ["told"])
            with consuming(connection, unique_name, ack=False) as inbox:
                inbox.wait(1)
                fetcher = inbox.messages[0].channel.fetcher
                GROUP_COMMIT.add(to, ["a fact"])
                fetcher.let_go(inbox.messages[0].delivery_tag)
                with pytest.raises(SystemExit):
                    fetcher.flush()
                assert held(raw) == 1
                fetcher.flush()
                assert (written, held(raw)) == (["a fact"], 0)
    finally:
        GROUP_COMMIT.close()


def test_closing_everything_leaves_no_trace_of_a_session(redis_broker, raw, unique_name):
    with connect(redis_broker, OURS) as connection:
        publish(connection, unique_name, range(5))
        with consuming(connection, unique_name) as inbox:
            inbox.wait(5)
            assert raw.keys("*angzarr*")
    assert raw.keys("*") == []


@each_side
def test_rejected_a_message_is_gone(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, ["bad", "good"])
        with consuming(connection, unique_name, ack=False) as inbox:
            inbox.wait(2)
            inbox.messages[0].reject()
            assert held(raw) == 1
        assert raw.llen(unique_name) == 1


@each_side
@pytest.mark.parametrize("priority", [0, 6])
def test_requeued_a_message_comes_last_and_is_flagged(
    redis_broker, raw, unique_name, side, priority
):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, ["bad", "b", "c"], priority=priority)
        with consuming(connection, unique_name, ack=False, prefetch=1) as inbox:
            inbox.wait(1)
            inbox.messages[0].requeue()
            assert held(raw) + raw.llen(unique_name) + raw.llen(f"{unique_name}\x06\x166") == 3
            for number in range(1, 4):
                inbox.wait(number + 1)
                inbox.messages[number].ack()
            assert inbox.bodies == ["bad", "b", "c", "bad"]
            flags = [message.headers.get("redelivered", False) for message in inbox.messages]
            assert flags == [False, False, False, True]
            assert inbox.messages[3].delivery_info["redelivered"] is True
            assert inbox.messages[3].properties["priority"] == priority


@each_side
def test_a_requeued_message_keeps_all_else(redis_broker, unique_name, side):
    sent = {"headers": {"id": "h"}, "correlation_id": "c", "reply_to": "r"}
    body = {"text": "\u2603", "n": [1, None]}
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, [body], compression="zlib", **sent)
        with consuming(connection, unique_name, ack=False) as inbox:
            inbox.wait(1)
            inbox.messages[0].requeue()
            assert inbox.wait(2) == [body, body]
            before, after = inbox.messages
            assert after.headers == {**before.headers, "redelivered": True}
            assert after.properties["correlation_id"] == "c"
            assert after.properties["reply_to"] == "r"
            assert after.content_type == before.content_type


@each_side
def test_recover_gives_all_back(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, range(4))
        with consuming(connection, unique_name, ack=False, prefetch=4) as inbox:
            inbox.wait(4)
            inbox.channel.basic_recover(requeue=True)
            inbox.wait(8)
            assert sorted(inbox.bodies[4:]) == list(range(4))
            assert all(message.headers["redelivered"] for message in inbox.messages[4:])


@each_side
def test_closing_gives_back_what_is_not_acknowledged(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, range(10))
        with consuming(connection, unique_name, prefetch=5, ack=False) as inbox:
            inbox.wait(5)
            inbox.messages[2].ack()
        assert held(raw) == 0
        with consuming(connection, unique_name) as inbox:
            inbox.wait(9)
    assert sorted(inbox.bodies[:4]) == [0, 1, 3, 4]  # before those that nobody had yet
    assert inbox.bodies[4:] == [5, 6, 7, 8, 9]
    assert [message.headers.get("redelivered") for message in inbox.messages[:5]] == [True] * 4 + [
        None
    ]


def test_what_is_given_back_keeps_its_order(redis_broker, unique_name):
    with connect(redis_broker, OURS) as connection:
        publish(connection, unique_name, range(130))
        with consuming(connection, unique_name, prefetch=120, ack=False) as inbox:
            inbox.wait(120)
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(130) == list(range(130))


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("end", ["cancel", "close"])
def test_what_was_fetched_and_not_delivered_goes_back(redis_broker, raw, unique_name, no_ack, end):
    """One step fetches all that the limit allows; drain_events delivers one at a time."""
    with connect(redis_broker, OURS) as connection:
        publish(connection, unique_name, range(10))
        with consuming(connection, unique_name, prefetch=10, no_ack=no_ack) as inbox:
            inbox.wait(1)
            if end == "cancel":
                inbox.consumer.cancel()
                assert raw.llen(unique_name) == 10 - len(inbox.messages)
        assert raw.llen(unique_name) == 10 - len(inbox.messages)
        with consuming(connection, unique_name) as rest:
            assert inbox.bodies + rest.wait(10 - len(inbox.messages)) == list(range(10))


@each_side
@pytest.mark.parametrize("no_ack", [False, True])
def test_what_is_under_way_at_the_end_is_delivered_or_goes_back(
    private_redis, unique_name, side, no_ack
):
    raw = private_redis.client()
    with connect(private_redis.url, side) as connection:
        with consuming(connection, unique_name, no_ack=no_ack, ack=False) as inbox:
            inbox.turn()
            publish(connection, unique_name, ["x"])
            private_redis.pause()
            # kombu's own side may ask for more here, and wait for it without a bound.
            resuming = threading.Timer(1, private_redis.resume)
            resuming.start()
            try:
                inbox.turn(0.2)  # asks, and leaves before the answer is there
            finally:
                resuming.join()
            wait_until(lambda: not raw.llen(unique_name), "the message to be on its way")
        assert raw.llen(unique_name) + (len(inbox.messages) if no_ack else 0) == 1


@each_side
@pytest.mark.parametrize("prefetch", [0, 10])
def test_without_acknowledgements_nothing_is_ever_held(
    redis_broker, raw, unique_name, side, prefetch
):
    with connect(redis_broker, side) as connection:
        publish(connection, unique_name, range(20))
        with consuming(connection, unique_name, no_ack=True, prefetch=prefetch) as inbox:
            for number in range(1, 21):
                inbox.wait(number)
                assert held(raw) == 0
        assert inbox.bodies == list(range(20))
    assert raw.keys("*unacked*") == []


@each_side
def test_without_ack_emulation_nothing_is_written_down(redis_broker, raw, unique_name, side):
    with connect(redis_broker, side, ack_emulation=False) as connection:
        publish(connection, unique_name, range(5))
        with consuming(connection, unique_name, ack=False, prefetch=3) as inbox:
            inbox.wait(3)
            assert inbox.rest() == [0, 1, 2]  # the limit holds all the same
            assert raw.keys("*unacked*") == []
            inbox.messages[0].ack()
            inbox.wait(4)
            inbox.messages[1].requeue()
        # kombu puts the others back from its own memory when the channel is closed.
        with consuming(connection, unique_name) as inbox:
            assert sorted(inbox.wait(4)) == [1, 2, 3, 4]
