"""Claims and owner leases on Redis: one script and one round trip a step.

Every script touches the record's key alone, or its log of finished steps too, which is in the same
slot: records may lie on any node of a Redis Cluster. Facts that an ending takes along go to one
stream, which is on the same server only where that is no cluster.
Spans are measured by Redis, never by a worker's clock.

Logs of finished steps on Redis: one hash each, in the slot of the record of its claim.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from itertools import starmap
from typing import Any

from angzarr.adapters.redis.fact_outbox import KEEP_FACTS, RedisFactOutbox
from angzarr.adapters.redis.link import Argument, RedisClient, Script, whole_ms
from angzarr.adapters.redis.payload_holders import RELEASE_PAYLOADS, RedisPayloadHolders
from angzarr.delivery.compensation import (
    LOG_LIFE,
    MOST_STEPS,
    FinishedStep,
    Logged,
    StepLogKey,
    too_many,
)
from angzarr.payloads.holders import PayloadHold
from angzarr.resilience.idempotency import (
    RECORD_LIFE,
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
    ClaimAnswer,
    Claimed,
    ClaimEnd,
    Complete,
    Conflict,
    Ending,
    Fail,
    InProgress,
    Release,
    SupersededClaim,
    Wait,
    owner_lease_key,
    released_by,
)
from angzarr.resilience.idempotency_rules import ClaimStatus, life_after, status_of

DEFAULT_PREFIX = "angzarr"

_CLAIM = Script("claim.lua")
_CLAIM_MANY = Script("claim_many.lua", functions={"claim": "claim.lua"})
_OWNS = Script("owns.lua", functions=KEEP_FACTS)
_SETTLE = Script("settle.lua", functions={**KEEP_FACTS, **RELEASE_PAYLOADS})


class RedisOwnerLeases:
    """Owner leases, one key each: ``{prefix}:owner:{owner}``, ended by Redis itself."""

    def __init__(self, client: RedisClient, *, prefix: str = DEFAULT_PREFIX) -> None:
        self._client = client
        self._prefix = prefix

    def renew(self, owner: str, span: timedelta, /) -> None:
        """Let *owner*'s lease end *span* from now."""
        self._client.execute("SET", owner_lease_key(self._prefix, owner), 1, "PX", whole_ms(span))

    def end(self, owner: str, /) -> None:
        """End *owner*'s lease now."""
        self._client.execute("DEL", owner_lease_key(self._prefix, owner))


class RedisIdempotencyStore:
    """Claims, one hash each: ``{prefix}:{key}``. Owner leases are looked up under the same prefix.

    *life* is how long a pending or released record is kept after it was last touched. On *one*
    server many claims are one script; on the nodes of a cluster each is one of its own.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        prefix: str = DEFAULT_PREFIX,
        life: timedelta = RECORD_LIFE,
        one: bool = False,
        outbox: RedisFactOutbox | None = None,
    ) -> None:
        self._one = one
        #: Facts of settled claims, for a relay.
        self.outbox = outbox or RedisFactOutbox(client, prefix=prefix)
        #: Who holds bodies of messages; endings release them.
        self.holders = RedisPayloadHolders(client, prefix=prefix)
        self._client = client
        self._prefix = prefix
        self._life = life
        self._life_ms = whole_ms(life)

    def claim(self, claims: Sequence[Claim], /) -> list[ClaimAnswer]:
        """Answer each claim in order, in one round trip where nothing is in progress."""
        replies = self._ask([self._arguments(claim) for claim in claims])
        blocked = [i for i, reply in enumerate(replies) if _is_pending(reply)]
        if blocked:
            self._take_over(claims, replies, blocked)
        return [_answer(reply) for reply in replies]

    def owns(self, key: str, token: str, /, facts: Sequence[str] = ()) -> bool:
        """True if the delivery with *token* still holds *key*; its *facts* are kept then."""
        name = f"{self._prefix}:{key}"
        if facts:
            return bool(self._client.run(_OWNS, [name], token, *self.outbox.args(facts)))
        return bool(self._client.execute("HMGET", name, "status", "token") == ["pending", token])

    def settle(self, key: str, token: str, ending: Ending, /, facts: Sequence[str] = ()) -> bool:
        """End the claim of *token*, or change nothing and return False."""
        record, args = self.ending_args(key, token, ending, facts)
        keys = [record]
        if isinstance(ending, Complete) and ending.steps is not None:
            keys.append(log_of(record, ending.steps))
        ended = bool(self._client.run(_SETTLE, keys, *args))
        self._release([ending] if ended else ())
        return ended

    def settle_all(self, ends: Sequence[ClaimEnd], /) -> list[bool]:
        """End each claim in order, in one round trip; one that takes a log along has its own."""
        if any(getattr(end.ending, "steps", None) is not None for end in ends) or not ends:
            return [self.settle(*end) for end in ends]
        calls = [(record, *args) for record, args in starmap(self.ending_args, ends)]
        ended = [bool(reply) for reply in self._client.run_many(_SETTLE, calls)]
        self._release([end.ending for end, done in zip(ends, ended, strict=True) if done])
        return ended

    def ending_args(
        self, key: str, token: str, ending: Ending, facts: Sequence[str] = ()
    ) -> tuple[str, tuple[Argument, ...]]:
        """Record and arguments with which ``settle.lua`` ends the claim of *token*."""
        life, kept = whole_ms(life_after(ending, self._life)), self.outbox.args(facts)
        released = self.holders.args(self._hold_of(ending))
        args = (token, status_of(ending).value, life, *kept, *released, *_left_by(ending))
        return f"{self._prefix}:{key}", args

    def _hold_of(self, ending: Ending) -> PayloadHold | None:
        """The hold that ends in the same script; None where there is none, or in a cluster."""
        hold = released_by(ending)
        return hold if hold is not None and self.outbox.is_open() else None

    def _release(self, endings: Sequence[Ending]) -> None:
        """Release, in a cluster, what *endings* could not: their records lie in other slots.

        A kill just before it leaves a body held.
        """
        holds = [hold for one in endings if (hold := released_by(one)) is not None]
        if holds and not self.outbox.is_open():
            self.holders.release(holds)

    def _arguments(self, claim: Claim, fenced: str = "") -> tuple[str, *tuple[Argument, ...]]:
        return (
            f"{self._prefix}:{claim.key}",
            claim.token,
            claim.owner,
            claim.position.replay,
            claim.position.hop,
            claim.fingerprint,
            self._life_ms,
            fenced,
            1 if claim.counted else 0,
            1 if claim.anew else 0,
        )

    def _ask(self, calls: Sequence[tuple[str, *tuple[Argument, ...]]]) -> list[Any]:
        if len(calls) == 1:
            key, *args = calls[0]
            return [self._client.run(_CLAIM, (key,), *args)]
        if self._one and calls:
            flat = [arg for _, *args in calls for arg in args]
            return list(self._client.run(_CLAIM_MANY, [key for key, *_ in calls], *flat))
        return self._client.run_many(_CLAIM, calls) if calls else []

    def _take_over(self, claims: Sequence[Claim], replies: list[Any], blocked: list[int]) -> None:
        """Claim again what dead owners hold, naming the token that each of them held it by.

        If another delivery was quicker, the token differs and the answer is its.
        """
        leases = [("EXISTS", owner_lease_key(self._prefix, replies[i][1])) for i in blocked]
        alive = self._client.execute_many(leases)
        dead = [i for i, runs in zip(blocked, alive, strict=True) if not runs]
        calls = [self._arguments(claims[i], fenced=replies[i][2]) for i in dead]
        for i, reply in zip(dead, self._ask(calls), strict=True):
            replies[i] = reply


def log_of(record: str, replay: int) -> str:
    """The key of the log of finished steps beside *record*, in the same cluster slot.

    Only a record with a ``}`` that closes nothing has its log elsewhere, as no tag could name it.
    """
    tag = record.partition("{")[2].partition("}")
    name = record if tag[0] and tag[1] else f"{{{record}}}"
    return f"{name}:steps:{replay}"


def _is_pending(reply: Any) -> bool:
    return reply.__class__ is list and reply[0] == ClaimStatus.PENDING


def _answer(reply: Any) -> ClaimAnswer:  # noqa: PLR0911 - one for each answer
    """Read the reply of ``claim.lua``."""
    if reply.__class__ is int:
        return Claimed(starts=reply)
    match reply:
        case [ClaimStatus.PENDING, *_]:
            return InProgress()
        case ["claimed", int(starts), steps, str(last)]:
            return Claimed(starts=starts, steps=steps == 1, last_words=last)
        case [ClaimStatus.COMPLETED, result]:
            return AlreadyCompleted(result=result)
        case [ClaimStatus.FAILED, error]:
            return AlreadyFailed(error=error or "{}")
        case ["superseded"]:
            return SupersededClaim()
        case ["conflict"]:
            return Conflict()
    msg = f"claim.lua answered {reply!r}"
    raise AssertionError(msg)


def _left_by(ending: Ending) -> tuple[Argument, ...]:
    """What ``settle.lua`` writes besides the status."""
    match ending:
        case Complete(result=str(kept)) | Fail(error=kept):
            return (kept,)
        case Wait(position=position):
            return position
        case Release(counted=counted, was_counted=was, last_words=last):
            uncounted = int(was) - int(counted)
            return (uncounted, last) if last else (uncounted,)
    return ()


_CHANGE = Script("finished_steps.lua")
#: What the script answers where the claim is lost, and where the log is full.
_LOST, _FULL = 0, -1
_STEP = "s:"


class RedisStepLog:
    """Logs under *prefix*, each kept for *life* after its last step, as Redis counts it."""

    def __init__(
        self, client: RedisClient, *, prefix: str = DEFAULT_PREFIX, life: timedelta = LOG_LIFE
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._life_ms = whole_ms(life)

    def add(self, place: StepLogKey, step: FinishedStep, /) -> bool:
        """Write *step* last, in place of one of its name."""
        told = json.dumps([step.undo, step.data])
        answer = self._change(place, "add", step.name, told, self._life_ms, MOST_STEPS)
        if answer == _FULL:
            raise too_many(step.name)
        return bool(answer != _LOST)

    def read(self, place: StepLogKey, /) -> Logged:
        """What the log holds."""
        flat = self._client.execute("HGETALL", log_of(self._record(place), place.replay))
        return _logged(flat)

    def mark_undoing(
        self, place: StepLogKey, cause: str | None, /
    ) -> Sequence[FinishedStep] | None:
        """Note whether the steps are being undone, and return them."""
        answer = self._change(place, "mark", *([] if cause is None else [cause]))
        return None if answer == _LOST else _logged(answer).steps

    def remove(self, place: StepLogKey, name: str, /) -> bool:
        """Forget the step *name*."""
        return bool(self._change(place, "remove", name) != _LOST)

    def _record(self, place: StepLogKey) -> str:
        return f"{self._prefix}:{place.key}"

    def _change(self, place: StepLogKey, verb: str, *args: Argument) -> Any:
        record = self._record(place)
        keys = (record, log_of(record, place.replay))
        return self._client.run(_CHANGE, keys, place.token, verb, *args)


def _logged(flat: Sequence[str]) -> Logged:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    steps = [_numbered(name, text) for name, text in fields.items() if name.startswith(_STEP)]
    return Logged(tuple(step for _, step in sorted(steps)), fields.get("undoing"))


def _numbered(field: str, text: str) -> tuple[int, FinishedStep]:
    """Read one field; a foreign value is reported as a step that cannot be undone."""
    number, _, told = text.partition(":")
    try:
        undo, data = json.loads(told)
        return int(number), FinishedStep(field.removeprefix(_STEP), str(undo), str(data))
    except (ValueError, TypeError):
        return 0, FinishedStep(field.removeprefix(_STEP), "")
