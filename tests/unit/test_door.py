"""The package's public names, which are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import angzarr
from angzarr import aggregates, analysis, events, resilience, sagas

PACKAGES = (angzarr, aggregates, analysis, events, resilience, sagas)


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
