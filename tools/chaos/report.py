"""Report: what a run came to, as tables for people and as JSON for programs."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from chaos.disturbances import What
from chaos.history import DYING, EFFECTS, ENDED, Run
from chaos.injectors import Injected
from chaos.load import begun_within
from chaos.rules import Breach
from chaos.site import Outcome

#: Seconds before an event's first line and after its last from which on faults are shown with it.
NEAR = 3.0
#: Events whose whole history is printed.
MOST_SHOWN = 10


def render(outcome: Outcome) -> str:
    """Return the report of *outcome*."""
    order = outcome.order
    parts = [
        f"broker {order.broker}, seed {order.seed}, {order.seconds:.0f} s of faults"
        + (f", mutation {order.mutation}" if order.mutation else ""),
        "\n".join(_table(_faults(outcome))),
        "\n".join(_table(_fates(outcome))),
        "\n".join(_account(outcome)),
    ]
    if outcome.verdict.breaches:
        parts.append("\n".join(_breaches(outcome)))
    return "\n\n".join(parts) + "\n"


def summary(outcome: Outcome) -> dict[str, Any]:
    """Return the figures of *outcome*."""
    return {
        "broker": outcome.order.broker,
        "seed": outcome.order.seed,
        "events": len(outcome.evidence.published),
        "owed": sum(len(one.pairs) or 1 for one in outcome.evidence.published),
        "messages": outcome.sends,
        "held_s": round(outcome.held, 1),
        "runs": len(outcome.evidence.runs),
        "begun_under_faults": _begun_under_faults(outcome),
        "cut": sum(len(_cut(outcome, one)) for one in outcome.injected),
        "faults": Counter(one.fault.kind for one in outcome.injected),
        "ends": {f"{fate}: {end}": n for (fate, end), n in outcome.verdict.ends.items()},
        "lost": sum(breach.kind == "lost" for breach in outcome.verdict.breaches),
        "breaches": Counter(breach.kind for breach in outcome.verdict.breaches),
        "said": [f"{one.kind}: {one.event} {one.text}" for one in outcome.verdict.breaches],
        "recovery_s": {kind: sorted(found) for kind, found in _recoveries(outcome).items()},
        "stops_s": sorted(outcome.stops),
    }


# -- faults ----------------------------------------------------------------------------------------


def _faults(outcome: Outcome) -> Iterator[Sequence[object]]:
    """Yield a row for each kind: how often, what it cut, what became of that, how soon it worked.

    "first effect" is the time until any handler ended its work after the fault was over, "its own"
    until one did on the worker that took the victim's place, or on the victim.
    """
    yield ("fault", "times", "runs cut", "handled", "in ledger", "first effect", "its own", "")
    by_kind: dict[str, list[Injected]] = defaultdict(list)
    for one in outcome.injected:
        by_kind[one.fault.kind].append(one)
    recoveries = _recoveries(outcome)
    for kind, found in sorted(by_kind.items()):
        cut = [run for one in found for run in _cut(outcome, one)]
        handled = sum(_was_handled(outcome, run) for run in cut)
        own = [seconds for one in found if (seconds := _own(outcome, one)) is not None]
        notes = Counter(one.note for one in found if one.note)
        yield (
            kind, len(found), len(cut), handled, len(cut) - handled,
            _span(recoveries.get(kind, [])), _span(own), _many(notes),
        )  # fmt: skip


def _many(notes: Counter[str]) -> str:
    return "; ".join(f"{n} x {note}" if n > 1 else note for note, n in notes.most_common())[:90]


def _cut(outcome: Outcome, injected: Injected) -> list[Run]:
    """Return the runs that did not come to their end because of a fault."""
    around = outcome.evidence.around
    mine = [one for one in around.disturbances if one.fault == injected.fault.number]
    return [
        run
        for run in outcome.evidence.runs
        if run.closed is None
        and any(around.covers(one, run) and run.began <= one.start for one in mine)
    ]


def _was_handled(outcome: Outcome, cut: Run) -> bool:
    runs = outcome.evidence.runs
    return any(run.pair == cut.pair and run.how in EFFECTS for run in runs)


def _recoveries(outcome: Outcome) -> dict[str, list[float]]:
    """Return kind → seconds from the end of each fault to the first effect after it."""
    ended = sorted(run.closed for run in outcome.evidence.runs if run.how == ENDED and run.closed)
    found: dict[str, list[float]] = defaultdict(list)
    for one in outcome.injected:
        after = next((at for at in ended if at > one.over), None)
        if after is not None:
            found[one.fault.kind].append(round(after - one.over, 3))
    return found


def _own(outcome: Outcome, injected: Injected) -> float | None:
    name = injected.successor or injected.victim
    ended = [
        run.closed
        for run in outcome.evidence.runs
        if run.worker == name and run.how == ENDED and run.closed and run.closed > injected.over
    ]
    return min(ended) - injected.over if ended else None


def _span(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    return f"{statistics.median(seconds):.2f} s (most {max(seconds):.2f})"


# -- fates -----------------------------------------------------------------------------------------


def _fates(outcome: Outcome) -> Iterator[Sequence[object]]:
    yield ("fate", "end", "number")
    for (fate, end), number in sorted(outcome.verdict.ends.items()):
        yield fate, end, number


def _account(outcome: Outcome) -> Iterator[str]:
    evidence, ends = outcome.evidence, Counter[str]()
    for (_, end), number in outcome.verdict.ends.items():
        ends[end if end in ("handled", "skipped", "lost") else "in the ledger"] += number
    runs = evidence.runs
    reruns = sum(run.how == DYING or run.closed is None for run in runs)
    yield (
        f"{len(evidence.published)} events, {outcome.sends} messages confirmed,"
        f" {len(outcome.injected)} faults; {len(runs)} runs, {reruns} of them cut short;"
        f" slowest stop {max(outcome.stops):.1f} s; {outcome.seconds:.0f} s in all"
    )
    under = _begun_under_faults(outcome)
    share = f"{under / len(runs):.0%}" if runs else "none"
    yield (
        f"begun under faults: {under} of {len(runs)} runs ({share});"
        f" the publisher waited {outcome.held:.0f} s for the fleet"
    )
    told = " + ".join(f"{ends[end]} {end}" for end in ("handled", "skipped", "in the ledger"))
    yield f"{ends.total()} published = {told}; lost {ends['lost']}"
    breaches = outcome.verdict.breaches
    yield "Everything is accounted for." if not breaches else f"BREACHES: {len(breaches)}"


def _begun_under_faults(outcome: Outcome) -> int:
    span = outcome.evidence.faulted
    return begun_within(outcome.evidence.runs, span) if span else 0


# -- breaches --------------------------------------------------------------------------------------


def _breaches(outcome: Outcome) -> Iterator[str]:
    by_event: dict[str, list[Breach]] = defaultdict(list)
    for breach in outcome.verdict.breaches:
        by_event[breach.event].append(breach)
    for kind, number in Counter(one.kind for one in outcome.verdict.breaches).most_common():
        yield f"  {kind}: {number}"
    for number, (event, found) in enumerate(by_event.items()):
        for breach in found:
            yield f"{breach.kind.upper()} {event}: {breach.text}"
        if event and number < MOST_SHOWN:
            yield from _history(outcome, event)


def _history(outcome: Outcome, event: str) -> Iterator[str]:
    """Yield what is known of *event*, in the order of time, in seconds since the first message."""
    evidence = outcome.evidence
    zero = min(evidence.sent_at.values(), default=0.0)
    lines: list[tuple[float, str]] = []
    if event in evidence.sent_at:
        kinds = {one.id: one.kind for one in evidence.published}
        lines.append((evidence.sent_at[event], f"sent first {kinds.get(event, '')}"))
    touched = set()
    for run in evidence.runs:
        if run.pair.event != event:
            continue
        touched.add(run.worker)
        who = f"{run.pair.handler} on {run.worker} ({run.pid})"
        at = f"attempt {run.attempt}, hop {run.hop}"
        lines.append((run.began, f"began     {who}, {at}"))
        if run.closed is not None:
            lines.append((run.closed, f"{run.how:9} {who}, {at}"))
    first, last = min(lines, default=(zero,))[0], max(lines, default=(zero,))[0]
    lines += [
        (lapse.start, f"    all: {lapse.what}, until {lapse.end - zero:.3f}")
        for lapse in evidence.around.disturbances
        if lapse.what is What.LEASES_ENDED
    ]
    for one in outcome.injected:
        near = first - NEAR <= one.over and one.began <= last + NEAR
        if near and (not one.victim or one.victim in touched):
            what = " ".join(filter(None, (one.fault.kind, one.victim, one.note)))
            lines.append((one.began, f"    fault {one.fault.number}: {what}"))
            lines.append((one.over, f"    fault {one.fault.number} is over"))
    yield from (f"    {at - zero:8.3f} {text}" for at, text in sorted(lines))
    for entry in evidence.entries:
        if entry.pair.event == event or entry.headers.get("id") == event:
            yield f"    ledger   {entry.reason}, {entry.status}, {entry.pair.handler}"


def _table(rows: Iterator[Sequence[object]]) -> Iterator[str]:
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
