"""Facts that are deleted are in a file before, whole, once, and for its owner alone."""

from __future__ import annotations

import gzip
from datetime import timedelta

import pytest
from tests.contracts.facts import AT, a_fact

from angzarr.adapters.files.fact_exports import FactExports
from angzarr.errors import StoreUnavailable

FACTS = [a_fact(f"f{number}", at=AT + timedelta(seconds=number)) for number in range(3)]


def lines(facts):
    for fact in facts:
        yield f"{fact.id}\n".encode()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new" / "facts"


def test_a_file_has_all_of_them_in_order_and_tells_its_time(folder):
    FactExports(folder, lines).keep(FACTS)
    (file,) = folder.iterdir()
    assert file.name.startswith("facts-20260504T030201Z-")
    assert gzip.decompress(file.read_bytes()) == b"f0\nf1\nf2\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_exported_twice_is_one_file_and_what_differs_another(folder):
    for some in (FACTS, FACTS, FACTS[:2]):
        FactExports(folder, lines).keep(some)
    assert len(list(folder.iterdir())) == 2


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreUnavailable, match=r"so none is deleted: .* in facts\.export"):
        FactExports(file, lines).keep(FACTS)


def test_facts_that_cannot_be_written_as_lines_leave_no_file(folder):
    def broken(_facts):
        yield b"f0\n"
        raise LookupError("no such fact")

    with pytest.raises(LookupError):
        FactExports(folder, broken).keep(FACTS)
    assert not folder.exists()
