"""The reader: versions are cached for ever within a bound, what is current for seconds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.contracts.configuration import act, draft

from angzarr.adapters.memory.configuration import MemoryConfigurationStore
from angzarr.configuration.reader import (
    CURRENT_FOR,
    ConfigurationReader,
    PinnedVersion,
    VersionCache,
)
from angzarr.errors import ConfigurationVersionMissing
from hand_clock import HandClock


class Counting(MemoryConfigurationStore):
    def __init__(self):
        super().__init__()
        self.asked = []

    def get(self, id, version):
        self.asked.append((id, version))
        return super().get(id, version)

    def current(self, id):
        self.asked.append(id)
        return super().current(id)


@pytest.fixture
def store():
    store = Counting()
    store.put(draft("pricing", "1"))
    store.put(draft("pricing", "2"))
    store.asked.clear()
    return store


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def reader(store, clock):
    return ConfigurationReader(store, clock)


def test_a_version_is_asked_for_once(reader, store, clock):
    for _ in range(3):
        assert reader.pinned("pricing", "1").value == 1
        clock.sleep(timedelta(days=1))
    assert store.asked == [("pricing", "1")]


def test_what_is_current_is_asked_for_again_after_seconds(reader, store, clock):
    assert reader.current("pricing").version == "2"
    asked = len(store.asked)
    store.choose("pricing", "1", act())
    store.asked.clear()
    clock.sleep(CURRENT_FOR - timedelta(milliseconds=1))
    assert reader.current("pricing").version == "2"
    assert not store.asked
    assert asked
    clock.sleep(timedelta(milliseconds=1))
    assert reader.current("pricing").version == "1"


def test_a_clock_that_is_set_back_keeps_nothing_current_for_longer(reader, store, clock):
    reader.current("pricing")
    store.put(draft("pricing", "3"))
    clock.now_ = clock.now() - timedelta(days=1)
    clock.now = lambda: clock.now_
    assert reader.current("pricing").version == "3"


def test_who_changes_it_sees_the_change_at_once(reader, store):
    reader.current("pricing")
    store.put(draft("pricing", "3"))
    reader.forget_current()
    assert reader.current("pricing").value == 3


def test_no_other_version_stands_in_for_a_missing_one(reader):
    with pytest.raises(ConfigurationVersionMissing, match="version '9' of configuration 'pricing'"):
        reader.pinned("pricing", "9")
    with pytest.raises(ConfigurationVersionMissing, match="'tax' has no version: put one"):
        reader.current("tax")


@pytest.mark.parametrize("name", ["", "a b", "\0", "\ud800", "x" * 101])
def test_names_that_cannot_be_are_not_asked_for(reader, store, name):
    for read in (
        lambda: reader.pinned(name, "1"), lambda: reader.pinned("pricing", name),
        lambda: reader.current(name),
    ):  # fmt: skip
        with pytest.raises(ConfigurationVersionMissing) as refused:
            read()
        assert str(refused.value).isprintable()
    assert not store.asked


def test_a_missing_version_that_is_put_back_is_found(reader, store):
    with pytest.raises(ConfigurationVersionMissing):
        reader.pinned("pricing", "a")
    store.put(draft("pricing", "7", version="a"))
    assert reader.pinned("pricing", "a").value == 7


def test_the_cache_keeps_what_was_read_last_within_its_bytes():
    cache = VersionCache(most=10_000)
    for number in range(50):
        cache.keep(PinnedVersion("pricing", str(number), "x" * 1000))
        assert cache.get("pricing", "0") is not None
        assert cache.size <= 10_000
    kept = [n for n in range(50) if cache.get("pricing", str(n)) is not None]
    assert kept == [0, *range(44, 50)]


def test_what_is_larger_than_the_cache_is_not_kept():
    cache = VersionCache(most=1000)
    cache.keep(PinnedVersion("pricing", "1", "x" * 5000))
    assert (cache.get("pricing", "1"), cache.size) == (None, 0)


def test_each_reader_gets_a_value_of_its_own(store, clock):
    store.put(draft("pricing", '{"net": [1]}'))
    reader = ConfigurationReader(store, clock)
    reader.current("pricing").value["net"].append(2)
    assert reader.current("pricing").value == {"net": [1]}
