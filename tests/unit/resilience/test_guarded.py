"""What stands around a handler: names of breakers and the errors that each counts."""

from __future__ import annotations

import pytest

from angzarr.errors import ConfigurationError
from angzarr.resilience.guarded import Guard, counted_within, guards, mark_counted


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
    with pytest.raises(ConfigurationError, match="no name of a breaker"):
        guards(named)


@pytest.mark.parametrize("errors", [(), "OSError", (1,), int])
def test_what_is_no_exception_class_is_refused(errors):
    with pytest.raises(ConfigurationError, match="exception classes"):
        guards({"crm": errors})


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
