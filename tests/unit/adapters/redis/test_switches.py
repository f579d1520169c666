"""What is read of a switch in Redis, whoever wrote it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.redis.switches import read_change, read_switch, told_person, told_switch
from angzarr.resilience.switches import Selector, SwitchAction

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
selectors = st.builds(Selector, *[st.none() | texts] * 4)
times = st.integers(0, 10**13)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
odd_entries = st.fixed_dictionaries(
    {},
    optional={
        "selector": json_values | st.dictionaries(st.sampled_from(Selector._fields), json_values),
        "action": json_values | st.sampled_from(SwitchAction),
        "by": json_values,
        "reason": json_values,
    },
)


@given(selectors, st.sampled_from(SwitchAction), texts, texts, times, st.none() | times)
def test_what_is_told_is_read_as_it_was(selector, action, by, reason, at, ends):
    said = told_switch(selector, action, by, reason)
    assert said.isascii()
    switch = read_switch(selector.id, f"{at} {ends or 0} {said}")
    assert (switch.selector, switch.action, switch.by) == (selector, action, by)
    assert (switch.reason, switch.understood) == (reason, True)
    assert switch.at == datetime.fromtimestamp(at / 1000, UTC)
    assert switch.until == (datetime.fromtimestamp(ends / 1000, UTC) if ends else None)
    assert read_switch("another", f"{at} 0 {said}") is None


@given(st.text() | odd_entries.map(json.dumps), st.text())
def test_whatever_is_written_there_is_read_or_left(text, id_):
    for told in (text, f"1000 0 {text}", f"{text} 0 {{}}"):
        switch = read_switch(id_, told)
        assert switch is None or switch.id == id_
        fields = {"switch": id_, "before": told, "after": told, "said": text}
        assert read_change("1-0", fields) is None or switch is not None


@given(selectors, odd_entries)
def test_whom_it_means_being_known_it_is_as_said_or_a_pause(selector, said):
    entry = {"by": "ada", "reason": "", **said, "selector": selector.named}
    switch = read_switch(selector.id, f"1000 0 {json.dumps(entry)}")
    if isinstance(entry["by"], str) and isinstance(entry["reason"], str):
        assert switch.selector == selector
        dropped = entry.get("action") == "drop"
        assert switch.action is (SwitchAction.DROP if dropped else SwitchAction.PAUSE)


@given(selectors, texts, texts)
def test_a_change_is_read_as_it_was_written(selector, by, reason):
    switch = f"1000 0 {told_switch(selector, SwitchAction.DROP, 'ada', 'why')}"
    told = {"switch": selector.id, "before": switch, "after": "", "said": told_person(by, reason)}
    change = read_change("5000-0", told)
    assert (change.selector, change.word) == (selector, "resume")
    assert (change.by, change.reason) == (by, reason)
    assert change.before.reason == "why"
    assert change.at == datetime.fromtimestamp(5, UTC)
