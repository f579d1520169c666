"""The systems that the examples talk to, played by a few rules instead of real servers.

They fail as real ones do and with the same exceptions: a connection is reset, a gateway answers
503, nobody listens for a while, a request is refused for good. What becomes of a request depends on
its key and on OUTSIDE_SEED alone, so that a run can be repeated; how often each was made is counted
in the file OUTSIDE_FILE, for all processes of this host.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sqlite3
import threading
import time
from email.message import Message
from urllib.error import HTTPError, URLError

#: What may become of a request, and its share; all others are answered at once.
FATES = {
    "hiccup": 0.09,  # fails once or twice, then works
    "slow": 0.05,
    "down": 0.03,  # fails until the dependency gets well, after all retries of a first delivery
    "gone": 0.008,  # fails for ever
    "refused": 0.012,  # understood, and refused for good
    "busy": 0.05,  # only from systems that say so
    "unwanted": 0.05,  # the same
}
#: How many requests a system that is down lets fail.
OUTAGE = 3


class Busy(Exception):
    """Not now: ask again soon."""

    def __init__(self, system: str) -> None:
        super().__init__(f"{system} is busy")


class Unwanted(Exception):
    """The one it is for does not want it."""

    def __init__(self, system: str) -> None:
        super().__init__(f"{system}: the recipient declined")


class System:
    """One system; `ask` is `request` for coroutines. *says* names the fates that only it has."""

    def __init__(self, name: str, *, says: str = "") -> None:
        self.name = name
        self.says = says

    def request(self, key: str) -> None:
        """Make one request; what raises says why it failed."""
        time.sleep(self._answer(key))

    async def ask(self, key: str) -> None:
        """Make one request without blocking a thread."""
        await asyncio.sleep(self._answer(key))

    def _answer(self, key: str) -> float:
        """Return after how many seconds the answer comes, or raise what went wrong."""
        dice = random.Random(f"{os.environ.get('OUTSIDE_SEED', '0')} {self.name} {key}")
        fate = _fate(dice.random())
        visit = _visits.count(f"{self.name} {key}")
        if fate == "gone" or visit <= {"hiccup": dice.choice((1, 2)), "down": OUTAGE}.get(fate, 0):
            raise self._trouble(dice)
        if fate == "refused":
            raise self._http_error(422)
        if fate == self.says == "busy" and visit == 1:
            raise Busy(self.name)
        if fate == self.says == "unwanted":
            raise Unwanted(self.name)
        return dice.uniform(0.2, 0.6) if fate == "slow" else dice.uniform(0.001, 0.01)

    def _trouble(self, dice: random.Random) -> Exception:
        return dice.choice(
            (
                ConnectionResetError(104, f"{self.name}: connection reset by peer"),
                TimeoutError(f"{self.name} did not answer in time"),
                URLError(ConnectionRefusedError(111, f"{self.name}: connection refused")),
                self._http_error(503),
            )
        )

    def _http_error(self, status: int) -> HTTPError:
        text = {422: "Unprocessable Content", 503: "Service Unavailable"}[status]
        return HTTPError(f"https://{self.name}.example/", status, text, Message(), None)


class Visits:
    """Counts requests by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: tuple[int, sqlite3.Connection] | None = None

    def count(self, key: str) -> int:
        """Count one more request and return how many there were."""
        digest = hashlib.sha256(key.encode()).hexdigest()
        with self._lock:
            row = self._connection().execute(
                "insert into visits values (?, 1)"
                " on conflict (request) do update set times = times + 1 returning times",
                (digest,),
            )
            return int(row.fetchone()[0])

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None or self._opened[0] != os.getpid():
            file = os.environ.get("OUTSIDE_FILE", ":memory:")
            opened = sqlite3.connect(
                file, timeout=30, isolation_level=None, check_same_thread=False
            )
            opened.execute("create table if not exists visits (request primary key, times int)")
            self._opened = (os.getpid(), opened)
        return self._opened[1]


def _fate(chance: float) -> str:
    for fate, share in FATES.items():
        chance -= share
        if chance < 0:
            return fate
    return "well"


_visits = Visits()
