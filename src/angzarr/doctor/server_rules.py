"""What holds for any server: that it answers, that its clock is right, that it is used at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from angzarr.doctor.finding import Area, Check, Finding, Severity

#: From where on a clock is worth a word, and from where on leases are no longer what they say:
#: a claim's lease is 8 s.
SKEW, FAR_OFF = timedelta(seconds=1), timedelta(seconds=4)

AWAY: Final = Check(
    id="server-away",
    area=Area.ANY,
    severity=Severity.ERROR,
    looks_at="whether each server lets the app in and answers within a few seconds",
    why="messages wait until it is back; nothing more of it could be checked",
)
NOT_LOOKED_AT: Final = Check(
    id="not-looked-at",
    area=Area.ANY,
    severity=Severity.INFO,
    looks_at="rights and clients that the doctor needs",
    why="what could not be looked at may lose messages all the same",
)
LOOK_FAILED: Final = Check(
    id="look-failed",
    area=Area.ANY,
    severity=Severity.ERROR,
    looks_at="whether each look came to its end",
    why="it may lose messages and nobody knows: the doctor met what it was not made for",
)
CLOCK: Final = Check(
    id="clock-skew",
    area=Area.ANY,
    severity=Severity.WARNING,
    looks_at="TIME of Redis, clock_timestamp() of PostgreSQL, against this machine",
    why="delays, leases and time-outs that one clock wrote and another reads come early or late",
)
REFUSED: Final = Check(
    id="settings-refused",
    area=Area.APP,
    severity=Severity.ERROR,
    looks_at="what a worker or the analysis worker refuses to start with",
    why="no worker starts: messages wait until the setting is mended",
)
CHECKS: Final = (AWAY, NOT_LOOKED_AT, LOOK_FAILED, CLOCK, REFUSED)


def away(at: str, reason: str) -> Finding:
    """Return that a server does not answer, or lets nobody in."""
    return AWAY.found(at, reason, "start it, or check its address, credentials and network")


def not_looked_at(at: str, reason: str, by_hand: str) -> Finding:
    """Return that something of a server cannot be seen."""
    return NOT_LOOKED_AT.unknown(at, reason, by_hand)


def look_failed(at: str, kind: str) -> Finding:
    """Return that a look ended with an error of a *kind* that nobody foresaw; never its text."""
    return LOOK_FAILED.found(
        at, f"the look ended with {kind}", "see by hand whether it works, and report this"
    )


def refused(at: str, reason: str) -> Finding:
    """Return that settings cannot work; *reason* says the cure."""
    return REFUSED.found(at, reason, "change the setting as it says")


def clock(at: str, skew: timedelta | None) -> Iterator[Finding]:
    """Return whether a clock is wrong by *skew*, which may be either one's."""
    if skew is None or abs(skew) < SKEW:
        return
    yield CLOCK.found(
        at,
        f"its clock is {abs(skew).total_seconds():.1f} s"
        f" {'ahead of' if skew > timedelta(0) else 'behind'} this machine's",
        "let both hosts run chrony or another NTP client: chronyc tracking",
        severity=Severity.ERROR if abs(skew) >= FAR_OFF else Severity.WARNING,
    )
