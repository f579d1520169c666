"""Names, acts and rules of versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.configuration import act, draft

from angzarr.adapters.memory.configuration import MemoryConfigurationStore
from angzarr.configuration.version import (
    LONGEST_ID,
    LONGEST_NOTE,
    ConfigurationAct,
    check_id,
    check_version,
    is_name,
    next_version,
    version_missing,
)
from angzarr.errors import AngzarrError, ConfigurationUnfit, ConfigurationVersionExists

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@pytest.mark.parametrize("name", ["pricing", "Pricing.eu-2", "7", "a" * LONGEST_ID, "2026-Q1"])
def test_names_that_can_be_kept(name):
    assert check_id(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "-a", "a b", "a/b", "a:b", "ä", "a\n", "a\0", "a" * (LONGEST_ID + 1), "\ud800"],
)
def test_names_that_cannot_are_refused_in_one_printable_sentence(name):
    assert not is_name(name)
    for check in (check_id, check_version):
        with pytest.raises(ConfigurationUnfit) as refused:
            check(name)
        assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("author", "note"),
    [("", ""), ("a\nb", ""), ("a", "x\0"), ("a", "\ud800"), ("a", "n" * (LONGEST_NOTE + 1))],
)
def test_an_act_is_a_printable_line(author, note):
    with pytest.raises(ConfigurationUnfit):
        ConfigurationAct(author=author, at=act().at, note=note)


def test_what_a_queue_says_is_printable_in_the_error():
    told = str(version_missing("pri\x1b[2J" + "x" * 10_000, "\0"))
    assert told.isprintable()
    assert len(told) < 500


@given(st.integers(1, 50), st.sets(st.integers(1, 60).map(str)))
def test_the_next_name_is_the_first_free_number(number, taken):
    name = next_version(number, taken.__contains__)
    assert name not in taken
    assert int(name) >= number
    assert all(str(other) in taken for other in range(number, int(name)))


@given(st.lists(st.tuples(st.none() | NAMES, st.integers(0, 3)), max_size=30))
def test_whatever_is_put_no_version_ever_changes(puts):
    """Put by put: what was read once under a name is read under it for ever."""
    store, seen = MemoryConfigurationStore(), {}
    for version, value in puts:
        try:
            answer = store.put(draft("pricing", str(value), version=version))
        except ConfigurationVersionExists:
            assert seen[version] != str(value)
        else:
            seen.setdefault(answer.version.version, str(value))
            if answer.fresh:
                assert store.current("pricing") == answer.version
        for name, text in seen.items():
            assert store.get("pricing", name).body.value == text
    infos = store.versions("pricing")
    assert [one.number for one in infos] == list(range(1, len(infos) + 1))
    assert [one.version for one in store.choices("pricing")] == [one.version for one in infos]


def test_all_errors_are_ours():
    assert issubclass(ConfigurationUnfit, AngzarrError)
