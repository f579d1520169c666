"""The app that the commands of these tests work on."""

from __future__ import annotations

import sys
from functools import partial

import pytest
from click.testing import CliRunner
from tests.unit.cli.ledger_app import FakeApp

from angzarr.cli.main import main
from apps import module_with


@pytest.fixture
def app(tmp_path, monkeypatch):
    app = FakeApp(tmp_path)
    monkeypatch.setitem(sys.modules, "shop_for_test", module_with(app=app))
    return app


@pytest.fixture
def ledger(app):
    ledger = app.open_ledger()
    yield ledger
    ledger.close()


@pytest.fixture
def run():
    def call(*arguments, **options):
        return CliRunner().invoke(main, ["-A", "shop_for_test", *arguments], **options)

    return call


@pytest.fixture
def fails(run):
    """Run a command that must end with *code* and in no traceback; return what it says."""

    def call(*arguments, code=1, **options):
        result = run(*arguments, **options)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result.output

    return call


@pytest.fixture
def works(fails):
    """Run a command that must succeed; return what it says."""
    return partial(fails, code=0)
