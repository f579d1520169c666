"""The app that the commands of these tests work on."""

from __future__ import annotations

import sys

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
