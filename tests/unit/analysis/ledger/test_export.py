from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.ledger import letter_of, message_of
from tests.hand_clock import START

from angzarr.analysis.ledger import export
from angzarr.analysis.ledger.export import (
    FIELDS,
    Format,
    entry_json,
    entry_lines,
    json_text,
    letter_lines,
)
from angzarr.analysis.ledger.failure import Unreadable
from angzarr.dead_letters.codec import from_line
from angzarr.dead_letters.transfer import name_of
from contracts.dead_letters import a_record
from sqlite_ledger import SqliteLedger

#: What makes a spreadsheet calculate; a cell may begin with none of it, after blanks neither.
FORMULA = tuple("=+-@|%\t\r\n＝＋－＠")  # noqa: RUF001 - so they are written


@pytest.fixture
def ledger():
    return SqliteLedger()


def filed(ledger, *letters):
    return ledger.add_failed_events(letters)


def cells(entries):
    text = b"".join(entry_lines(entries, Format.CSV)).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_line_of_json_is_what_list_tells_of_an_entry(ledger):
    entries = filed(ledger, letter_of("e1"), letter_of("e2"))
    lines = list(entry_lines(entries, Format.JSONL))
    assert [json.loads(one) for one in lines] == [
        json.loads(json_text(entry_json(entry))) for entry in entries
    ]
    assert all(one.count(b"\n") == 1 and one.endswith(b"\n") for one in lines)


def test_csv_has_every_field_that_json_has(ledger):
    (entry,) = filed(ledger, letter_of("e1"))
    assert set(FIELDS) == set(entry_json(entry))
    (told,) = cells([entry])
    assert list(told) == list(FIELDS)
    assert (told["event_id"], told["occurrences"]) == ("e1", "1")
    assert told["first_failed_at"] == "2026-01-01T11:55:00+00:00"
    assert (told["status"], told["failure_class"]) == ("failed", "")


def test_csv_of_no_entries_is_its_columns():
    assert len(list(entry_lines([], Format.CSV))) == 1


@given(st.text(max_size=40) | st.builds("{}{}{}".format, st.sampled_from(["", " ", "  "]),
       st.sampled_from(FORMULA), st.text(max_size=10)))  # fmt: skip
def test_no_cell_is_a_formula_and_none_acts_on_a_terminal(said):
    (entry,) = filed(SqliteLedger(), letter_of("e1", error_message=said, explanation=""))
    (told,) = cells([entry])
    cell = told["error_message"]
    assert not cell.lstrip(" ").startswith(FORMULA)
    assert all(one.isprintable() or one in "\n\t" for one in cell)
    if said.isprintable() and not said.lstrip(" ").startswith(FORMULA):
        assert cell == said


def test_quotes_lines_and_separators_stay_in_their_cell(ledger):
    said = 'a "b", c;\n=1+1\n"'
    (entry,) = filed(ledger, letter_of("e1", error_message=said))
    (told,) = cells([entry])
    assert told["error_message"] == said


def test_letters_are_read_again_as_they_lie_in_the_ledger(ledger):
    raw = Unreadable(
        domain="order", raw=b"\xff\x00", content_type="x/y", problem="no JSON", received_at=START
    )
    letter = letter_of("e1", metadata={"x": "\u2028"})
    entries = filed(ledger, letter, raw)
    first, second = [from_line(line) for line in letter_lines(ledger, entries)]
    assert first.letter == letter
    assert (second.letter, second.raw, second.content_type) == (None, raw.raw, "x/y")
    assert (first.domain, second.domain) == ("order", "order")


def test_what_carried_a_record_of_others_is_exported_and_imported_with_it(ledger):
    raw = Unreadable(
        domain="order", raw=b"", content_type="x/y", problem="no JSON", received_at=START,
        record=a_record(),
    )  # fmt: skip
    (entry,) = filed(ledger, raw)
    [receipt] = [from_line(line) for line in letter_lines(ledger, [entry])]
    assert (receipt.record, receipt.raw) == (a_record(), b"")
    assert name_of(receipt) == raw.id == entry.letter_id


def test_an_entry_removed_meanwhile_has_no_letter(ledger):
    entries = filed(ledger, letter_of("e1"))
    assert list(letter_lines(SqliteLedger(), entries)) == []


def test_few_letters_are_in_memory_at_once_and_a_large_one_alone(ledger, monkeypatch):
    monkeypatch.setattr(export, "_BYTES_AT_ONCE", 30_000)
    sizes = [10, 10, 40_000, 10, 9_000, 9_000, 9_000]
    letters = [
        letter_of(f"e{at}", message=replace(message_of(f"e{at}"), body=b'"%s"' % (b"x" * size)))
        for at, size in enumerate(sizes)
    ]
    entries, opened, open_all = filed(ledger, *letters), [], ledger.open_all

    def watched(ids):
        opened.append(len(ids))
        return open_all(ids)

    monkeypatch.setattr(ledger, "open_all", watched)
    lines = list(letter_lines(ledger, entries))
    assert [from_line(one).letter.event.id for one in lines] == [f"e{n}" for n in range(7)]
    assert opened == [2, 1, 3, 1]
