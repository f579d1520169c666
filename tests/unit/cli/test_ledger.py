"""angzarr ledger export: entries and letters as lines, in a new file that is whole."""

from __future__ import annotations

import csv
import json
import threading
from contextlib import contextmanager, suppress

import click
import pytest
from tests.contracts.ledger import letter_of

from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.cli import ledger as ledger_export
from angzarr.cli.ledger import new_file
from angzarr.dead_letters.codec import from_line
from angzarr.errors import LedgerUnavailable


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "entries"


@pytest.fixture
def filed(ledger):
    return ledger.add_failed_events([letter_of(f"e{n}") for n in range(5)])


def export(run, *options):
    result = run("ledger", "export", *options)
    assert result.exit_code == 0, result.output
    return result


def test_entries_are_written_as_lines_of_json(run, out, filed):
    result = export(run, "--to", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {one["id"] for one in lines} == {one.id for one in filed}
    assert "exported 5 entries" in result.stderr
    assert out.stat().st_mode & 0o777 == 0o600


def test_entries_are_written_as_csv_to_standard_output(run, filed):
    result = export(run, "--format", "csv")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert sorted(one["event_id"] for one in rows) == [f"e{n}" for n in range(5)]
    assert rows[0]["handler_name"] == "orders.sync"


@pytest.mark.parametrize(
    ("options", "count"),
    [(["--event", "e1"], 1), (["--status", "held"], 0), (["--limit", "2"], 2), ([], 5)],
)
def test_the_filters_are_those_of_list(run, filed, options, count):
    assert len(export(run, *options).stdout.splitlines()) == count


def test_letters_are_counted_as_they_are_written(run, out, filed, monkeypatch):
    open_all = SqlLedger.open_all

    def one_was_removed(self, ids):
        return {one: it for one, it in open_all(self, ids).items() if one != filed[0].id}

    monkeypatch.setattr(SqlLedger, "open_all", one_was_removed)
    result = export(run, "--letters", "--to", str(out))
    assert len(out.read_bytes().splitlines()) == 4
    assert "exported 4 letters; removed meanwhile: 1" in result.stderr


def test_letters_can_be_imported_again(app, run, out, filed, tmp_path):
    export(run, "--letters", "--to", str(out))
    folder = tmp_path / "spool"
    imported = run("dlq", "import", str(out), "--to", f"spool://{folder}")
    assert "imported 5 letters" in imported.output
    again = run("dlq", "export", "--from", f"spool://{folder}", "--domain", "order")
    back = [from_line(line.encode()).letter for line in again.stdout.splitlines()]
    assert {one.id for one in back} == {one.letter_id for one in filed}
    assert {one.event.id for one in back} == {f"e{n}" for n in range(5)}


def test_letters_are_no_csv(fails, filed):
    assert "JSON lines" in fails("ledger", "export", "--letters", "--format", "csv", code=2)


def test_all_pages_are_read_and_none_is_kept(run, out, filed, monkeypatch):
    """Pages of two, each asked for once what it follows was written."""
    monkeypatch.setattr("angzarr.analysis.replay.bulk_actions.LONGEST_PAGE", 2)
    get, asked = SqlLedger.get_failed_events, []

    def counted(*arguments, **options):
        asked.append(options["after"])
        return get(*arguments, **options)

    monkeypatch.setattr(SqlLedger, "get_failed_events", counted)
    export(run, "--to", str(out))
    assert len(out.read_text().splitlines()) == 5
    assert len(set(asked)) == 3


def test_a_ledger_that_goes_away_amid_it_leaves_no_half_file(run, out, filed, monkeypatch):
    monkeypatch.setattr("angzarr.analysis.replay.bulk_actions.LONGEST_PAGE", 2)
    get = SqlLedger.get_failed_events

    def goes_away(*arguments, **options):
        if options["after"]:
            raise LedgerUnavailable("the ledger is away")
        return get(*arguments, **options)

    monkeypatch.setattr(SqlLedger, "get_failed_events", goes_away)
    result = run("ledger", "export", "--to", str(out))
    assert result.exit_code == 1
    assert list(out.parent.iterdir()) == []


def test_an_export_that_is_stopped_says_so_and_leaves_nothing(fails, out, filed, monkeypatch):
    stop = threading.Event()
    stop.set()

    @contextmanager
    def stopped():
        yield stop

    monkeypatch.setattr(ledger_export, "stopped_by_signal", stopped)
    assert "stopped after 0 entries" in fails("ledger", "export", "--to", str(out))
    assert list(out.parent.iterdir()) == []


def test_a_file_that_exists_stays_as_it_is(fails, out, filed):
    out.write_text("mine")
    assert "it exists; name another" in fails("ledger", "export", "--to", str(out))
    assert out.read_text() == "mine"


EVIL = "\x1b]0;title\x07 \x9b2J \u202eeman \x7f \u2066 \U000e0001"


@pytest.mark.parametrize("options", [["--letters"], [], ["--format", "csv"]])
def test_a_terminal_is_shown_what_stands_in_letters_and_obeys_none(
    run, ledger, monkeypatch, options
):
    ledger.add_failed_event(letter_of("e1", error_message=EVIL))
    piped = export(run, *options).stdout_bytes
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    shown = export(run, *options).stdout_bytes.decode()
    assert all(one.isprintable() or one in "\n\t" for one in shown)
    assert ("\u202e".encode() in piped) is (options == ["--letters"])
    if "csv" not in options:
        assert json.loads(shown) == json.loads(piped)
    if options == ["--letters"]:
        assert from_line(shown.encode()).letter.error_message == EVIL


def test_what_a_letter_says_does_not_reach_a_terminal_by_an_error(run, ledger, monkeypatch):
    def refuse(*_arguments, **_options):
        raise click.ClickException(f"it says {EVIL}")

    monkeypatch.setattr(ledger_export, "in_status", refuse)
    result = run("ledger", "export")
    assert result.exit_code == 1
    assert "it says" in result.output
    assert all(one.isprintable() or one in "\n\t" for one in result.output)


# -- new file ------------------------------------------------------------------------------------


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
