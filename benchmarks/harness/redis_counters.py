"""What a Redis counts of its clients' doings, and who sent what, from MONITOR's lines."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import redis

#: `1339518083.107412 [0 127.0.0.1:60866] "keys" "*"`; a script's own calls say `[0 lua]`.
_LINE = re.compile(r'[\d.]+ \[\d+ (?P<who>\S+)\] "(?P<command>[^"]+)"')

#: What the last line has, so that the reader knows that it has seen all.
_END = "angzarr-bench-end"


class Counts(NamedTuple):
    """Since the server started."""

    #: Requests read from sockets: a pipeline that was sent at once is one, as is a script.
    round_trips: int
    #: Commands that ran, also those inside of scripts and transactions.
    commands: int

    @classmethod
    def of(cls, stats: Mapping[str, Any]) -> Counts:
        """Read them from ``INFO stats``, without the very request that asked for it."""
        trips, commands = stats["total_reads_processed"], stats["total_commands_processed"]
        return cls(int(trips), int(commands))

    def since(self, before: Counts) -> Counts:
        """Return what was added, less the one INFO that took *before*."""
        return Counts(
            self.round_trips - before.round_trips - 1, self.commands - before.commands - 1
        )


def counts(client: redis.Redis) -> Counts:
    """Ask the server."""
    return Counts.of(client.info("stats"))


def sender(line: str) -> tuple[str, str] | None:
    """Return (``"client"`` or ``"script"``, command) of one line of MONITOR; None for others."""
    found = _LINE.match(line)
    if found is None:
        return None
    who = "script" if found["who"] == "lua" else "client"
    return who, found["command"].upper()


def by_name(
    found: Counter[tuple[str, str]], who: str, units: float, least: float = 0.02
) -> dict[str, float]:
    """Return *who*'s commands per unit in all and by name, without what hardly occurs."""
    calls = [(name, count / units) for (sent, name), count in found.most_common() if sent == who]
    named = {name: round(each, 2) for name, each in calls if each >= least}
    return {"all": round(sum(each for _, each in calls), 2), **named}


@contextmanager
def monitored(url: str) -> Iterator[Counter[tuple[str, str]]]:
    """Count every command by sender and name while the block runs; slows the server down."""
    found: Counter[tuple[str, str]] = Counter()
    with (
        redis.Redis.from_url(url) as client,
        redis.Redis.from_url(url, single_connection_client=True) as other,
        client.monitor() as monitor,
    ):
        thread = threading.Thread(target=_listen, args=(monitor.connection, found), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            other.echo(_END)
            thread.join(10)


def _listen(connection: Any, found: Counter[tuple[str, str]]) -> None:
    while _END not in (line := connection.read_response().decode(errors="replace")):
        if said := sender(line):
            found[said] += 1
