"""The text of arguments is what Celery's own would be, whatever the arguments are."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from celery import Celery
from celery.utils.saferepr import saferepr
from hypothesis import given
from hypothesis import strategies as st

from angzarr import Angzarr
from angzarr.adapters.celery.publish.argument_text import text_of, text_of_plain

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=25,
)
ANYTHING = st.recursive(
    SCALARS | st.binary() | st.decimals() | st.sets(st.integers()) | st.just(range(3)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(), inner, max_size=3)
        | st.builds(OrderedDict, st.dictionaries(st.text(), inner, max_size=2))
    ),
    max_leaves=15,
)
BOUNDS = ((1024, 3), (40, 3), (1024, 1), (1024, 0), (1024, None))


@given(JSON)
def test_pure_json_reads_as_celery_would_write_it(data):
    for most, deepest in BOUNDS:
        wanted = saferepr([data], most, maxlevels=deepest)
        assert text_of_plain([data], most, deepest) == wanted


@given(st.lists(JSON | ANYTHING, max_size=3))
def test_any_arguments_read_as_celery_would_write_them(args):
    for most, deepest in BOUNDS:
        for given_ones in (args, tuple(args)):
            wanted = saferepr(given_ones, most, maxlevels=deepest)
            assert text_of(given_ones, most, deepest) == wanted


def test_arguments_that_contain_themselves_are_celerys_to_write():
    circle = {}
    circle["again"] = [circle]
    assert text_of([circle], 1024, None) == saferepr([circle], 1024, maxlevels=None)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        (({"n": 1},), None),
        ([{"n": [1, {"deep": {"er": {}}}]}], {"of": Decimal(1)}),
        ((datetime(2026, 1, 1, tzinfo=UTC), "it's"), {"x": "y" * 2000}),
    ],
)
def test_a_message_is_celerys_own(args, kwargs):
    messages = []
    for kind in (Angzarr, Celery):
        with kind("shop", broker="memory://", set_as_current=False) as app:
            messages.append(app.amqp.as_task_v2("t-1", "one", args, kwargs, origin="here"))
    ours, celerys = messages
    assert ours == celerys


def test_a_text_that_the_sender_gives_is_kept():
    with Angzarr("shop", broker="memory://", set_as_current=False) as app:
        said = {"argsrepr": "(secret)", "kwargsrepr": "{secret}"}
        message = app.amqp.as_task_v2("t-1", "one", ({"n": 1},), {}, **said)
    assert (message.headers["argsrepr"], message.headers["kwargsrepr"]) == ("(secret)", "{secret}")
