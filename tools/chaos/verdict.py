"""Verdict: does everything that was published stand where it must, and only there? Pure.

It believes the publisher's own list, the handlers' history, the ledger that the analysis worker
wrote, and what is left on the servers; angzarr's counters and logs it does not read, and its facts
must say the same (`fact_check`). Per (handler, event) pair: published = handled + skipped + in the
ledger, nothing waits.

A pair is *handled* if one of its runs wrote its end mark, *in the ledger* if exactly one entry
names it. Both at once is a breach, but for two excuses, each where a worker was disturbed between
two steps of a settle: the run that handled it was not settled, so another took over and failed; or
the run that failed had written its letter but not ended its claim, so another took over and handled
it. A worker that was disturbed *before* its run failed has lost its event (the fence): its letter
is a breach. `rules` says what the runs themselves must look like.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chaos.evidence import Entry, Evidence
from chaos.fact_check import LETTER, check_facts
from chaos.fates import GUARDED, HANDLED, MOST_STARTS, POISON, SKIPPED
from chaos.garbage import raw
from chaos.history import ENDED, FAILED, Pair, Run
from chaos.lanes import check_order, check_read_model
from chaos.lateness import CLOCKS, Lateness, Queued, Span
from chaos.load import LEAST_SHARE, awaited, begun_within
from chaos.revocations import ignored
from chaos.rules import LATE, SOON, Breach, check_runs, starts_left_open, was_taken_over
from chaos.stream import Planned

LOST, STRAY, BOTH, ENTRIES = "lost", "never published", "two ends", "two entries"
END, UNDECIDED, BYTES = "wrong end", "undecided", "bytes changed"
REFUSED, VOID = "not published", "run void"
LEFT, CLAIM, DIED, RESTLESS = "left behind", "orphan claim", "worker died", "never quiet"

#: Reasons of letters that a worker writes without running the event, so that no run tells when.
WITHOUT_A_RUN = frozenset({POISON, "revoked"})
#: Statuses of entries about which nothing more happens by itself.
AT_REST = frozenset({"held", "skipped", "archived", "resolved", "escalated", "compensated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Where everything ended, and what is wrong."""

    #: (Fate, end) → how many pairs or raw messages.
    ends: Counter[tuple[str, str]]
    breaches: tuple[Breach, ...]


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict on *evidence*."""
    return _Court(evidence).judge()


class _Court:
    """The evidence, sorted by pair."""

    def __init__(self, evidence: Evidence) -> None:
        self._all = evidence
        self._runs: dict[Pair, list[Run]] = defaultdict(list)
        #: When each process began the first thing that it ran.
        self._known_since: dict[int, float] = {}
        for run in sorted(evidence.runs, key=lambda run: run.began):
            self._runs[run.pair].append(run)
            self._known_since.setdefault(run.pid, run.began)
        self._entries: dict[object, list[Entry]] = defaultdict(list)
        for entry in evidence.entries:
            self._entries[entry.pair if entry.pair.event else entry.id].append(entry)
        self._lateness = Lateness(around=evidence.around, queued=list(self._queued()))
        #: Entries that some published event accounts for.
        self._claimed: set[str] = set()

    def judge(self) -> Verdict:
        ends: Counter[tuple[str, str]] = Counter()
        breaches: list[Breach] = []
        for planned in self._all.published:
            judged = self._raw(planned) if planned.fate.raw else self._pairs(planned)
            for end, found in judged:
                ends[planned.fate.name, end] += 1
                breaches += found
        breaches += check_order(self._all.published, self._all.runs, self._all.around)
        breaches += check_read_model(self._all.published, self._all.seen)
        if self._all.told is not None:
            breaches += check_facts(self._settled(), self._all.told)
        breaches += self._strays()
        breaches += self._remains()
        breaches += self._void()
        return Verdict(ends=ends, breaches=tuple(breaches))

    # -- one event -------------------------------------------------------------------------------

    def _pairs(self, planned: Planned) -> Iterator[tuple[str, list[Breach]]]:
        for name in planned.pairs:
            pair = Pair(*name)
            runs, entries = self._runs.get(pair, []), self._entries.get(pair, [])
            self._claimed.update(entry.id for entry in entries)
            end = _end(runs, entries)
            yield (
                end,
                [
                    *self._ended(planned, pair, end, runs, entries),
                    *check_runs(pair.event, runs, self._all.around),
                    *self._in_time(planned, runs),
                    *self._ignored(planned, runs),
                ],
            )

    def _ended(
        self, planned: Planned, pair: Pair, end: str, runs: Sequence[Run], entries: Sequence[Entry]
    ) -> Iterator[Breach]:
        where = f"{pair.handler} of a {planned.fate.name}"
        if end == LOST:
            ran = f"began {len(runs)} times" if runs else "never ran"
            yield Breach(kind=LOST, event=pair.event, text=f"{where}: {ran}, not in the ledger")
            return
        poisoned = end == POISON and starts_left_open(runs, self._all.around) >= MOST_STARTS
        if end not in planned.fate.ends and not poisoned:
            wanted = " or ".join(sorted(planned.fate.ends))
            text = f"{where} ended as {end}, not as {wanted}"
            yield Breach(kind=END, event=pair.event, text=text)
        if len(entries) > 1:
            text = f"{where} is in {len(entries)} entries of the ledger"
            yield Breach(kind=ENTRIES, event=pair.event, text=text)
        yield from self._one_end(pair, where, runs, entries)
        for entry in entries:
            yield from _decided(entry, pair.event)

    def _one_end(
        self, pair: Pair, where: str, runs: Sequence[Run], entries: Sequence[Entry]
    ) -> Iterator[Breach]:
        """Yield a breach if the pair has an effect that nothing undid, and an entry as well."""
        if not entries or any(map(self._cut_after_its_letter, runs)):
            return
        for run in runs:
            if was_taken_over(run, runs, self._all.around):
                continue
            if run.how in (ENDED, SKIPPED) and not self._was_cut(run, runs, entries):
                text = f"{where} {run.how} on {run.worker}, and is in the ledger as well"
                yield Breach(kind=BOTH, event=pair.event, text=text)

    def _was_cut(self, run: Run, runs: Sequence[Run], entries: Sequence[Entry]) -> bool:
        """Tell whether *run* may not have been settled, and another run may have taken over.

        Or another worker without a run: what is poison, or revoked, has its letter before it runs.
        """
        others = [other.began for other in runs if other is not run]
        if any(entry.reason in WITHOUT_A_RUN for entry in entries):
            others.append(float("inf"))
        last = max(others, default=float("-inf"))
        return self._all.around.excuse(run, max(last, run.began)) is not None

    def _cut_after_its_letter(self, run: Run) -> bool:
        """Tell whether *run* failed and its worker was disturbed before its claim was ended."""
        around = self._all.around
        return run.how == FAILED and any(
            around.covers(one, run) and run.closed is not None and one.start >= run.closed
            for one in around.disturbances
        )

    def _ignored(self, planned: Planned, runs: Sequence[Run]) -> Iterator[Breach]:
        told = self._all.revocations.get(planned.id)
        if told is not None:
            yield from ignored(planned.id, runs, told, self._all.around, self._known_since)

    def _in_time(self, planned: Planned, runs: Sequence[Run]) -> Iterator[Breach]:
        sent = self._all.sent_at.get(planned.id)
        if not planned.delay or sent is None or not runs:
            return
        waited, due = runs[0].began - sent, sent + planned.delay
        text = f"began {waited:.2f} s after it was sent, to be delayed by {planned.delay} s"
        if waited < planned.delay - CLOCKS:
            yield Breach(kind=SOON, event=planned.id, text=text)
        allowed = self._lateness.allowed(Span(due, max(due, runs[0].began)))
        if runs[0].began > due + allowed:
            text = f"{text}; {allowed:.1f} s more are explained"
            yield Breach(kind=LATE, event=planned.id, text=text)

    def _queued(self) -> Iterator[Queued]:
        """Yield how long events waited that any worker of the main queue could begin at once."""
        for planned in self._all.published:
            sent = self._all.sent_at.get(planned.id)
            held_back = planned.delay or planned.root or planned.fate.handlers == (GUARDED,)
            if held_back or planned.fate.lethal or sent is None:
                continue
            for pair in awaited(planned):
                if runs := self._runs.get(pair):
                    yield Queued(sent, runs[0].began - sent)

    # -- one raw message -------------------------------------------------------------------------

    def _raw(self, planned: Planned) -> Iterator[tuple[str, list[Breach]]]:
        sent = raw(planned.kind, planned.id)
        known = planned.id if sent.headers.get("id") else None
        found = [
            entry
            for entry in self._all.entries
            if (entry.headers.get("id") == known if known else entry.body == sent.body)
        ]
        self._claimed.update(entry.id for entry in found)
        what = f"a {planned.fate.name} ({planned.kind})"
        if not found:
            text = f"{what} is not in the ledger"
            yield LOST, [Breach(kind=LOST, event=planned.id, text=text)]
            return
        breaches = [breach for entry in found for breach in _decided(entry, planned.id)]
        if len(found) > 1:
            text = f"{what} is in {len(found)} entries of the ledger"
            breaches.append(Breach(kind=ENTRIES, event=planned.id, text=text))
        breaches += [
            Breach(kind=BYTES, event=planned.id, text=f"{what} came back as {entry.body[:80]!r}")
            for entry in found
            if entry.body != sent.body
        ]
        if found[0].reason not in planned.fate.ends:
            text = f"{what} ended as {found[0].reason}"
            breaches.append(Breach(kind=END, event=planned.id, text=text))
        yield found[0].reason, breaches

    # -- the whole -------------------------------------------------------------------------------

    def _settled(self) -> dict[Pair, frozenset[str]]:
        """The ends of each pair, as facts call them; of several only one was settled."""
        ends: dict[Pair, frozenset[str]] = {}
        for planned in self._all.published:
            for pair in (Pair(*name) for name in planned.pairs):
                how = {run.how for run in self._runs.get(pair, ())}
                found = {HANDLED} if ENDED in how else {SKIPPED} if SKIPPED in how else set()
                letters = {LETTER} if self._entries.get(pair) else set()
                if found or letters:
                    ends[pair] = frozenset(found | letters)
        return ends

    def _strays(self) -> Iterator[Breach]:
        published = {Pair(*name) for planned in self._all.published for name in planned.pairs}
        for pair, runs in self._runs.items():
            if pair not in published and pair.event not in self._all.refused:
                text = f"{pair.handler} ran it {len(runs)} times"
                yield Breach(kind=STRAY, event=pair.event, text=text)
        for entry in self._all.entries:
            if entry.id not in self._claimed:
                text = f"the ledger has {entry.reason} of {entry.pair.handler}: {entry.body[:80]!r}"
                yield Breach(kind=STRAY, event=entry.pair.event or entry.id[:12], text=text)

    def _void(self) -> Iterator[Breach]:
        """Yield a breach if most of the work was done in peace: it shows nothing."""
        runs = self._all.runs
        if self._all.faulted is None or not runs:
            return
        begun = begun_within(runs, self._all.faulted)
        if begun < LEAST_SHARE * len(runs):
            text = f"{begun} of {len(runs)} runs began while faults went on, {LEAST_SHARE:.0%} must"
            yield Breach(kind=VOID, event="", text=text)

    def _remains(self) -> Iterator[Breach]:
        evidence = self._all
        if not evidence.quiet:
            yield Breach(kind=RESTLESS, event="", text="the fleet did not come to rest in time")
        for place, number in evidence.left.items():
            if number:
                yield Breach(kind=LEFT, event="", text=f"{number} messages are left in {place}")
        for record, problem in evidence.claims.items():
            event = record.rpartition(":")[2]
            yield Breach(kind=CLAIM, event=event, text=f"the record {record} {problem}")
        for event, said in evidence.refused.items():
            yield Breach(kind=REFUSED, event=event, text=f"the app would not publish it: {said}")
        for death in evidence.deaths:
            yield Breach(kind=DIED, event="", text=death)


def _end(runs: Sequence[Run], entries: Sequence[Entry]) -> str:
    if any(run.how == ENDED for run in runs):
        return HANDLED
    if any(run.how == SKIPPED for run in runs):
        return SKIPPED
    return entries[0].reason if entries else LOST


def _decided(entry: Entry, event: str) -> Iterator[Breach]:
    if entry.status not in AT_REST:
        text = f"its entry {entry.id[:12]} is {entry.status}, not at rest"
        yield Breach(kind=UNDECIDED, event=event, text=text)
