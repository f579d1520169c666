"""What stands around a handler: names of breakers and the errors that each counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angzarr.errors import ConfigurationError
from angzarr.resilience.breaker import base_of
from angzarr.resilience.guarded import (
    Guard,
    check_full_name,
    counted_within,
    guards,
    keyed,
    mark_counted,
)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, ()),
        ("crm", (Guard("crm"),)),
        (["crm", "mail", "crm"], (Guard("crm"), Guard("mail"))),
        ({"crm": OSError}, (Guard("crm", (OSError,)),)),
        ({"crm": (OSError, ValueError)}, (Guard("crm", (OSError, ValueError)),)),
    ],
)
def test_breakers_may_be_named_in_several_ways(named, expected):
    assert guards(named) == expected


@pytest.mark.parametrize(
    "named",
    [
        "",
        "wave:order",
        "a b",
        "x" * 201,
        "a\x1b[2J",
        "a\0",
        "\ud800",
        "a\u202e",
        "a\n",
        ["crm", ""],
        [1],
        {"": OSError},
    ],
)
def test_what_no_breaker_can_be_called_is_refused(named):
    with pytest.raises(ConfigurationError, match="not a name of a breaker"):
        guards(named)


@pytest.mark.parametrize("errors", [(), "OSError", (1,), int])
def test_what_is_no_exception_class_is_refused(errors):
    with pytest.raises(ConfigurationError, match="exception classes"):
        guards({"crm": errors})


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("acme", "crm:acme"),
        ("acme corp", "crm:acme%20corp"),
        ("a:b%", "crm:a%3Ab%25"),
        ("größe", "crm:größe"),
        ("\x1b[2J\u202e", "crm:%1B[2J%E2%80%AE"),
        ("\ud800", "crm:%ED%A0%80"),
        (7, "crm:7"),
        ("", "crm"),
        (None, "crm"),
    ],
)
def test_a_key_has_a_name_that_people_can_read(key, name):
    assert keyed("crm", key) == name


@given(st.text() | st.text("a% :\xa0\u202e\x1b", max_size=300), st.text(min_size=1))
def test_any_two_keys_have_names_of_their_own(one, other):
    names = {keyed("crm", one), keyed("crm", other)}
    assert len(names) == len({one, other})
    for name in names:
        assert check_full_name(name) == name
        assert base_of(name) == "crm"
        assert len(name) <= 204


@pytest.mark.parametrize("name", ["", "a b", "wave:order", "crm:", ":key", "crm:a b", "crm:a:b"])
def test_what_no_name_with_a_key_can_be_is_refused(name):
    with pytest.raises(ConfigurationError):
        check_full_name(name)


def test_no_key_makes_a_breaker_of_a_poison_wave():
    with pytest.raises(ConfigurationError, match="are those of poison waves"):
        keyed("wave", "order")


class Odd(Exception):
    """Gives anybody anything, and takes nothing."""

    given = None

    def __getattr__(self, name):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def __setattr__(self, name, value):
        raise TypeError(name)


@pytest.mark.parametrize("given", [None, "mark", OSError("away")])
def test_an_error_of_any_class_may_be_marked_and_asked(given, monkeypatch):
    monkeypatch.setattr(Odd, "given", given)
    error = Odd()
    mark_counted(error, 2)
    assert counted_within(error, 1) is False


def test_an_error_is_counted_within_the_calls_that_began_before():
    error = OSError()
    assert not counted_within(error, 1)
    mark_counted(error, 2)
    assert counted_within(error, 1)
    assert not counted_within(error, 2)
