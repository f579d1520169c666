from __future__ import annotations

import gc

import pytest

from angzarr.runtime.collector import no_collections


@pytest.fixture(autouse=True)
def enabled():
    gc.enable()
    yield
    gc.enable()


def test_nothing_is_collected_amid_the_work_and_later_as_ever():
    with no_collections():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_work_that_fails_leaves_it_on():
    with pytest.raises(ValueError, match="it fails"), no_collections():
        raise ValueError("it fails")
    assert gc.isenabled()


def test_who_turned_it_off_finds_it_off():
    gc.disable()
    with no_collections(), no_collections():
        pass
    assert not gc.isenabled()


def test_work_within_work_does_not_turn_it_on():
    with no_collections():
        with no_collections():
            pass
        assert not gc.isenabled()
