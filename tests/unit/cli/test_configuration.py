"""angzarr config: put, get, list, versions, history, diff, pin; each error is one sentence."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner
from tests.apps import apps

from angzarr.adapters.jsonschema.checker import JsonSchemaChecker
from angzarr.cli.main import main
from apps import module_with


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with apps(broker="memory://", store="memory://") as make:
        app = make(configuration={"url": f"sqlite:///{tmp_path / 'c.db'}"})
        monkeypatch.setitem(sys.modules, "shop_with_prices", module_with(app=app))

        def run(*arguments, code=0, text=None):
            given = ["-A", "shop_with_prices", "config", *arguments]
            result = CliRunner().invoke(main, given, input=text)
            assert result.exit_code == code, result.output
            return result.output

        yield run


def put(run, text, *arguments, **said):
    return run("put", "pricing", "-", *arguments, text=text, **said)


def test_a_value_is_put_read_and_listed(run, tmp_path):
    file = tmp_path / "prices.json"
    file.write_text('{"net": "1.10"}')
    told = run("put", "pricing", str(file), "--note", "spring", "--by", "ada")
    assert told == "pricing 1 is put, and current\n"
    assert json.loads(run("get", "pricing")) == {"net": "1.10"}
    shown = json.loads(run("get", "pricing", "--json"))
    assert {"version": "1", "by": "ada", "note": "spring", "schema": None}.items() <= shown.items()
    for table in (run("list"), run("versions", "pricing"), run("history", "pricing")):
        assert "ada" in table
        assert "spring" in table


def test_the_same_value_is_put_once(run):
    put(run, "1")
    assert put(run, " 1 ") == "pricing 1 has this value already: nothing was put\n"
    assert json.loads(put(run, "1", "--json"))["fresh"] is False


def test_a_pin_rolls_back_until_the_next_put(run):
    for value in "12":
        put(run, value)
    assert run("pin", "pricing", "1", "--note", "2 was wrong") == "pricing 1 is current\n"
    assert run("pin", "pricing", "1") == "pricing 1 is current already\n"
    assert run("get", "pricing") == "1\n"
    current = [one["version"] for one in json.loads(run("versions", "pricing", "--json"))
               if one["current"]]  # fmt: skip
    assert current == ["1"]
    assert "1 (current)" in run("versions", "pricing")
    put(run, "3")
    told = json.loads(run("history", "pricing", "--json"))
    assert [(one["version"], one["how"]) for one in told] == [
        ("3", "put"), ("1", "pinned"), ("2", "put"), ("1", "put"),
    ]  # fmt: skip


def test_a_diff_shows_what_changed_and_ends_with_1(run):
    put(run, '{"net": "1.10", "tax": 19}')
    put(run, '{"tax": 19, "net": "1.20"}')
    lines = run("diff", "pricing", "1", "2", code=1).splitlines()
    assert lines[:2] == ["--- pricing 1", "+++ pricing 2"]
    assert '-  "net": "1.10",' in lines
    assert '+  "net": "1.20",' in lines
    assert run("diff", "pricing", "1", code=1).splitlines() == lines
    assert run("diff", "pricing", "2", "2") == "2 and 2 have one value\n"
    assert json.loads(run("diff", "pricing", "1", "--json", code=1))["differs"]


def test_a_pattern_that_never_ends_is_refused_and_nothing_is_put(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "angzarr.wiring.configuration.open_checker", lambda: JsonSchemaChecker(seconds=0.2)
    )
    schema = tmp_path / "schema.json"
    schema.write_text('{"pattern": "(a+)+$"}')
    told = put(run, json.dumps("a" * 60 + "!"), "--schema", str(schema), code=1)
    assert told.startswith("Error: the schema takes more than 0.2 s or 1,024 MiB to check")
    assert "at pattern '(a+)+$': simplify it" in told
    assert run("list").startswith("no configuration was put yet")


def test_a_schema_is_kept_and_goes_on(run, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    put(run, "{}", "--schema", str(schema))
    told = put(run, "[]", code=1)
    assert told == "Error: the value breaks its schema at (all): [] is not of type 'object'\n"
    assert put(run, "[]", "--no-schema") == "pricing 2 is put, and current\n"
    both = put(run, "{}", "--no-schema", "--schema", str(schema), code=2)
    assert "--schema and --no-schema exclude each other" in both


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("put", "a b", "-"), "'a b' is not the id of a configuration"),
        (("put", "pricing", "-", "--version", "v/1"), "'v/1' is not the name of a version"),
        (("put", "pricing", "-", "--by", ""), "give an author"),
        (("put", "pricing", "-", "--note", "x" * 1001), "one printable line"),
        (("put", "pricing", "-", "--version", "1"), "version 1 of pricing has another value"),
        (("get", "pricing", "--version", "9"), "configuration 'pricing' has no version '9'"),
        (("get", "tax"), "configuration 'tax'"),
        (("versions", "tax"), "configuration 'tax' has no version: put one"),
        (("history", "tax"), "configuration 'tax' has no version: put one"),
        (("pin", "pricing", "9"), "versions pricing` lists those it has"),
        (("pin", "tax", "1"), "configuration 'tax' has no version '1'"),
        (("diff", "pricing", "1", "9"), "configuration 'pricing' has no version '9'"),
    ],
)
def test_each_error_is_one_sentence(run, arguments, told):
    put(run, "1")
    output = run(*arguments, text="2", code=1)
    assert output.startswith("Error: ")
    assert told in output
    assert len(output.splitlines()) == 1
    assert run("get", "pricing") == "1\n"


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a": 1, "a": 2}'])
def test_what_is_no_json_is_refused(run, text):
    assert "the value is not JSON" in put(run, text, code=1)
    assert run("list") == "no configuration was put yet: angzarr config put <id> <file>\n"


def test_a_terminal_obeys_nothing_that_was_put(run):
    put(run, json.dumps({"net": "\x1b[2J"}))
    put(run, "1")
    for output in (run("get", "pricing", "--version", "1"), run("diff", "pricing", "1", code=1)):
        assert "\x1b" not in output
