"""angzarr demo --example: chains end, what was refused is undone, and what is lost is missed."""

from __future__ import annotations

import re

import pytest

from system.test_demo import run as demo

#: Runs the command with one command of a saga taken away from the broker.
THIEF = """
import sys
from kombu.transport.memory import Channel
from angzarr.cli.main import main

honest, stolen = Channel._put, []

def put(self, queue, message, **options):
    if not stolen and message["headers"].get("task") == "command.table.SeatPlayer":
        stolen.append(message)
        return
    honest(self, queue, message, **options)

Channel._put = put
main(sys.argv[1:])
"""
#: What a run must have come to, or it tried too little.
ENDS = {
    "poker": [
        "reservation became a seat",
        "reservation released: the table is full",
        "seat left and paid out",
        "hand paid out",
        "hand voided: somebody has left the table",
        "compensated",
        "ReserveFunds, angzarr.errors.CommandRejectedError",
    ],
    "orders": [
        "order confirmed",
        "order cancelled: out of stock",
        "order cancelled: the customer is gone",
        "receipt in the mailbox",
        "receipt on paper",
        "compensated",
        "revoked",
        "CloseAccount, angzarr.errors.CommandAbortedError",
    ],
}
CHAIN = {
    "poker": [
        "FundsReserved",
        "SeatPlayer",
        "the table is full|he sits here|nobody sits down",
        "FundsReleased",
    ],
    "orders": ["FulfilmentStarted", "ReserveStock", "out of stock", "FulfilmentFailed"],
}


def counted(said, end):
    found = re.search(rf"^ +(\d+)  {re.escape(end)}$", said, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(ENDS))
def test_every_chain_ends_and_nothing_is_left_behind(name, tmp_path):
    done = demo("--example", name, "--count", "90", "--seed", "1", tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "Everything adds up."
    assert [end for end in ENDS[name] if not counted(done.stdout, end)] == []
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
    assert_told(done.stdout.partition("One of the chains:\n")[2].splitlines(), CHAIN[name])


def assert_told(lines, chain):
    steps = ["event", "command", "rejection", "compensation"]
    for line, step, what in zip(lines[:4], steps, chain, strict=True):
        assert re.match(rf"  {step} .*({what})", line), lines


def test_a_command_that_vanished_is_missed_and_the_exit_is_one(tmp_path):
    done = demo(
        "--example", "poker", "--count", "12", "--timeout", "20", tmp_path=tmp_path, script=THIEF
    )
    assert done.returncode == 1
    assert re.search(r"^DOES NOT ADD UP \([1-9]\d*\):$", done.stdout, re.MULTILINE)
    assert re.search(r"reservation \S+ has 0 ends: none", done.stdout)


def test_the_card_room_survives_a_killed_worker_on_real_servers(
    redis_url, amqp_url, postgresql_url, tmp_path
):
    done = demo(
        "--example", "poker", "--broker", redis_url, "--store", redis_url, "--dlq", amqp_url,
        "--books", postgresql_url, "--kill", "--count", "90", "--timeout", "80",
        "--dir", str(tmp_path), tmp_path=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a worker was killed" in done.stdout
    assert counted(done.stdout, "compensated")
    assert leftovers(redis_url) == []


def leftovers(redis_url):
    import redis

    with redis.Redis.from_url(redis_url) as client:
        return list(client.scan_iter("*angzarr-demo-*"))


def test_a_replay_bills_by_the_old_price_and_the_costs_add_up(tmp_path):
    done = demo("--example", "billing", "--count", "50", "--seed", "1", tmp_path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "Everything adds up."
    replayed = re.search(r"^(\d+) were dead letters meanwhile", done.stdout, re.MULTILINE)
    assert int(replayed[1]) > 0
    for told in ("by pricing 1 in runs that failed: GIVEN_UP", "by pricing 2 in runs that ended"):
        assert told in done.stdout
    assert done.stderr == ""
