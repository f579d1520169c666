"""Messages of a form that Celery takes for granted, and others."""

from __future__ import annotations

import pytest
from celery.exceptions import InvalidTaskError

from angzarr.adapters.celery.message_check import check_headers, checked_body


@pytest.mark.parametrize("name", ["angzarr", "angzarr_told"])
@pytest.mark.parametrize("value", [None, "x", [1, 2, 3, 4, 5, 6, 7, 8, 9]])
def test_what_a_body_embeds_cannot_pass_for_our_own_words(name, value):
    with pytest.raises(InvalidTaskError, match="this worker's own"):
        checked_body([[], {}, {name: value}])


def test_what_else_a_body_embeds_is_let_through():
    embed = {"callbacks": None, "chain": None, "mine": 1}
    assert checked_body([[1], {"a": 2}, embed]) == ([1], {"a": 2}, embed)


@pytest.mark.parametrize("shadow", [["x"], {"x": 1}, 7])
def test_a_shadow_that_is_no_text_is_malformed(shadow):
    with pytest.raises(InvalidTaskError, match="not text"):
        check_headers({"id": "a", "shadow": shadow})


@pytest.mark.parametrize("shadow", [None, "", "shown"])
def test_a_shadow_that_celery_takes_is_let_through(shadow):
    check_headers({"id": "a", "shadow": shadow})
