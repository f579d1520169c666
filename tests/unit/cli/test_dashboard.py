from __future__ import annotations

import importlib

import pytest
import yaml
from click.testing import CliRunner

from angzarr.cli.main import main
from angzarr.dashboard.access import hash_of
from angzarr.dashboard_section import DashboardSettings


@pytest.fixture
def run():
    def call(*arguments):
        return CliRunner().invoke(main, ["dashboard", *arguments])

    return call


def test_a_token_is_printed_once_and_its_hash_for_the_settings(run):
    made = run("token", "ada", "--role", "operator")
    assert made.exit_code == 0
    (known,) = yaml.safe_load(made.stderr)
    assert known["sha256"] == hash_of(made.stdout.strip())
    assert DashboardSettings(tokens=[known]).tokens[0].name == "ada"


def test_a_name_that_the_audit_could_not_show_is_refused(run):
    made = run("token", "ada; rm", "--role", "operator")
    assert made.exit_code == 1
    assert "letters, digits" in made.stderr
    assert made.stdout == ""


@pytest.mark.parametrize("package", ["fastapi", "jinja2", "uvicorn", "python_multipart"])
def test_without_its_extra_it_says_what_to_install(run, monkeypatch, package):
    real = importlib.import_module

    def missing(name, *arguments):
        if name == package:
            raise ModuleNotFoundError(name=package)
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", missing)
    answer = run("serve")
    assert answer.exit_code == 1
    assert "pip install 'angzarr-workers[dashboard]'" in answer.stderr
