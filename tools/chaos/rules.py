"""Rules: what a pair's own runs must look like. Pure; each rule yields breaches.

Of two runs of one pair within one replay the later is right only if the earlier *asked* for it
(it failed and the next is one attempt on, it postponed itself, it ended its own process), or is
*excused* (see `disturbances`) by something that happened before the later began. So an effect that
is complete, whose worker lived on, is never followed by another run, whatever else was published
under its id; and where the claim was alive no two runs overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from chaos.disturbances import UNCOUNTED, Circumstances, What
from chaos.fates import LIMITED, MOST_ATTEMPTS, MOST_STARTS
from chaos.history import DYING, EFFECTS, FAILED, POSTPONED, Run

REPEATED, OVERLAP, CUT = "repeated", "overlap", "ran again"
TWICE, BACKWARDS, JUMPED = "attempt twice", "attempts backwards", "attempt left out"
TOO_MANY, STARTS = "too many attempts", "too many starts"
SOON, LATE = "too early", "too late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """What is wrong, with which event (empty: with the whole), and how one sees it."""

    kind: str
    event: str
    text: str


def check_runs(event: str, runs: Sequence[Run], around: Circumstances) -> Iterator[Breach]:
    """Yield what is wrong with the *runs* of one pair, which are in the order they began."""
    for replay in sorted({run.replay for run in runs}):
        of_replay = [run for run in runs if run.replay == replay]
        for kind, text in _within(of_replay, around):
            yield Breach(kind=kind, event=event, text=text)
    yield from _policy(event, runs, around)


def _within(runs: Sequence[Run], around: Circumstances) -> Iterator[tuple[str, str]]:
    for earlier, later in combinations(runs, 2):
        fenced = around.is_stale(later) or was_taken_over(earlier, runs, around)
        if around.excuse(earlier, later.began) is None and not fenced:
            yield from _unexcused(earlier, later)
    highest = runs[0]
    for run in runs[1:]:
        if run.attempt < highest.attempt and not around.is_stale(run):
            yield BACKWARDS, f"attempt {run.attempt} began after attempt {highest.attempt}"
        if run.attempt > highest.attempt + 1 and not _limit_struck_first(highest, run, around):
            yield JUMPED, f"attempt {run.attempt} came after attempt {highest.attempt}"
        highest = max(highest, run, key=lambda one: one.attempt)


def was_taken_over(run: Run, runs: Sequence[Run], around: Circumstances) -> bool:
    """Tell whether another worker had begun it before *run*, which is stale: that one's end counts.

    So does that of another process of the same worker, if each is a consumer of its own. What the
    stale one did is neither completed nor acknowledged, so the event may run again.
    """

    def other(one: Run) -> bool:
        return one.worker != run.worker or (one.worker in around.apart and one.pid != run.pid)

    return around.is_stale(run) and any(
        other(one) and one.began <= run.began and not around.is_stale(one) for one in runs
    )


def _limit_struck_first(earlier: Run, later: Run, around: Circumstances) -> bool:
    """Tell whether a hard time limit may have used an attempt up before its handler began.

    The limit runs from when a child takes the message: a claim that waits for a store counts, and
    a child that is frozen.
    """
    frozen = (one for one in around.disturbances if one.what is What.CHILD_FROZEN)
    return earlier.pair.handler == LIMITED and any(
        one.start <= later.began and one.end >= earlier.began for one in (*around.outages, *frozen)
    )


def _unexcused(earlier: Run, later: Run) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with *later*, since nothing disturbed *earlier*."""
    if earlier.how in EFFECTS and earlier.closed is not None:
        if later.began < earlier.closed:
            yield OVERLAP, f"{later.worker} began while {earlier.worker} ran it, undisturbed"
        else:
            ago = later.began - earlier.closed
            yield (
                REPEATED,
                f"{later.worker} began {ago:.2f} s after it had {earlier.how} on {earlier.worker}",
            )
    elif earlier.closed is None:
        yield CUT, f"a run on {earlier.worker} has no end, and nothing cut it short"
    elif later.began < earlier.closed and earlier.how != DYING:
        yield OVERLAP, f"{later.worker} began while {earlier.worker} ran it, undisturbed"
    elif earlier.how == FAILED and later.attempt == earlier.attempt:
        yield TWICE, f"attempt {later.attempt} ran again though it had failed undisturbed"
    elif earlier.how == POSTPONED and (later.attempt, later.hop) == (earlier.attempt, earlier.hop):
        yield TWICE, f"hop {later.hop} ran again though it had postponed itself undisturbed"


def _policy(event: str, runs: Sequence[Run], around: Circumstances) -> Iterator[Breach]:
    most = max((run.attempt for run in runs), default=0)
    if most > MOST_ATTEMPTS:
        text = f"attempt {most} of {MOST_ATTEMPTS} ran"
        yield Breach(kind=TOO_MANY, event=event, text=text)
    starts, allowed = unsettled(runs, around), MOST_STARTS
    if any(run.how == DYING and run.worker in around.apart for run in runs):
        allowed += UNCOUNTED
    if starts > allowed:
        text = f"was started {starts} times without an end, {allowed} are allowed"
        yield Breach(kind=STARTS, event=event, text=text)


def unsettled(runs: Sequence[Run], around: Circumstances) -> int:
    """Return how many runs in a row ended their own process at most, within one attempt.

    A run that a fault cut may count as a start or not (a claim made with the fetch does not, an
    orderly stop takes its own back), and a stale one counts for nobody, since its worker is fenced:
    neither is held against the product.
    """
    longest = row = attempt = 0
    for run in runs:
        if run.how in EFFECTS or run.how in (FAILED, POSTPONED) or run.attempt != attempt:
            row, attempt = 0, run.attempt
        if run.how in EFFECTS or run.how in (FAILED, POSTPONED):
            continue
        if around.excuse(run, float("inf")) is None and not around.is_stale(run):
            row += 1
        longest = max(longest, row)
    return longest


def starts_left_open(runs: Sequence[Run], around: Circumstances) -> int:
    """Return how many runs in a row were not settled at most, within one attempt: what poison is.

    Those that ended their process or were cut, and those whose settling a fault may have kept from
    becoming true before the next one began (or at all). A run that failed in order is settled.
    """
    longest = row = 0
    attempt = (0, 0)
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        if (run.replay, run.attempt) != attempt:
            row, attempt = 0, (run.replay, run.attempt)
        before = following.began if following else float("inf")
        open_ = run.closed is None or run.how == DYING or around.excuse(run, before) is not None
        row = row + 1 if open_ else 0
        longest = max(longest, row)
    return longest
