"""Mutations: angzarr broken on purpose, in the process that imports the app under test.

Each undoes one promise; a run with it must fail (docs/how-to/run-chaos.md). Nothing here is
known to the product: what `CHAOS_MUTATION` names is patched from outside.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final


def apply(name: str, folder: Path) -> None:
    """Break what *name* says; empty: nothing. Raises KeyError for a name that is none."""
    if name:
        MUTATIONS[name](folder)


def _early_ack(_folder: Path) -> None:
    """Acknowledge when the run begins, not when its outcome is true."""
    from angzarr.adapters.celery.worker.request import AngzarrRequest

    accepted = AngzarrRequest.on_accepted

    def on_accepted(self: Any, *args: Any) -> None:
        accepted(self, *args)
        self.acknowledge()

    AngzarrRequest.on_accepted = on_accepted  # type: ignore[method-assign]


def _drop_letter(_folder: Path) -> None:
    """Let an event go as dead-lettered without its letter."""
    from angzarr.delivery import settle

    assert settle.put_one  # or nothing would be patched
    settle.put_one = lambda _queue, _letter: None


def _skip_claim(_folder: Path) -> None:
    """Run whatever is delivered, whoever else runs it or has run it."""
    from angzarr.adapters.redis.idempotency import RedisIdempotencyStore
    from angzarr.resilience.idempotency import Claimed

    RedisIdempotencyStore.claim = lambda _self, claims: [  # type: ignore[method-assign]
        Claimed(starts=1) for _ in claims
    ]


def _lose_fence(_folder: Path) -> None:
    """Let a late owner publish its letters and copies as if nobody had taken over."""
    from angzarr.adapters.redis.idempotency import RedisIdempotencyStore

    RedisIdempotencyStore.owns = lambda _self, _key, _token: True  # type: ignore[method-assign]


def _lose_completion(_folder: Path) -> None:
    """Acknowledge handled events without the completion that goes to the store with others."""
    from angzarr.adapters.celery.claim_batch import ClaimBatch

    def complete(_self: Any, _ride: Any, _kept: Any, then: Any, _refuse: Any) -> None:
        then(True)  # noqa: FBT003 - still ours

    ClaimBatch.complete = complete  # type: ignore[method-assign]


def _copy_last(folder: Path) -> None:
    """End the claim before the copy is published, and die in between, once for each event."""
    from angzarr.delivery.settle import Settler

    come_back = Settler._come_back

    def end_first(self: Any, delivery: Any, outcome: Any, *args: Any, **kwargs: Any) -> bool:
        kept = _KeptBack()
        ended = come_back(replace(self, schedule=kept), delivery, outcome, *args, **kwargs)
        if kept.put_so_far and _first(folder / f"cut-{delivery.event.id}"):
            os.kill(os.getpid(), signal.SIGKILL)
        for copy in kept.put_so_far:
            self.schedule.put(*copy)
        return ended

    Settler._come_back = end_first  # type: ignore[method-assign]


class _KeptBack:
    """A schedule that remembers what is put there."""

    def __init__(self) -> None:
        self.put_so_far: list[tuple[Any, ...]] = []

    def put(self, *copy: Any) -> None:
        self.put_so_far.append(copy)


def _any_order(_folder: Path) -> None:
    """Run what comes early as if it were its turn."""
    from angzarr.delivery.delivery import Parked
    from angzarr.delivery.ordering import Ordering

    enter = Ordering.enter

    def go_on(self: Any, *args: Any, **options: Any) -> Any:
        outcome = enter(self, *args, **options)
        return None if isinstance(outcome, Parked) else outcome

    Ordering.enter = go_on  # type: ignore[method-assign]


def _drop_fact(folder: Path) -> None:
    """End the first claim without its facts."""
    from angzarr.adapters.redis.idempotency import RedisIdempotencyStore

    ending_args = RedisIdempotencyStore.ending_args

    def end_untold(self: Any, key: str, token: str, ending: Any, facts: Any = ()) -> Any:
        told = () if facts and _first(folder / "untold") else facts
        return ending_args(self, key, token, ending, told)

    RedisIdempotencyStore.ending_args = end_untold  # type: ignore[method-assign]


def _first(file: Path) -> bool:
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


MUTATIONS: Final[dict[str, Callable[[Path], None]]] = {
    "early-ack": _early_ack,
    "drop-letter": _drop_letter,
    "skip-claim": _skip_claim,
    "lose-fence": _lose_fence,
    "lose-completion": _lose_completion,
    "copy-last": _copy_last,
    "any-order": _any_order,
    "drop-fact": _drop_fact,
}
