from __future__ import annotations

import json

from harness import book


def test_merging_replaces_what_was_measured_again_and_keeps_the_rest(tmp_path):
    path, copy = tmp_path / "build" / "bench.json", tmp_path / "record.json"
    book.merge({"a": {"value": 1, "unit": "µs"}, "b": {"value": 2}}, path, copy)

    merged = book.merge({"b": {"value": 3}}, path, copy)

    assert merged == {"a": {"value": 1, "unit": "µs"}, "b": {"value": 3}}
    assert book.read(path, copy) == merged
    assert [file.name for file in path.parent.iterdir()] == ["bench.json"]


def test_a_new_checkout_begins_with_what_was_measured_before(tmp_path):
    path, copy = tmp_path / "bench.json", tmp_path / "record.json"
    book.merge({"a": {"value": 1}}, path, copy)
    path.unlink()
    assert book.merge({"b": {"value": 2}}, path, copy) == {"a": {"value": 1}, "b": {"value": 2}}


def test_what_came_to_the_copy_since_is_kept(tmp_path):
    path, copy = tmp_path / "bench.json", tmp_path / "record.json"

    def measured(value, day):
        return {"value": value, "detail": {"measured_at": f"2026-11-{day}T10:00:00+00:00"}}

    book.merge({"a": measured(1, 10), "b": measured(1, 10)}, path, copy)
    theirs = {"a": measured(2, 20), "b": measured(2, "09"), "c": measured(3, 20)}
    copy.write_text(json.dumps(theirs))
    merged = book.merge({"d": measured(4, 21)}, path, copy)
    assert {key: one["value"] for key, one in merged.items()} == {"a": 2, "b": 1, "c": 3, "d": 4}


def test_nothing_measured_is_an_empty_book(tmp_path):
    assert book.read(tmp_path / "bench.json", tmp_path / "record.json") == {}


def test_the_copy_in_the_repository_is_what_the_page_shows():
    from figures import FIGURES
    from harness import report

    import page

    written = report.REPORT.read_text(encoding="utf-8")
    assert page.render(book.read(book.COPY), FIGURES.values()) == written
