"""The chart's README is made of its values, and each value is described, checked and used."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys

import pytest
import yaml

from chart.rendering import CHART, CHECKOUT

WRITER = CHECKOUT / "charts" / "write_readme.py"


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("write_readme", WRITER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_values_say():
    ended = subprocess.run(
        [sys.executable, WRITER, "--check"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_page_that_is_behind_is_found(writer, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(writer, "README", tmp_path / "README.md")
    (tmp_path / "README.md").write_text(writer.render().replace("| `app` |", "| `ape` |"))
    assert writer.main(["--check"]) == 1
    assert "run python charts/write_readme.py" in capsys.readouterr().out
    assert writer.main([]) == 0
    assert writer.main(["--check"]) == 0


def test_a_value_that_nobody_described_is_found(writer):
    with pytest.raises(writer.Undescribed, match=r"a\.c"):
        list(writer.read_values("a:\n  # -- Told.\n  b: 1\n  c: 2\n"))


def test_a_description_may_have_several_lines(writer):
    (found,) = writer.read_values("# Not this.\n\n# -- One\n# two.\na: [1]\n")
    assert found == ("a", "One two.", [1])


def test_every_value_is_used_by_a_template(writer):
    text = "".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
    for one in writer.read_values((CHART / "values.yaml").read_text()):
        name = one.path.rpartition(".")[2]
        alert = name[0].isupper()  # looked up by the name in files/alerts.yaml
        assert alert or re.search(rf"\b{name}\b", text), one.path


def leaves(values, schema, defs, path=()):
    """Yield every value with whether the schema names it."""
    for key, value in values.items():
        known = _properties(schema, defs)
        yield (*path, key), key in known or not known
        if isinstance(value, dict) and value and key in known:
            yield from leaves(value, known[key], defs, (*path, key))


def _properties(schema, defs):
    found = dict(schema.get("properties", {}))
    if "$ref" in schema:
        found = _properties(defs[schema["$ref"].rpartition("/")[2]], defs) | found
    return found


def test_every_default_is_named_by_the_schema():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    unknown = [
        ".".join(path) for path, known in leaves(values, schema, schema["$defs"]) if not known
    ]
    assert unknown == []


def test_the_chart_is_of_this_release():
    import angzarr

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == angzarr.__version__
