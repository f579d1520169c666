"""Events: names that every backend carries, digests and ids that are the same everywhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import InvalidDomainName
from angzarr.events.event import (
    MAX_DOMAIN_LENGTH,
    Event,
    Priority,
    canonical_json,
    check_domain,
    digest,
    task_id_for,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(st.from_regex(r"\A[a-z][a-z0-9.-]{0,63}\Z"))
def test_a_domain_of_our_alphabet_is_taken_as_it_is(name):
    assert check_domain(name) == name


@given(st.text())
def test_a_domain_is_taken_if_and_only_if_it_is_of_our_alphabet(name):
    fits = re.fullmatch(r"[a-z][a-z0-9.-]*", name) and len(name) <= MAX_DOMAIN_LENGTH
    if fits:
        assert check_domain(name) == name
    else:
        with pytest.raises(InvalidDomainName, match="cannot be used"):
            check_domain(name)


@pytest.mark.parametrize("name", ["order\n", "a" * 65, "Order", "é", ""])
def test_what_a_backend_would_cut_or_refuse_is_refused(name):
    with pytest.raises(InvalidDomainName):
        check_domain(name)


@given(JSON)
def test_canonical_json_says_the_same_and_is_utf_8(value):
    assert json.loads(canonical_json(value).decode("utf-8", "surrogatepass")) == value


@given(st.dictionaries(st.text(), JSON, min_size=2))
def test_the_order_of_keys_does_not_change_a_digest(value):
    assert digest(dict(reversed(value.items()))) == digest(value)


@given(JSON, JSON)
def test_two_values_share_a_digest_only_if_their_json_is_the_same(one, other):
    same = canonical_json(one) == canonical_json(other)
    assert (digest(one) == digest(other)) is same


def test_a_lone_surrogate_has_a_digest():
    assert len(digest({"\ud800": "\udfff"})) == 64


def test_a_digest_never_changes_between_releases_or_processes():
    """Pinned: a new value would make every waiting message a new event."""
    value = {"b": [1, 2.5, None, True], "a": "ü"}
    assert canonical_json(value) == '{"a":"ü","b":[1,2.5,null,true]}'.encode()
    assert digest(value) == "5cffe7b2256261270211e66d136e0fc423a603024179f1fb99fe31e771368b2f"
    program = (
        "from angzarr.events.event import digest, task_id_for;"
        "print(digest({'b': [1, 2.5, None, True], 'a': 'ü'}), task_id_for('e', 'h'))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONUTF8": "1"},
    ).stdout.split()  # fmt: skip
    assert told == [digest(value), task_id_for("e", "h")]


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_task_id_belongs_to_one_event_and_handler(event_id, handler):
    first = task_id_for(event_id, handler)
    assert first == task_id_for(event_id, handler)
    assert first != task_id_for(event_id + "x", handler)
    assert first != task_id_for(event_id, handler + "x")


def test_an_event_cannot_be_changed():
    event = Event(id="e", type="t", data={})
    with pytest.raises(AttributeError):
        event.id = "other"
    assert event.priority is Priority.DEFAULT
