from __future__ import annotations

import logging
import threading
from contextlib import ExitStack

import pytest
import redis
from tests.contracts.breakers import fresh
from tools.tcp_proxy import unused_port

from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.errors import StoreUnavailable
from polling import wait_until


class Fleet:
    """One line, what it heard, and what another process does to the store."""

    def __init__(self, line: FlowLine, store: redis.Redis) -> None:
        self.line, self.store = line, store
        self.heard: list[str] = []
        line.on_change("breaker", self.heard.append)

    def start(self) -> None:
        self.line.start()
        wait_until(lambda: self.heard, "it looked when it began to listen")
        self.heard.clear()

    def change(self, name: str, topic: str = "breaker", *, told: bool = True) -> None:
        version = self.store.incr(self.line.version_key)
        if told:
            self.say(f"{version} {topic} {name}")

    def say(self, text: str | bytes) -> None:
        self.store.publish(self.line.channel, text)

    def hears(self, name: str) -> None:
        wait_until(lambda: name in self.heard, f"{name!r} was heard")

    def bells(self) -> set[str]:
        """The connections that listen to the channel."""
        clients = self.store.client_list(_type="pubsub")
        return {client["id"] for client in clients if client["db"] == self.database}

    @property
    def database(self) -> str:
        return str(self.store.connection_pool.connection_kwargs.get("db", 0))


@pytest.fixture
def make_fleet():
    with ExitStack() as stack:

        def make(url, store_url=None):
            line = FlowLine(url, prefix=fresh())
            stack.callback(line.close)
            store = stack.enter_context(redis.Redis.from_url(store_url or url))
            return Fleet(line, store)

        yield make


@pytest.fixture
def fleet(make_fleet, redis_url):
    return make_fleet(redis_url)


# -- hearing ---------------------------------------------------------------------------------------


def test_a_change_is_heard_by_its_name(fleet):
    fleet.start()
    fleet.change("crm")
    fleet.change("größe with: all sorts", told=True)
    fleet.hears("größe with: all sorts")
    assert fleet.heard == ["crm", "größe with: all sorts"]


def test_a_change_of_another_topic_is_not_ours(fleet):
    others = []
    fleet.line.on_change("limit", others.append)
    fleet.start()
    fleet.change("crm", topic="limit")
    fleet.change("crm", topic="unheard-of")
    fleet.change("mail")
    fleet.hears("mail")
    assert fleet.heard == ["mail"]
    assert others == ["", "crm"]


def test_a_change_whose_push_was_lost_is_looked_for(fleet):
    fleet.start()
    fleet.change("crm", told=False)
    fleet.hears("")
    fleet.change("mail")  # so that several more looks have passed
    fleet.hears("mail")
    assert fleet.heard == ["", "mail"]


def test_a_change_before_a_lost_one_does_not_hide_it(fleet):
    fleet.start()
    fleet.change("lost", told=False)
    fleet.change("crm")
    fleet.hears("")


def test_a_store_that_was_emptied_is_looked_at_though_its_versions_repeat(fleet):
    fleet.change("crm")
    fleet.start()
    with fleet.store.pipeline() as at_once:
        at_once.delete(fleet.line.version_key)
        at_once.incr(fleet.line.version_key)
        at_once.publish(fleet.line.channel, "1 breaker mail")
        at_once.execute()
    fleet.hears("mail")
    fleet.hears("")


GARBAGE = [
    b"", b" ", b"\xff\xfe\x00", b"1", b"1 breaker", b"x breaker crm", b"-1 breaker crm",
    b"9" * 5000 + b" breaker crm", "² breaker crm".encode(), b"1  crm", b"1 \xff crm", b"\n\n\n",
    b'{"version": 1}', b"x" * 100_000,
]  # fmt: skip


def test_garbage_on_the_channel_does_not_break_the_bell(fleet):
    fleet.start()
    bells = fleet.bells()
    for said in GARBAGE:
        fleet.say(said)
    fleet.change("crm")
    fleet.hears("crm")
    assert set(fleet.heard) <= {"crm", ""}
    assert fleet.bells() >= bells, "the same connections"


def test_bytes_that_are_no_text_are_a_name_like_any_other(fleet):
    fleet.start()
    fleet.say(b"7 breaker \xff\xfe")
    fleet.hears("\ufffd\ufffd")


def test_a_message_that_is_told_many_times_at_once_is_heard_few_times(fleet):
    fleet.start()
    with fleet.store.pipeline() as at_once:
        for _ in range(500):
            at_once.publish(fleet.line.channel, "3 breaker crm")
        at_once.execute()
    fleet.change("mail")
    fleet.hears("mail")
    assert fleet.heard.count("crm") < 100


def test_who_cannot_take_in_a_change_is_told_to_look_again(fleet):
    heard = []

    def stumble(name: str) -> None:
        heard.append(name)
        if name:
            raise StoreUnavailable("just now")

    fleet.line.on_change("limit", stumble)
    fleet.start()
    wait_until(lambda: heard, "it looked when it began to listen")
    heard.clear()
    fleet.change("crm", topic="limit")
    wait_until(lambda: heard == ["crm", ""], "it looked again")
    assert not fleet.line.away


# -- a bell that is dead, or mute ------------------------------------------------------------------


def test_a_bell_that_was_cut_is_replaced(fleet):
    fleet.start()
    before = fleet.bells()
    for number in before:
        fleet.store.client_kill_filter(_id=number)
    wait_until(lambda: fleet.bells() - before, "it listens again")
    fleet.hears("")  # what was missed meanwhile
    fleet.change("crm")
    fleet.hears("crm")


def test_a_mute_bell_is_replaced_once_and_what_it_missed_is_looked_for(
    make_fleet, proxy, redis_url
):
    fleet = make_fleet(proxy.url, redis_url)
    fleet.start()
    before = fleet.bells()
    proxy.hush()
    for number in range(1, 4):
        fleet.change("crm")
        wait_until(lambda made=number: fleet.heard.count("") >= made, "it looked")
    wait_until(lambda: fleet.bells() - before, "it listens anew")
    after = fleet.bells()
    fleet.heard.clear()
    for name in ("mail", "erp"):
        wait_until(lambda one=name: heard_of(fleet, one), "the new bell rings")
    assert fleet.bells() == after, "and is not replaced in its turn"


def heard_of(fleet: Fleet, name: str) -> bool:
    if name not in fleet.heard:
        fleet.change(name)
    return wait_until(lambda: fleet.heard, "something was heard") and name in fleet.heard


def test_a_user_without_the_channel_looks_instead(make_redis, make_fleet, caplog):
    server = make_redis(users=["user jo on >secret ~* +@all"])
    fleet = make_fleet(server.url_for(user="jo", password="secret"), server.url)
    fleet.start()
    for _ in range(2):
        fleet.heard.clear()
        fleet.change("crm")
        fleet.hears("")
    said = [one.message for one in caplog.records if one.name == "angzarr.flow"]
    assert len(said) == 1
    assert said[0].startswith("flow_changes_not_pushed: ")


# -- duties ----------------------------------------------------------------------------------------


def test_duties_are_done_again_and_again_though_one_fails(fleet, caplog):
    done = []

    def fail() -> None:
        done.append("fail")
        raise RuntimeError("a bug")

    fleet.line.each_turn(fail)
    fleet.line.each_turn(lambda: done.append("well"))
    fleet.start()
    wait_until(lambda: done.count("well") >= 3, "duties were done")
    assert done.count("fail") >= 3
    assert [one.message for one in caplog.records].count(
        "flow_step_failed: calls are let through meanwhile"
    ) == 1


def test_close_ends_the_thread_does_the_duties_once_more_and_may_be_called_again(fleet):
    done = []
    fleet.start()
    thread = fleet.line._thread
    wait_until(fleet.bells, "it listens")
    fleet.line.each_turn(lambda: done.append(threading.current_thread()))
    fleet.line.close()
    assert done[-1] is threading.current_thread()
    assert not thread.is_alive()
    fleet.line.close()
    fleet.line.start()
    assert fleet.line._thread is thread


def test_a_line_that_was_never_used_opens_no_connection(make_fleet):
    line = FlowLine(f"redis://127.0.0.1:{unused_port()}")
    line.each_turn(lambda: None)
    line.close()
    assert not line.listening


# -- a store that is away --------------------------------------------------------------------------


def test_a_store_that_is_away_is_asked_once_and_then_left_alone(caplog):
    caplog.set_level(logging.WARNING)
    line = FlowLine(f"redis://127.0.0.1:{unused_port()}")
    asked = []

    def step() -> str:
        asked.append(1)
        return line.client.execute("PING")

    assert [line.ask(step, "otherwise") for _ in range(100)] == ["otherwise"] * 100
    assert len(asked) == 1
    assert line.away
    line.close()
    said = [one.message for one in caplog.records if one.message.startswith("flow_store_away: ")]
    assert len(said) == 1


def test_what_is_wrong_with_one_step_does_not_make_the_store_away(fleet):
    def bug() -> str:
        raise KeyError("a bug")

    assert fleet.line.ask(bug, "otherwise") == "otherwise"
    assert fleet.line.ask(lambda: "well", "otherwise") == "well"


def test_a_store_that_comes_back_is_found_without_a_caller(make_redis, make_fleet, caplog):
    caplog.set_level(logging.WARNING)
    server = make_redis()
    fleet = make_fleet(server.url)
    fleet.start()
    server.kill()
    wait_until(lambda: fleet.line.away, "the thread saw that it is away")
    server.start()
    wait_until(lambda: "flow_store_back: " in caplog.text, "the thread said that it is back")
    assert not fleet.line.away
    fleet.change("crm")
    wait_until(lambda: heard_of(fleet, "mail"), "the bell rings again")


def test_one_that_cannot_look_keeps_no_other_from_looking(fleet):
    def fail(_name):
        raise RuntimeError("broken")

    looked = []
    fleet.line.on_change("breaker", fail)
    fleet.line.on_change("switch", looked.append)
    fleet.line.start()
    wait_until(lambda: looked, "it looked when it began to listen")
    looked.clear()
    fleet.change("crm", told=False)
    wait_until(lambda: looked, "it looked again")
