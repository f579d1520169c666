"""The page that teaches the fixtures: every sample of it runs, in the order in which it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import angzarr.testing

CHECKOUT = Path(__file__).resolve().parents[3]
PAGE = CHECKOUT / "docs" / "how-to" / "test-your-handlers.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    return [text for kind, text in _BLOCK.findall(page.read_text()) if kind == language]


def test_every_sample_of_the_page_runs_as_it_stands(tmp_path):
    conftest, *tests = blocks(PAGE, "python")
    assert conftest.startswith("# conftest.py\n")
    (ini,) = blocks(PAGE, "ini")
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "pytest.ini").write_text(ini.split("\n", 1)[1])
    (tmp_path / "orders.py").write_text(blocks(CHECKOUT / "README.md", "python")[0])
    (tmp_path / "test_orders.py").write_text("\n\n".join(tests))
    ours = ("ANGZARR_", "CELERY_", "AWS_", "PYTEST_", "PYTHONPATH", "CI")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout
    assert f"{len(re.findall(r'def test_', ''.join(tests)))} passed" in told.stdout


@pytest.mark.parametrize("page", [PAGE, CHECKOUT / "README.md"], ids=["page", "readme"])
def test_what_the_samples_import_is_installed_by_the_pages_own_command(page):
    ours = {"angzarr", "orders", "pydantic", "pytest"}  # ours, and what we bring
    imported = re.findall(
        r"^(?:from|import) (\w+)", "\n".join(blocks(page, "python")), re.MULTILINE
    )
    others = set(imported) - ours - set(sys.stdlib_module_names)
    (command,) = re.findall(r"^pip install .*", page.read_text(), re.MULTILINE)
    assert others <= set(command.partition("#")[0].split()), others


def test_every_fixture_and_verb_is_on_the_page():
    page = PAGE.read_text()
    fixtures = {name for name in angzarr.testing.__all__ if name.islower()} - {"pytest_addoption"}
    assert sorted(name for name in fixtures if f"`{name}`" not in page and name != "given") == []
    verbs = [name for name in vars(angzarr.testing.InProcessWorker) if not name.startswith("_")]
    assert sorted(name for name in verbs if name not in page) == []


def test_every_public_name_of_testing_is_listed():
    page = (CHECKOUT / "docs" / "reference" / "public-api.md").read_text()
    names = set(angzarr.testing.__all__) - {"pytest_addoption"}
    assert sorted(name for name in names if f"`{name}`" not in page) == []
    assert sorted(name for name in names if not hasattr(angzarr.testing, name)) == []
