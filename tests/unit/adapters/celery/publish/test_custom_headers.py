"""Custom headers: the very ones that Celery finds, without those that are ours alone."""

from __future__ import annotations

import pytest
from celery.app.task import Context
from celery.exceptions import Ignore

from angzarr.adapters.celery.envelope import FIELD, TOLD, custom_headers
from angzarr.events import headers as names

CUSTOM = {"traceparent": "00-…", "x-mine": {"a": 1}, "absent": None}
#: Every name that the package reads or writes, but the W3C's; and one of a release to come.
OURS = [
    *(
        value
        for name, value in vars(names).items()
        if name.isupper() and name[0] != "_" and isinstance(value, str)
    ),
    "angzarr-of-a-newer-release",
]
OURS.remove(names.TRACEPARENT)


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


def test_ours_are_shown_to_no_task():
    ours = dict.fromkeys(OURS, "1")
    assert custom_headers(a_request(**ours, **CUSTOM)) == CUSTOM
    assert custom_headers(a_request(headers={**ours, "a": 1})) == {"a": 1}


@pytest.mark.parametrize("way", ["apply_async", "send_task", "signature", "replaced"])
def test_ours_are_set_by_nobody_but_us(app, sent, in_task, way):
    @app.task(name="task", bind=True)
    def task(self):
        pass

    forwarded = {**dict.fromkeys(OURS, "7"), **CUSTOM}
    if way == "apply_async":
        task.apply_async(headers=forwarded)
    elif way == "send_task":
        app.send_task("task", headers=forwarded)
    elif way == "signature":
        app.signature("task").set(headers=forwarded).delay()
    else:
        with pytest.raises(Ignore):
            in_task(task, lambda _request: task.replace(task.s().set(headers=forwarded)), id="t")
    (message,) = sent()
    assert CUSTOM.items() <= message.headers.items()
    found = {name: message.headers[name] for name in OURS if name in message.headers}
    assert found == {names.QUEUE: app.conf.task_default_queue}
