from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.dead_letters.fingerprint import LENGTH, fingerprint, normal_message, normal_stack

STACK = """Traceback (most recent call last):
  File "/srv/releases/{release}/orders.py", line {line}, in sync
    crm.upsert(order)
  File "/usr/lib/crm.py", line 7, in upsert
    raise TimeoutError
TimeoutError
"""


def of(message="timed out", stack="", handler="orders.sync", error_type="TimeoutError"):
    return fingerprint(handler=handler, error_type=error_type, message=message, stack=stack)


def test_deploy_does_not_change_the_group():
    old, new = (STACK.format(release=r, line=n) for r, n in (("17", 12), ("18", 40)))
    assert normal_stack(old) == ["orders.py:sync", "crm.py:upsert"]
    assert of(stack=old) == of(stack=new)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 not found", "order 18 not found"),
        ("no user 'ann'", "no user 'bob'"),
        ("at 0x7f12ab", "at 0x7f99cd"),
        ("took 3.5 s", "took 12.25 s"),
        (
            "event 5f2b6c1e-58a5-4a3e-9c5a-111111111111",
            "event 00000000-58a5-4a3e-9c5a-222222222222",
        ),
        ("timed out\nrequest 1", "timed out\nrequest 2"),
    ],
)
def test_what_varies_does_not_split_a_group(one, other):
    assert of(one) == of(other)


def test_other_handler_error_or_place_is_another_group():
    elsewhere = STACK.format(release="1", line=1).replace("upsert", "delete")
    groups = {
        of(),
        of(handler="mail"),
        of(error_type="OSError"),
        of("refused"),
        of(stack=elsewhere),
    }
    assert len(groups) == 5


@given(st.text(), st.text())
def test_any_text_has_a_fingerprint(message, stack):
    assert len(of(message, stack)) == LENGTH
    assert "\n" not in normal_message(message)


def test_a_stack_of_nothing_but_line_ends_is_read_at_once():
    assert normal_stack("\n" * 400_000) == []  # minutes, if each line end began a search anew
