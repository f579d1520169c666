"""Remains: what is left on the servers, read past angzarr; and the ledger, read as its users do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import redis

from angzarr.analysis.ledger.entry import EntryDetail
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.analysis.ledger.ledger import LONGEST_PAGE, Ledger
from chaos.evidence import Entry
from chaos.fates import QUEUES
from chaos.history import Pair
from chaos.servers import Servers

#: The suffixes of a queue's lists in kombu's Redis transport, one for each priority step.
STEPS = ("", "\x06\x163", "\x06\x166", "\x06\x169")
#: Queues of the Redis broker besides those of the handlers.
OUTCOMES = "angzarr-replay-outcomes"
#: Where the claim store keeps what is delayed; the braces are a part of the name.
SCHEDULE = "angzarr:{schedule}:due"

#: What one worker does for the fleet is claimed like an event.
DUTIES = b"angzarr:idempotency:angzarr.fleet_duty:"
#: Where facts wait for their database.
FACTS = "angzarr:facts"

#: Where what comes early waits.
LANES = "lanes"

T = TypeVar("T")


def left(servers: Servers) -> dict[str, int]:
    """Return place → messages: every durable queue of RabbitMQ, every list and hash of Redis.

    What a worker holds unacknowledged counts.
    """
    found = servers.rabbit.messages()
    found[LANES] = servers.lanes.waiting()
    found[SCHEDULE] = again(lambda: servers.client().zcard(SCHEDULE))
    found[FACTS] = again(lambda: servers.client().xlen(FACTS))
    if servers.queues is not None:
        found |= {f"sqs {name}": count for name, count in servers.queues.messages().items()}
    if servers.broker == "redis":
        found |= again(lambda: _in_redis(servers.client()))
    return found


def _in_redis(client: redis.Redis[Any]) -> dict[str, int]:
    found = {
        f"{queue}{step}": client.llen(f"{queue}{step}")
        for queue in (*QUEUES, OUTCOMES)
        for step in STEPS
    }
    for key in client.scan_iter("unacked*"):
        if client.type(key) == b"hash":
            found[key.decode()] = client.hlen(key)
    return found


def claims(servers: Servers) -> dict[str, str]:
    """Return the records that wait for something, though nothing is left to come.

    To be asked when nothing is left in any queue.
    """
    return again(lambda: _claims(servers.client()))


def _claims(client: redis.Redis[Any]) -> dict[str, str]:
    wrong: dict[str, str] = {}
    for key in client.scan_iter("angzarr:idempotency:*", count=1000):
        status, owner = (value and value.decode() for value in client.hmget(key, "status", "owner"))
        if key.startswith(DUTIES):
            continue  # a living worker has each, and for as long as it lives
        if status == "pending":
            lives = client.exists(f"angzarr:owner:{owner}")
            whose = "a living worker, which has nothing" if lives else "a dead worker"
            wrong[key.decode()] = f"is pending, held by {whose}: {owner}"
        elif status not in ("completed", "failed"):
            wrong[key.decode()] = f"is {status}, and nothing is to come"
    return wrong


def entries(ledger: Ledger) -> list[Entry]:
    """Return all that the ledger holds, with the messages of its letters."""
    found: list[Entry] = []
    after = ""
    while True:
        page = ledger.get_failed_events(status=None, limit=LONGEST_PAGE, after=after)
        found += [_entry(opened) for one in page.entries if (opened := ledger.open(one.id))]
        after = page.next
        if not after:
            return found


def _entry(opened: EntryDetail) -> Entry:
    entry, failure = opened.entry, opened.failure
    body, headers = b"", {}
    if isinstance(failure, Unreadable):
        body = failure.raw
    else:
        body = failure.message.body
        headers: Mapping[str, object] = dict(failure.message.headers)
    return Entry(
        id=entry.id, pair=Pair(entry.handler_name, entry.event_id), reason=entry.reason,
        status=str(entry.status), body=body, headers=headers,
    )  # fmt: skip


def again(ask: Callable[[], T], tries: int = 20) -> T:
    """Return *ask*'s answer; a server that was restarted has broken our connection."""
    for _ in range(tries - 1):
        try:
            return ask()
        except (redis.RedisError, OSError):
            time.sleep(0.2)
    return ask()
