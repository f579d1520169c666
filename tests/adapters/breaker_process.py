"""A process of a fleet for tests: what it is told on stdin it does with its breakers.

Each line is a JSON list, a verb of `VERBS` and what it takes; the answer is one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Self

from angzarr.adapters.redis.breaker import RedisBreakers
from angzarr.adapters.redis.flow_line import FlowLine
from angzarr.resilience.breaker import BreakerSettings, Permit

AT_ONCE = timedelta(0)


class Process:
    """The test's end: `process.ask(verb, …)`, or `tell` now and `answer` later."""

    def __init__(self, url: str, prefix: str, settings: dict[str, BreakerSettings]) -> None:
        said = {name: _seconds(one) for name, one in settings.items()}
        command = [sys.executable, __file__, url, prefix, json.dumps(said)]
        self.running = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.running as running:  # closes its stdin, at which it ends
            running.stdin.close()

    def tell(self, *what: Any) -> None:
        self.running.stdin.write(json.dumps(what) + "\n")
        self.running.stdin.flush()

    def answer(self) -> Any:
        return json.loads(self.running.stdout.readline())

    def ask(self, *what: Any) -> Any:
        self.tell(*what)
        return self.answer()


class Verbs:
    def __init__(self, breakers: RedisBreakers) -> None:
        self.breakers = breakers
        self.permits: list[Permit] = []

    def rush(self, name: str, threads: int, at: float) -> int:
        """Ask in many threads at the moment *at*; return how many were let through."""
        gate = threading.Barrier(threads)

        def ask(_: int) -> Permit | None:
            gate.wait(timeout=60)
            time.sleep(max(0.0, at - time.time()))
            answer = self.breakers.admit(name, uuid.uuid4().hex)
            return answer if isinstance(answer, Permit) else None

        with ThreadPoolExecutor(threads) as pool:
            self.permits = [permit for permit in pool.map(ask, range(threads)) if permit]
        return len(self.permits)

    def admit(self, name: str) -> bool:
        return self.rush(name, 1, 0.0) == 1

    def record(self, ended: str) -> None:
        """End all calls that the last question let through, well (``+``) or ill (``-``)."""
        for permit in self.permits:
            self.breakers.record(permit, ok=ended == "+", took=AT_ONCE)

    def call(self, name: str, ended: str) -> bool:
        """Make a call if it is let through, and say whether it was."""
        self.admit(name)
        self.record(ended)
        return bool(self.permits)

    def phase(self, name: str) -> str:
        """Return what the process believes, asking nobody."""
        return self.breakers.phases().get(name, "")


def _seconds(settings: BreakerSettings) -> dict[str, Any]:
    return {
        key: {"seconds": value.total_seconds()} if isinstance(value, timedelta) else value
        for key, value in asdict(settings).items()
    }


def _settings(said: dict[str, Any]) -> BreakerSettings:
    spans = {key: timedelta(**value) for key, value in said.items() if isinstance(value, dict)}
    return BreakerSettings(**(said | spans))


def main(url: str, prefix: str, said: str) -> None:
    settings = {name: _settings(one) for name, one in json.loads(said).items()}
    line = FlowLine(url, prefix=prefix)
    verbs = Verbs(RedisBreakers(line, settings))
    for asked in sys.stdin:
        verb, *what = json.loads(asked)
        does: Callable[..., Any] = getattr(verbs, verb)
        sys.stdout.write(json.dumps(does(*what)) + "\n")
        sys.stdout.flush()
    line.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
