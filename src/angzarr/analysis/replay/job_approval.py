"""Job approval: which replay jobs a second person must approve (spec A5). Pure.

Who begins many small jobs has begun a large one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from angzarr.analysis.replay.auto_replay_rules import AUTOMATIC
from angzarr.analysis.replay.job import ENDED, JobStatus, ReplayJob
from angzarr.analysis.replay.job_edit import JobEdit

#: How long a job that ended counts beside others of the person who began it.
ADDED_UP: Final = timedelta(days=1)
#: Who acts in a dashboard without tokens: whoever sits at its machine, so it may be anybody.
LOCAL: Final = "local"
#: A job of fewer entries never waits because of their number.
_MANY: Final = 2


def waits_for(
    total: int,
    besides: int,
    approval_over: int | None,
    edit: JobEdit | None = None,
    elsewhere: str = "",
) -> str:
    """Say why a job of *total* entries waits for a second person, or nothing.

    One entry never does but for its *edit*, or for where it is sent *elsewhere*, if that is given.
    """
    if total and edit is not None and edit.needs_approval:
        return "an edit: a second person must approve"
    if total and elsewhere:
        return f"sent {elsewhere}: a second person must approve"
    if approval_over is None or total < _MANY or total + besides <= approval_over:
        return ""
    others = f", with {besides} of other jobs of the last day" if besides else ""
    return f"more than {approval_over} entries{others}: a second person must approve"


def others_matter(total: int, approval_over: int | None) -> bool:
    """Tell whether `besides` can change what becomes of a job of *total* entries."""
    return approval_over is not None and _MANY <= total <= approval_over


def besides(others: Iterable[ReplayJob], job: ReplayJob) -> int:
    """Count the entries that *job*'s proposer has replayed, or will, without a second person.

    Of a person: by all other jobs that are unfinished or ended within `ADDED_UP`, under any of the
    person's names. Of the automatic recovery, which goes round nobody: by unfinished ones over the
    same group.
    """
    counted = (one for one in others if one.id != job.id and _adds_up(one, job))
    return sum(one.total - one.refused if one.ended_at is None else one.sent for one in counted)


def _adds_up(one: ReplayJob, job: ReplayJob) -> bool:
    if one.approved_by or one.status is JobStatus.PROPOSED:
        return False
    if AUTOMATIC in (one.created_by, job.created_by):
        same = (one.created_by, one.group) == (job.created_by, job.group)
        return same and one.status not in ENDED
    lately = one.ended_at is None or one.ended_at > job.created_at - ADDED_UP
    return lately and same_person(one.created_by, job.created_by)


def same_person(one: str, other: str) -> bool:
    """Tell whether two names may be one person's: before an ``@`` they have the same login name.

    A person is ``ada@host`` at a terminal, and what his token says in the dashboard. `LOCAL` may be
    any of them.
    """
    return _login(one) == _login(other) or is_anybody(one) or is_anybody(other)


def is_anybody(name: str) -> bool:
    """Tell whether *name* says of nobody who he is."""
    return _login(name) == LOCAL


def _login(name: str) -> str:
    return name.partition("@")[0].strip().casefold()
