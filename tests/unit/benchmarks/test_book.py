from __future__ import annotations

from harness import book


def test_merging_replaces_what_was_measured_again_and_keeps_the_rest(tmp_path):
    path = tmp_path / "build" / "bench.json"
    book.merge({"a": {"value": 1, "unit": "µs"}, "b": {"value": 2}}, path)

    merged = book.merge({"b": {"value": 3}}, path)

    assert merged == {"a": {"value": 1, "unit": "µs"}, "b": {"value": 3}}
    assert book.read(path) == merged
    assert [file.name for file in path.parent.iterdir()] == ["bench.json"]


def test_nothing_measured_is_an_empty_book(tmp_path):
    assert book.read(tmp_path / "bench.json") == {}
