"""A pytest plugin under which Celery's canvas tests meet an angzarr app instead of Celery's.

Tests that celery_canvas.toml lists must fail, and each line of it must name a test that is there.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import celery.contrib.testing.tasks  # noqa: F401 - the ping by which a worker shows that it is up
import pytest
from celery.contrib.testing import app as testing

from angzarr import Angzarr

LIST = Path(__file__).with_name("celery_canvas.toml")


def pytest_configure() -> None:
    if os.environ.get("CANVAS_APP") != "celery":
        testing.TestApp = an_app


@pytest.hookimpl(tryfirst=True)  # before any test is deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = tomllib.loads(LIST.read_text(encoding="utf-8")).values()
    reasons, seen = {test: _mark(one) for one in groups for test in one["tests"]}, set()
    for item in items:
        name = item.nodeid.partition("::")[2]
        key = name if name in reasons else name.partition("[")[0]
        if key in reasons:
            seen.add(key)
            item.add_marker(reasons[key])
    if gone := reasons.keys() - seen:
        msg = f"{LIST.name} names tests that are not there: {', '.join(sorted(gone))}"
        raise pytest.UsageError(msg)


def _mark(group: Mapping[str, Any]) -> pytest.MarkDecorator:
    if group.get("skip"):
        return pytest.mark.skip(reason=group["why"])
    return pytest.mark.xfail(reason=group["why"], strict=True)


def an_app(name: str = "canvas", config: Mapping[str, Any] | None = None, **more: Any) -> Angzarr:
    """Return an app with the settings of Celery's tests, as their own fixture makes one."""
    settings = {key: value for key, value in (config or {}).items() if "cassandra" not in key}
    made = Angzarr(
        name,
        set_as_current=more.get("set_as_current", False),
        broker=settings.pop("broker_url"),
        backend=settings.pop("result_backend"),
        store=os.environ["CANVAS_STORE"],
        dlq={"backend": "none", "accept_loss": True},
        # Tests of failures fail 42 tasks at once, which would be held as a wave.
        poison_wave={"enabled": False},
    )
    made.conf.update(settings)
    return made
