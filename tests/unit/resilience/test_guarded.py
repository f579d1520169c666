"""What stands around a handler: names of breakers and the errors that each counts."""

from __future__ import annotations

import pytest

from angzarr.errors import ConfigurationError
from angzarr.resilience.guarded import Guard, guards


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
    "named", ["", "wave:order", "a b", "x" * 201, ["crm", ""], [1], {"": OSError}]
)
def test_what_no_breaker_can_be_called_is_refused(named):
    with pytest.raises(ConfigurationError, match="no name of a breaker"):
        guards(named)


@pytest.mark.parametrize("errors", [(), "OSError", (1,), int])
def test_what_is_no_exception_class_is_refused(errors):
    with pytest.raises(ConfigurationError, match="exception classes"):
        guards({"crm": errors})
