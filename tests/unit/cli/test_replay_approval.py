"""Replays that are sent at once obey the bound above which a job needs a second person."""

from __future__ import annotations

import click
import pytest

from angzarr.cli.dlq.replay import _check


def test_what_would_need_a_second_person_as_a_job_is_not_sent_at_once():
    with pytest.raises(click.UsageError, match="leave --now out"):
        _check(3, 2)


@pytest.mark.parametrize(("count", "over"), [(3, None), (2, 2), (1, 0), (0, 0)])
def test_what_needs_nobody_is_sent(count, over):
    _check(count, over)
