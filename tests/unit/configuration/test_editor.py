"""The editor: schemas that go on, values that break theirs, references that are not fetched."""

from __future__ import annotations

import json

import pytest

from angzarr.adapters.jsonschema.checker import JsonSchemaChecker
from angzarr.adapters.memory.configuration import MemoryConfigurationStore
from angzarr.configuration.editor import ConfigurationEditor
from angzarr.errors import (
    ConfigurationUnfit,
    ConfigurationVersionExists,
    ConfigurationVersionMissing,
)
from hand_clock import START, HandClock

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"net": {"type": "array", "items": {"$ref": "#/$defs/price"}}},
        "additionalProperties": False,
        "$defs": {"price": {"type": "string", "pattern": r"^\d+\.\d\d$"}},
    }
)


@pytest.fixture
def editor():
    return ConfigurationEditor(
        store=MemoryConfigurationStore(), checker=JsonSchemaChecker, clock=HandClock()
    )


def test_a_version_has_its_author_its_time_and_its_note(editor):
    answer = editor.put("pricing", '{ "net": [] }', author="ada", note="first")
    act = answer.version.info.act
    assert (act.author, act.at, act.note) == ("ada", START, "first")
    assert editor.get("pricing").body.value == '{"net":[]}'


def test_the_schema_of_the_version_before_goes_on(editor):
    editor.put("pricing", '{"net": ["1.10"]}', schema=SCHEMA, author="ada")
    with pytest.raises(ConfigurationUnfit, match="breaks its schema at /net/1: '2' does not match"):
        editor.put("pricing", '{"net": ["1.10", "2"]}', author="ada")
    editor.put("pricing", '{"net": ["2.00"]}', author="ada")
    assert editor.get("pricing").schema == json.loads(SCHEMA)
    assert [one.version for one in editor.store.versions("pricing")] == ["1", "2"]


def test_a_version_may_drop_its_schema(editor):
    editor.put("pricing", "{}", schema=SCHEMA, author="ada")
    assert editor.put("pricing", "{}", author="ada", no_schema=True).version.schema is None
    assert editor.put("pricing", "[1]", author="ada").version.version == "3"
    with pytest.raises(ConfigurationUnfit, match="give one of the two"):
        editor.put("pricing", "[1]", schema="{}", no_schema=True, author="ada")


def test_to_put_a_named_version_again_needs_no_schema_again(editor):
    editor.put("pricing", "{}", schema=SCHEMA, version="a", author="ada")
    editor.put("pricing", "[1]", no_schema=True, version="b", author="ada")
    assert not editor.put("pricing", "{}", version="a", author="eve").fresh
    with pytest.raises(ConfigurationVersionExists):
        editor.put("pricing", '{"net": []}', version="a", author="ada")


def test_the_schema_that_goes_on_is_that_of_the_last_put_not_of_the_chosen(editor):
    editor.put("pricing", "{}", schema=SCHEMA, author="ada")
    editor.put("pricing", "[1]", no_schema=True, author="ada")
    editor.choose("pricing", "1", author="ada")
    assert editor.put("pricing", "[2]", author="ada").version.schema is None


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("[]", "must be a JSON object"),
        ("nonsense", "the schema is not JSON"),
        ('{"type": "objekt"}', "not a JSON schema: at /type"),
        ('{"$ref": "http://127.0.0.1:1/prices.json"}', "refers to http://127.0.0.1:1/prices.json"),
        ('{"items": {"$ref": "file:///etc/passwd"}}', "refers to file:///etc/passwd, which is not"),
        ('{"properties": {"a": {"$ref": "other.json#/a"}}}', "refers to other.json#/a"),
    ],
)
def test_what_is_no_schema_or_refers_elsewhere_is_refused(editor, schema, told):
    with pytest.raises(ConfigurationUnfit, match=told):
        editor.put("pricing", '{"a": 1}', schema=schema, author="ada")
    assert editor.store.ids() == []


def test_a_reference_that_leads_nowhere_is_refused(editor):
    with pytest.raises(ConfigurationUnfit, match="refers to /\\$defs/none, which it does not have"):
        editor.put("pricing", "1", schema='{"$ref": "#/$defs/none"}', author="ada")


def test_a_reference_without_end_is_refused(editor):
    with pytest.raises(ConfigurationUnfit, match="without end"):
        editor.put("pricing", "1", schema='{"$ref": "#"}', author="ada")


def test_no_checker_is_opened_where_there_is_no_schema():
    def refuse():
        raise AssertionError

    plain = ConfigurationEditor(store=MemoryConfigurationStore(), checker=refuse, clock=HandClock())
    assert plain.put("pricing", "1", author="ada").fresh


def test_what_is_not_there_is_missing(editor):
    for version in (None, "3"):
        with pytest.raises(ConfigurationVersionMissing):
            editor.get("pricing", version)
