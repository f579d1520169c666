"""The app itself: what it shows to users, and that its parts use what a subclass overrides."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import Celery

from angzarr import Angzarr
from angzarr.delivery.handlers import Handlers

MOST = 25
NAMES = (
    "add_dlq_rule",
    "aggregate",
    "apublish",
    "apublish_many",
    "book",
    "breaker",
    "decider",
    "dlq_rule",
    "escalate",
    "execute",
    "execute_with_retry",
    "facts",
    "handler",
    "handlers",
    "load",
    "ops",
    "process_manager",
    "projection",
    "publish",
    "publish_many",
    "replace_dlq_classifier",
    "saga",
    "send_command",
    "settings",
    "undo",
)
PUBLIC_API = Path(__file__).parents[3] / "docs" / "reference" / "public-api.md"


@pytest.fixture
def app():
    with Angzarr("shop", broker="memory://", set_as_current=False) as app:
        yield app


def test_an_app_has_these_names_beyond_celerys(app):
    with Celery("plain", set_as_current=False) as plain:
        own = set(dir(app)) - set(dir(plain))
    assert sorted(name for name in own if not name.startswith("_")) == sorted(NAMES)
    assert len(NAMES) <= MOST


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_in_the_public_api(name):
    assert f"app.{name}" in PUBLIC_API.read_text()


def test_names_of_parts_have_their_texts_and_arguments(app):
    assert "every handler of its type" in app.publish.__doc__
    assert isinstance(app.handlers, Handlers)


def test_what_a_subclass_overrides_is_what_other_parts_use():
    class Watched(Angzarr):
        def __init__(self):
            self.named = []
            super().__init__(
                "watched",
                broker="memory://",
                saga_compensation={"escalation_webhook_url": "https://127.0.0.1/x"},
                set_as_current=False,
            )

        def handler(self, event, **options):
            self.named.append(options.get("name"))
            return super().handler(event, **options)

    with Watched() as app:
        assert app.named, "the handler of escalations is registered by it"
        assert [one.name for one in app.handlers if one.name in app.named] == app.named
