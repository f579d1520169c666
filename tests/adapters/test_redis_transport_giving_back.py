"""Giving back in one go: what a worker that stops does with what it has not begun."""

from __future__ import annotations

from tests.adapters.redis_sides import OURS, connect, consuming, held, publish


def test_many_go_back_in_their_order_and_before_all_others(redis_broker, raw, unique_name):
    with connect(redis_broker, OURS) as connection:
        publish(connection, unique_name, range(8))
        with consuming(connection, unique_name, ack=False, prefetch=6) as inbox:
            inbox.wait(6)
            kept, *others = inbox.messages
            qos = kept.channel.qos
            qos.give_back([message.delivery_tag for message in others])
            assert held(raw) == 1
            assert raw.llen(unique_name) == 7
            kept.ack()
        with consuming(connection, unique_name) as inbox:
            assert inbox.wait(7) == [1, 2, 3, 4, 5, 6, 7]
            flags = [message.headers.get("redelivered", False) for message in inbox.messages]
    assert flags == [True] * 5 + [False] * 2
    assert held(raw) == 0


def test_what_is_put_back_undelivered_is_shown_before_others_can_fetch_it(
    redis_broker, raw, unique_name
):
    shown = []

    def on_put_back(messages):
        shown.append(([message.payload for message in messages], raw.llen(unique_name)))

    with connect(redis_broker, OURS) as connection:
        connection.transport_options |= {"on_fetched": len, "on_put_back": on_put_back}
        publish(connection, unique_name, range(5))
        with consuming(connection, unique_name, ack=False, prefetch=4) as inbox:
            inbox.wait(1)
            inbox.consumer.cancel()
            assert shown == [([1, 2, 3], 1)], "the fifth was never fetched"
            assert raw.llen(unique_name) == 4


def test_what_breaks_in_showing_keeps_nothing_back(redis_broker, raw, unique_name):
    def on_put_back(_messages):
        msg = "a bug"
        raise RuntimeError(msg)

    with connect(redis_broker, OURS) as connection:
        connection.transport_options |= {"on_fetched": len, "on_put_back": on_put_back}
        publish(connection, unique_name, range(5))
        with consuming(connection, unique_name, ack=False, prefetch=4) as inbox:
            inbox.wait(1)
            inbox.consumer.cancel()
            assert raw.llen(unique_name) == 4
