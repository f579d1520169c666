"""Custom headers: the very ones that Celery finds, without the fields that are ours alone."""

from __future__ import annotations

import pytest
from celery.app.task import Context

from angzarr.adapters.celery.custom_headers import custom_headers
from angzarr.adapters.celery.envelope import FIELD, TOLD

CUSTOM = {"angzarr-event-id": "e-1", "traceparent": "00-…", "x-mine": {"a": 1}, "absent": None}


def a_request(**more):
    """Return a request with every field that Celery knows, as a child has it."""
    known = dict.fromkeys(vars(Context), "said")
    known |= {"lang": "py", "task": "t", "argsrepr": "()", "kwargsrepr": "{}", "compression": None}
    return {**known, "headers": None, **more}


@pytest.mark.parametrize("custom", [CUSTOM, {"x": 1}])
def test_they_are_those_that_celery_would_find(custom):
    request = a_request(**custom)
    assert custom_headers(request) == Context()._get_custom_headers(request) == custom


def test_what_only_a_child_needs_is_not_among_them():
    assert custom_headers(a_request(**{FIELD: ("token",), TOLD: []})) == {}


@pytest.mark.parametrize("given", [{"a": 1}, {}])
def test_a_header_of_that_name_goes_before_them(given):
    request = a_request(headers=given, x=1)
    assert custom_headers(request) == Context(request).headers == given
