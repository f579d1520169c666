"""The package's public names, which are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import angzarr
from angzarr import aggregates, analysis, delivery, events, resilience, sagas

#: What belongs to an analysis worker, to people and to their tools, and to no publisher or worker.
_ELSEWHERE = ("angzarr.analysis", "angzarr.cli", "angzarr.dashboard", "angzarr.doctor_probes")
#: What every process reads the settings of alerts by.
_SETTINGS_OF_ALERTS = {
    "angzarr.analysis",
    "angzarr.analysis.alerts",
    "angzarr.analysis.alerts.alert_form",
}
_APP = """
import sys
from angzarr import Angzarr

app = Angzarr("shop", broker="memory://")

@app.handler("OrderPlaced", domain="order")
def note(data, ctx):
    pass

app.publish({"id": "o-1"}, type="OrderPlaced", domain="order", root="o-1")
"""
_WORKER = """
life = app._runtime
life.check_worker("solo")
life.begin_work("solo")
life.executor()
life.end_work()
"""
_SAY_MODULES = """
print("modules:", *sys.modules)
"""

PACKAGES = (angzarr, aggregates, analysis, delivery, events, resilience, sagas)


def test_the_front_door_has_about_two_dozen_names():
    assert len(angzarr.__all__) <= 25


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in PACKAGES for name in package.__all__]
)
def test_every_public_name_can_be_imported_and_is_listed(package, name):
    assert getattr(package, name) is not None
    assert name in dir(package)


def test_a_name_is_what_its_module_says():
    from angzarr.errors import GiveUp

    assert angzarr.GiveUp is GiveUp


def test_an_unknown_name_is_refused_as_by_any_module():
    with pytest.raises(AttributeError, match="no attribute 'Celery'"):
        _ = angzarr.Celery


def test_import_alone_loads_no_dependency():
    said = subprocess.run(
        [sys.executable, "-c", "import sys, angzarr; print(sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "'angzarr'" in said
    assert not any(f"'{name}'" in said for name in ("celery", "kombu", "pydantic", "sqlalchemy"))


@pytest.mark.parametrize("program", [_APP, _APP + _WORKER], ids=["publisher", "worker"])
def test_neither_a_publisher_nor_a_worker_loads_the_analysis(program):
    said = subprocess.run(
        [sys.executable, "-c", program + _SAY_MODULES], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    last = said.stdout.splitlines()[-1]
    assert last.startswith("modules:")
    loaded = set(last.split())
    assert "angzarr.app.angzarr" in loaded
    assert {name for name in loaded if name.startswith(_ELSEWHERE)} == _SETTINGS_OF_ALERTS
    assert not loaded & {"alembic", "fastapi", "httpx", "jinja2", "uvicorn"}
