from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from angzarr.adapters.files.spool_file import letters_among, name_of
from angzarr.adapters.files.whole_files import unfinished

AT = datetime(2026, 11, 22, 8, 32, 56, 123456, tzinfo=UTC)
times = st.datetimes(datetime(2020, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ids = st.text(max_size=300)
numbers = st.integers(0, 10**8 - 1)


def test_a_name_tells_when_by_whom_how_large_and_which():
    name = name_of(AT, "9f1c03aa", 7, 2113, "2c26b46b")
    assert name == "20261122T083256.123456Z-9f1c03aa-00000007-2113-2c26b46b.letter"


@given(times, numbers, st.integers(0, 10**12), ids)
def test_every_name_is_read_back_and_fits_a_file_system(at, number, size, letter_id):
    name = name_of(at, "00ff00ff", number, size, letter_id)
    (read,) = letters_among([name])
    assert (read.name, read.at, read.size) == (name, at, size)
    assert len(name) < 255
    assert "/" not in name
    assert name.isascii()


@given(st.lists(st.tuples(times, numbers), unique=True))
def test_names_sort_by_time_then_by_number(written):
    names = [name_of(at, "00ff00ff", number, 1, "x") for at, number in written]
    assert [one.name for one in letters_among(names)] == [
        name_of(at, "00ff00ff", number, 1, "x") for at, number in sorted(written)
    ]


@given(st.text())
def test_whatever_else_lies_in_the_folder_is_no_letter(name):
    assert letters_among([name]) == []


def test_a_time_that_is_none_is_no_letter():
    assert letters_among(["20261322T083256.123456Z-9f1c03aa-00000007-2113-x.letter"]) == []


def test_what_is_being_written_is_no_letter_yet():
    assert letters_among([unfinished()]) == []
