"""AnalysisSettings: the part that says how dead letters are analysed and replayed."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from angzarr.sections import Section, Span


class AnalysisSettings(Section):
    """How the DLQ-analysis worker replays (spec A4)."""

    max_replays: int = Field(default=3, ge=0)
    first_delay: Span = timedelta(seconds=30)
    longest_delay: Span = timedelta(hours=1)
    #: A replay that was not answered by then is held for a person.
    answer_deadline: Span = timedelta(hours=1)
