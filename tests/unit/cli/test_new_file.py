from __future__ import annotations

from contextlib import suppress

import click
import pytest

from angzarr.cli.ledger import new_file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.csv"


def names(path):
    return [one.name for one in path.parent.iterdir()]


def test_a_file_has_its_name_once_it_is_whole(path):
    with new_file(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        file.write(b" and half")
    assert path.read_bytes() == b"half and half"
    assert names(path) == ["out.csv"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_breaks_off_leaves_nothing(path):
    with suppress(KeyError), new_file(path) as file:
        file.write(b"half")
        raise KeyError
    assert names(path) == []


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_somebody_else_made_is_never_replaced(path, monkeypatch, links):
    if not links:
        monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    with pytest.raises(click.ClickException, match="it exists by now"), new_file(path):
        path.write_bytes(b"theirs")
    with pytest.raises(click.ClickException, match="it exists; name another"), new_file(path):
        pytest.fail("it was opened")
    assert path.read_bytes() == b"theirs"
    assert names(path) == ["out.csv"]


def refuse(*_):
    raise OSError(95, "Operation not supported")


def test_a_file_system_without_links_has_new_files_too(path, monkeypatch):
    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    with new_file(path) as file:
        file.write(b"all")
    assert path.read_bytes() == b"all"
    assert names(path) == ["out.csv"]


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path):
    gone = tmp_path / "gone" / "out"
    with pytest.raises(click.ClickException, match="cannot be written: No such"), new_file(gone):
        pytest.fail("it was opened")
