"""Many: a verb for many entries in one request; each has its own result, whatever became of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from angzarr.analysis.ledger.entry import Entry
from angzarr.analysis.ledger.operator_actions import Verb, is_done, refusal
from angzarr.analysis.replay.bulk_actions import CHANGED, act_on_all
from angzarr.dashboard.access import Caller
from angzarr.dashboard.choice import Choice
from angzarr.dashboard.deeds import compensate
from angzarr.dashboard.desk import Desk
from angzarr.dashboard.problem import Problem
from angzarr.errors import PayloadStoreUnavailable

#: Compensations of one request: each opens its letter and waits for the broker.
MOST_COMPENSATED: Final = 100
_GONE: Final = "there is no such entry"
_UNKNOWN: Final = "it is not known whether it was done: look at the entry"
_log = logging.getLogger(__name__)


class Result(NamedTuple):
    """What became of one entry; without `problem` it is done, or `begun` and finishes by itself."""

    entry_id: str
    problem: str = ""
    begun: bool = False


class Asked(NamedTuple):
    """What is to be done to all of them, and for whom."""

    verb: Verb
    note: str
    by: Caller
    dry_run: bool = False


def distinct(entry_ids: Sequence[str], verb: Verb) -> list[str]:
    """Return each id once; raises Problem 422 for more than one request takes."""
    ids = list(dict.fromkeys(entry_ids))
    if len(ids) > most_for(verb, len(ids)):
        msg = f"{MOST_COMPENSATED} entries at most are compensated at once"
        raise Problem(422, "too-many", msg)
    return ids


def opened(desk: Desk, ids: Sequence[str]) -> list[Entry]:
    """Return the entries that there are of *ids*."""
    details = (desk.ledger.open(one) for one in ids)
    return [detail.entry for detail in details if detail is not None]


def in_order(ids: Sequence[str], results: Sequence[Result]) -> list[Result]:
    """Return a result for each of *ids*, also where there is no such entry."""
    known = {one.entry_id: one for one in results}
    return [known.get(one, Result(one, _GONE)) for one in ids]


def act_on(desk: Desk, entries: Sequence[Entry], asked: Asked) -> list[Result]:
    """Do a verb to *entries* as they were seen."""
    if asked.verb is Verb.COMPENSATE:
        return [_compensate(desk, one, asked) for one in entries]
    done = act_on_all(desk.skips, asked.verb, entries, note=asked.note, by=asked.by.name)
    return [Result(one.entry.id, one.problem, one.begun) for one in done]


def most_for(verb: Verb, limit: int) -> int:
    """Return how many entries one request takes where *limit* are asked for."""
    return min(limit, MOST_COMPENSATED) if verb is Verb.COMPENSATE else limit


def obstacle(desk: Desk, entry: Entry, verb: Verb) -> str:
    """Return why *verb* would not be done to *entry*, or an empty string; changes nothing."""
    why = refusal(entry, verb)
    if why or verb is not Verb.COMPENSATE:
        return why
    detail = desk.ledger.open(entry.id)
    try:
        return desk.compensator.problem(entry, detail.failure) if detail else _GONE
    except PayloadStoreUnavailable:
        return "its payload cannot be had now"


def act_once(
    desk: Desk, find: Callable[[], list[Entry]], asked: Asked, choice: Choice
) -> list[Result]:
    """Do a verb to what *find* returns, or go on with what the same request chose before."""
    if choice.kept is not None:
        return _go_on(desk, asked, choice)
    entries = find()
    choice.make(entries)
    return act_on(desk, entries, asked)


def _go_on(desk: Desk, asked: Asked, choice: Choice) -> list[Result]:
    """Go on with what was chosen before: what is done is done, what has changed is left alone."""
    results: dict[str, Result] = {}
    unchanged: list[Entry] = []
    for entry_id, revision in choice.kept or ():
        detail = desk.ledger.open(entry_id)
        if detail is None:
            results[entry_id] = Result(entry_id, _GONE)
        elif detail.entry.revision == revision:
            unchanged.append(detail.entry)
        else:
            done = is_done(detail.entry, asked.verb)
            results[entry_id] = Result(entry_id, "" if done else CHANGED)
    results |= {one.entry_id: one for one in act_on(desk, unchanged, asked)}
    return [results[entry_id] for entry_id, _ in choice.kept or ()]


def _compensate(desk: Desk, entry: Entry, asked: Asked) -> Result:
    """Compensate one of many: the others have their results whatever becomes of it."""
    try:
        problem, begun = compensate(desk, entry, asked.note, by=asked.by)
    except Problem as error:
        return Result(entry.id, error.detail)
    except Exception:  # noqa: BLE001 - the others keep their results
        _log.exception("compensation_failed: of entry %s", entry.id)
        return Result(entry.id, _UNKNOWN)
    return Result(entry.id, problem, begun)
