"""Commands that are kept beside a decision are read as they were written."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from angzarr.aggregates.book import Address
from angzarr.aggregates.command import Command, MergeStrategy, Origin
from angzarr.events.event import Event, Priority
from angzarr.sagas.outbox import read_commands, written_commands

_text = st.text(st.characters(codec="utf-8"), max_size=8)
_maybe = st.none() | _text
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
)
_events = st.builds(
    Event, id=_text, type=_text, data=_json, domain=_maybe, root=_maybe, edition=_maybe,
    sequence=st.none() | st.integers(0, 99), correlation_id=_maybe, causation_id=_maybe,
    tenant_id=_maybe, priority=st.sampled_from(Priority), traceparent=_maybe,
    config_pins=st.dictionaries(_text, _text, max_size=2), depth=st.integers(0, 99),
    occurred_at=st.none() | st.datetimes(timezones=st.just(UTC)),
)  # fmt: skip
_origins = st.builds(
    Origin, saga=_text, source=st.builds(Address, _text, _text, _text),
    sequence=st.integers(0, 99),
)  # fmt: skip
_commands = st.builds(
    Command, event=_events, origin=st.none() | _origins,
    merge=st.none() | st.sampled_from(MergeStrategy),
)  # fmt: skip


@given(st.lists(_commands, max_size=3))
def test_commands_are_read_as_they_were_written(commands):
    kept = json.loads(json.dumps(written_commands(commands)))
    assert read_commands(kept) == tuple(commands)


def test_nothing_kept_is_no_command():
    assert read_commands(None) == ()
    assert written_commands([]) == []


def test_data_stays_as_it_is():
    """It is JSON: what looks like a time or a number is the text that it was."""
    data = {"at": "2026-01-01T00:00:00Z", "n": "1", "x": 1.5, "none": None}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    (read,) = read_commands(
        written_commands([Command(event=Event(id="c", type="t", data=data, occurred_at=at))])
    )
    assert (read.event.data, read.event.occurred_at) == (data, at)
