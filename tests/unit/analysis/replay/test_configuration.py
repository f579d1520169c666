"""Replays with chosen versions: only what a letter is pinned to changes, and people see how."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.configuration import draft
from tests.contracts.ledger import letter_of, message_of

from angzarr.adapters.memory.configuration import MemoryConfigurationStore
from angzarr.analysis.ledger.failure import Failure
from angzarr.analysis.ledger.replay_options import ReplayOrder, repinned
from angzarr.analysis.replay.configuration import configuration_differences, versions_in
from angzarr.events import headers as names

PINS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123"), max_size=6)


def pinned(pins) -> Failure:
    said = names.pin_headers(pins) if pins else {}
    return letter_of(message=message_of(**said))


def order_of(chosen):
    return ReplayOrder(config=tuple(sorted(chosen.items())))


@given(PINS, PINS)
def test_only_what_is_pinned_and_chosen_changes(pins, chosen):
    letter = pinned(pins)
    sent = repinned(letter, order_of(chosen))
    assert versions_in(sent) == {name: chosen.get(name, one) for name, one in pins.items()}
    assert sent.event.config_pins in (letter.event.config_pins, versions_in(sent))
    plain = {**sent.message.headers} | names.pin_headers(pins)
    assert plain == {**letter.message.headers} | names.pin_headers(pins)
    assert replace(sent.message, headers={}) == replace(letter.message, headers={})
    assert repinned(sent, order_of(chosen)) == sent


@given(PINS, PINS)
def test_as_pinned_is_the_very_same_letter(pins, chosen):
    letter = pinned(pins)
    assert repinned(letter, ReplayOrder()) is letter
    assert repinned(letter, order_of({name: pins[name] for name in pins})) is letter


@given(st.lists(PINS, max_size=5), PINS)
def test_the_differences_are_those_that_a_replay_makes(all_pins, chosen):
    store = MemoryConfigurationStore()
    for name in "abcdef":
        for value in "123":
            store.put(draft(name, json.dumps({"value": int(value), "name": name})))
    letters = [pinned(pins) for pins in all_pins]
    found = configuration_differences(letters, chosen, store.get)
    made = [
        (name, one, chosen[name])
        for pins in all_pins
        for name, one in pins.items()
        if chosen.get(name, one) != one
    ]
    assert {(one.id, one.before, one.after): one.events for one in found} == {
        key: made.count(key) for key in made
    }
    for one in found:
        (change,) = one.changes
        assert (change.pointer, change.before, change.after) == ("/value", one.before, one.after)


def test_the_same_value_under_another_name_is_said():
    store = MemoryConfigurationStore()
    for name in ("x", "y"):
        store.put(draft("a", "1", version=name))
    (one,) = configuration_differences([pinned({"a": "x"})], {"a": "y"}, store.get)
    assert list(one.lines()) == ["configuration a: x → y", "  the same value"]
    (gone,) = configuration_differences([pinned({"a": "z"})], {"a": "y"}, store.get)
    assert list(gone.lines())[1] == "  version z is not in the store any more"
