from __future__ import annotations

import copy
import json

import pytest

from angzarr.analysis.ledger import entry as newer_words
from angzarr.analysis.ledger.entry import OPEN, Status, is_known, of_newer, read_word


@pytest.fixture(autouse=True)
def _nothing_said():
    newer_words.say_newer.cache_clear()
    newer_words._newer.cache_clear()


@pytest.mark.parametrize("status", list(Status))
def test_a_word_of_this_release_is_itself(status):
    assert read_word(Status, status.value) is status
    assert is_known(status)


def test_a_newer_word_is_kept_as_it_is_and_is_none_of_ours():
    word = read_word(Status, "parked")
    assert (word, word.value, f"{word}", json.dumps(word)) == ("parked",) * 3 + ('"parked"',)
    assert not is_known(word)
    assert word not in set(Status) | OPEN
    assert read_word(Status, "parked") is word is copy.deepcopy(word)
    assert read_word(Status, "FAILED") not in set(Status)


def test_a_newer_word_may_not_be_given_by_people():
    read_word(Status, "parked")
    with pytest.raises(ValueError, match="parked"):
        Status("parked")


def test_what_is_told_of_newer_words_is_told_apart():
    parked = read_word(Status, "parked")
    assert of_newer({Status.HELD: 1, parked: 2}) == {parked: 2}


def test_a_newer_word_is_said_once_and_cut(caplog):
    for word in ("parked", "parked", "x" * 1_000):
        read_word(Status, word)
    first, second = (record.getMessage() for record in caplog.records)
    assert "newer_release: the ledger has the Status 'parked'" in first
    assert len(second) < 200
