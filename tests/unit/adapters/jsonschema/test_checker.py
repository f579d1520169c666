"""A schema that would take years or all memory, or breaks the library, is refused in a line."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from angzarr.adapters.jsonschema.checker import JsonSchemaChecker
from angzarr.adapters.jsonschema.child import answer_to
from angzarr.errors import ConfigurationError, ConfigurationUnfit

#: What ``(a+)+$`` splits in 2**60 ways.
LONG = "a" * 60 + "!"
ENDLESS = "(a+)+$"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def refused(value, schema, **limits):
    with pytest.raises(ConfigurationUnfit) as raised:
        JsonSchemaChecker(**limits).check(value, schema)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def fans_out(levels, keyword, last):
    """A schema whose references to the next level double at each level."""
    parts = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": parts | {f"d{levels}": last}}


@pytest.mark.parametrize(
    ("value", "schema", "at"),
    [
        (LONG, {"pattern": ENDLESS}, "pattern '(a+)+$'"),
        ([{"x": LONG}], {"items": {"properties": {"x": {"pattern": ENDLESS}}}}, "pattern"),
        ({LONG: 1}, {"patternProperties": {ENDLESS: {}}}, "patternProperties '(a+)+$'"),
        ({LONG: 1}, {"propertyNames": {"pattern": ENDLESS}}, "pattern '(a+)+$'"),
        (LONG, {"$ref": "#/$defs/x", "$defs": {"x": {"pattern": ENDLESS}}}, "pattern '(a+)+$'"),
        (LONG, {"$schema": DRAFT_4, "pattern": ENDLESS}, "pattern '(a+)+$'"),
        (LONG, {"format": "regex", "pattern": "^(a|aa)+$"}, "pattern '^(a|aa)+$'"),
        (1, fans_out(60, "allOf", {}), ""),
    ],
)
def test_a_check_without_end_is_stopped_and_names_the_keyword(value, schema, at):
    told = refused(value, schema, seconds=1)
    assert told.startswith("the schema takes more than 1 s or 1,024 MiB to check, at ")
    assert f"at {at}" in told


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses a bound on memory")
def test_a_check_that_eats_memory_is_stopped():
    schema = {"anyOf": [fans_out(60, "anyOf", {"type": "array"}), True]}
    schema |= {"$defs": schema["anyOf"][0].pop("$defs")}
    told = refused("x" * 100_000, schema, seconds=600, memory=256 << 20)
    assert told.startswith("the schema takes more than 600 s or 256 MiB to check")


def test_a_check_that_hears_no_alarm_is_ended_by_the_kernel(monkeypatch):
    """As in code of C that never comes back to Python."""
    deaf = (
        "import runpy, signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF]);"
        " runpy.run_module('angzarr.adapters.jsonschema.child', run_name='__main__')"
    )

    def run(command, **options):
        return real([*command[:2], "-c", deaf, *command[-2:]], **options)

    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", run)
    told = refused(LONG, {"pattern": ENDLESS}, seconds=0.5)
    assert told.startswith("the schema takes more than 0.5 s")


def test_a_check_that_is_killed_is_said_to_lack_memory(monkeypatch):
    def run(command, **_options):
        return subprocess.CompletedProcess(command, -signal.SIGKILL, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConfigurationError, match="was killed, perhaps for want of memory"):
        JsonSchemaChecker().check(1, {})


@pytest.mark.parametrize("dialect", [DRAFT_4, "https://json-schema.org/draft/2020-12/schema"])
@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(", r"'\(' is not a 'regex'|not a regular expression: missing"),
        ("a{99999999999999}", "not a regular expression: the repetition number is too large"),
        ("(" * 5_000 + ")" * 5_000, "a pattern with too many brackets"),
    ],
)
@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_a_pattern_that_python_cannot_read_is_refused(dialect, pattern, told, keyword):
    wanted = pattern if keyword == "pattern" else {pattern: {}}
    with pytest.raises(ConfigurationUnfit, match=told):
        JsonSchemaChecker().check({"a": "a"}, {"$schema": dialect, keyword: wanted})


@pytest.mark.parametrize("dialect", [5, ["a"], {}, None])
def test_a_dialect_that_is_no_uri_is_refused(dialect):
    assert "at /$schema: give a URI" in refused(1, {"$schema": dialect})


def test_patterns_that_end_are_checked():
    schema = {"type": "array", "items": {"pattern": r"^([a-z]+\.)+[a-z]+$"}}
    JsonSchemaChecker().check(["a.example", "b.c.example"], schema)
    assert refused(["nodot"], schema) == (
        "the value breaks its schema at /0: 'nodot' does not match '^([a-z]+\\\\.)+[a-z]+$'"
    )


def test_a_value_keeps_every_character_on_its_way(tmp_path, monkeypatch):
    (tmp_path / "resource.py").write_text("raise SystemExit(7)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    odd = 'ä\ud800\u2028\x00"\N{GRINNING FACE}'
    JsonSchemaChecker().check({odd: odd}, {"const": {odd: odd}})


def test_a_process_that_cannot_start_is_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ConfigurationError, match=r"failed: .*No such file.*: nothing was put"):
        JsonSchemaChecker().check(1, {})


def test_a_process_that_breaks_is_one_sentence(monkeypatch):
    monkeypatch.setattr("angzarr.adapters.jsonschema.checker._CHILD", "angzarr.nowhere")
    with pytest.raises(ConfigurationError, match=r"failed: .*No module named angzarr\.nowhere"):
        JsonSchemaChecker().check(1, {})


def test_the_answer_is_empty_or_says_what_is_wrong():
    assert answer_to(1, {}) == {}
    assert answer_to(1, {"type": "string"}) == {
        "unfit": "the value breaks its schema at (all): 1 is not of type 'string'"
    }
