from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from angzarr.doctor import finding
from angzarr.doctor.finding import Probe, look_at_all, refusing
from angzarr.errors import ConfigurationError, StoreUnavailable

WELL = finding.away("well", "a finding")


def raising(error):
    def look():
        raise error

    return look


@pytest.mark.parametrize(
    ("error", "check", "seen"),
    [
        (StoreUnavailable("Redis at r did not answer"), "server-away", "Redis at r did not answer"),
        (ConfigurationError("set store"), "settings-refused", "set store"),
        (OSError("secret"), "server-away", "said"),
        (ZeroDivisionError("secret"), "look-failed", "ended with builtins.ZeroDivisionError"),
    ],
)
def test_what_a_look_raises_is_one_finding(error, check, seen):
    probe = Probe(at="x", look=raising(error), failures=(OSError,), reason=lambda _error: "said")
    (found,) = probe.findings()
    assert (found.check.id, found.at) == (check, "x")
    assert seen in found.seen
    assert "secret" not in found.seen


def test_one_server_that_is_away_takes_nothing_from_the_others():
    away = Probe(at="x", look=raising(StoreUnavailable("away")))
    found = look_at_all([away, Probe(at="y", look=lambda: [WELL])], timedelta(seconds=30))
    assert [one.at for one in found] == ["x", "well"]


def test_a_server_that_never_answers_is_away_once_patience_ends():
    for_ever = threading.Event()
    mute = Probe(at="mute", look=lambda: [WELL] if for_ever.wait(60) else [])
    quick = Probe(at="y", look=list)
    try:
        (found,) = look_at_all([mute, quick], timedelta(seconds=2))
    finally:
        for_ever.set()
    assert (found.check.id, found.at, found.seen) == (
        "server-away", "mute", "it did not answer within 2 s",
    )  # fmt: skip


def test_a_refusal_is_a_finding_and_nothing_else_is_hidden():
    (found,) = refusing(raising(ConfigurationError("no ledger")), "app")
    assert (found.check.id, found.seen) == ("settings-refused", "no ledger")
    assert refusing(lambda: None, "app") == []
    with pytest.raises(ZeroDivisionError):
        refusing(raising(ZeroDivisionError()), "app")
