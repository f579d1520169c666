"""Group: failures that look alike, by their fingerprint, and who looks after them (A3, A5).

A letter's writer chooses its fingerprint, which may hold slashes, control characters or markup.
`group_address` spells it so that addresses, command lines and cursors still find the group.
"""

from __future__ import annotations

import base64
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from angzarr.analysis.ledger.entry import FailureClass, HistoryLine
from angzarr.errors import ConfigurationError

#: What needs no other form: our own, and nearly all of others. Dots alone are a way up, and what
#: begins with a dash is an option.
_PLAIN: Final = re.compile(r"(?!\.+\Z|-)[0-9A-Za-z_.:-]{1,64}")
#: Begins what is spelt in another form. No plain one begins so.
_SPELT: Final = "~"


def group_address(fingerprint: str) -> str:
    """*fingerprint* if it is plain, else ``~`` and its UTF-8 in URL-safe base64."""
    if _PLAIN.fullmatch(fingerprint):
        return fingerprint
    raw = fingerprint.encode("utf-8", "surrogatepass")
    return _SPELT + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def fingerprint_at(address: str) -> str:
    """The fingerprint that *address* stands for; raises ValueError if it is spelt wrong.

    What does not begin with ``~`` is the fingerprint itself.
    """
    if not address.startswith(_SPELT):
        return address
    spelt = address.removeprefix(_SPELT)
    try:
        padded = spelt.encode("ascii") + b"=" * (-len(spelt) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode(
            "utf-8", "surrogatepass"
        )
    except ValueError as error:  # of each of the codecs
        msg = "no group has this address: use ~ and base64, as lists of groups show it"
        raise ValueError(msg) from error


#: Characters of a group's texts at most; a longer message is cut, a longer note refused.
LONGEST_MESSAGE: Final = 2_000
LONGEST_NOTE: Final = 4_000
LONGEST_OWNER: Final = 200


class GroupStatus(StrEnum):
    """Where a group stands with the people who look after it."""

    NEW = "new"
    ACKNOWLEDGED = "acknowledged"  # a person looks into it
    FIXED = "fixed"  # its cause is said to be gone
    REGRESSED = "regressed"  # it failed again after it was said to be fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All entries of one fingerprint, counted. Times are UTC-aware; absent texts are empty.

    What varies from entry to entry (domain, message, class …) is that of `latest_entry_id`, the
    one that failed last. Counts are of entries that are there; times also of those removed since.
    """

    fingerprint: str
    handler_name: str = ""
    domain: str = ""
    event_type: str = ""
    reason: str = ""
    error_type: str = ""
    error_message: str = ""
    failure_class: FailureClass | None = None
    latest_entry_id: str = ""
    first_failed_at: datetime
    last_failed_at: datetime
    #: Entries, those that are open, letters filed.
    entries: int = 0
    open_entries: int = 0
    occurrences: int = 0
    #: Entries by status; a status that none has may be missing.
    by_status: Mapping[str, int] = field(default_factory=dict)
    status: GroupStatus = GroupStatus.NEW
    owner: str = ""
    note: str = ""
    #: No alert speaks of the group before; None: it is not muted.
    muted_until: datetime | None = None
    #: Counts what people change; a change that names an older one does nothing.
    revision: int = 1


def is_poison(group: Group) -> bool:
    """True if the entry of *group* that failed last kills its worker."""
    return FailureClass.POISON in (group.failure_class, group.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """A person's changes to a group; None: it stays as it is.

    Raises ConfigurationError for what cannot be stored, or is not a person's to say.
    """

    status: GroupStatus | None = None
    owner: str | None = None
    note: str | None = None
    muted_until: datetime | None = None
    #: Ends a mute; wins over `muted_until`.
    unmute: bool = False

    def __post_init__(self) -> None:
        if self.status is GroupStatus.REGRESSED:
            msg = "a group turns regressed by failing again after it was fixed, not by hand"
            raise ConfigurationError(msg)
        for what, text, most in (
            ("owner", self.owner, LONGEST_OWNER),
            ("note", self.note, LONGEST_NOTE),
        ):
            if text is not None and len(text) > most:
                msg = f"a group's {what} has {most:,} characters at most, not {len(text):,}"
                raise ConfigurationError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which groups; None: any. Times bound `last_failed_at`: `since` ≤ it < `until`."""

    handler_name: str | None = None
    domain: str | None = None
    error_type: str | None = None
    owner: str | None = None
    status: GroupStatus | None = None
    #: Only groups with open entries.
    open_only: bool = True
    since: datetime | None = None
    until: datetime | None = None
    #: What the fingerprint begins with.
    prefix: str = ""


#: Groups with open entries.
OPEN_GROUPS: Final = GroupFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    """Groups, the one that failed last first; `next` is the cursor of the next page, or empty."""

    groups: tuple[Group, ...]
    next: str = ""


def amended(
    group: Group, amendment: Amendment, now: datetime, by: str
) -> tuple[Group, HistoryLine] | None:
    """*group* as *amendment* wants it, with the line for its history; None: it is so."""
    wanted: dict[str, object] = {
        name: value
        for name in ("status", "owner", "note", "muted_until")
        if (value := getattr(amendment, name)) is not None
    }
    if amendment.unmute:
        wanted["muted_until"] = None
    changed = {name: new for name, new in wanted.items() if new != getattr(group, name)}
    if not changed:
        return None
    said = "; ".join(f"{name}: {_said(new)}" for name, new in changed.items())
    after = replace(group, revision=group.revision + 1, **changed)  # type: ignore[arg-type]
    return after, HistoryLine(at=now, who=by, what="amended", detail=said)


def _said(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return str(value or "none")


class Groups(Protocol):
    """The groups of a ledger. Every verb raises LedgerUnavailable when the database is away.

    Counts are those of the ledger at the same moment: both change in one transaction.
    """

    @abstractmethod
    def get_groups(
        self, wanted: GroupFilter = OPEN_GROUPS, /, *, limit: int = 100, after: str = ""
    ) -> GroupPage:
        """A page of groups, following the cursor *after*; ValueError if it is none."""

    @abstractmethod
    def open_group(self, fingerprint: str, /) -> Group | None:
        """The group of this fingerprint."""

    @abstractmethod
    def amend(
        self, fingerprint: str, amendment: Amendment, /, *, revision: int, by: str
    ) -> Group | None:
        """Change what people say of a group if it is at *revision*; None: it is not.

        An amendment that changes nothing leaves no line and no new revision.
        """

    @abstractmethod
    def group_history(self, fingerprint: str, /) -> tuple[HistoryLine, ...]:
        """The history of the group: actions of people and regressions, oldest line first."""

    @abstractmethod
    def close(self) -> None:
        """Let connections go; safe to call twice."""


def group_page_json(page: GroupPage) -> dict[str, Any]:
    """*page* as a JSON object; `next` is the value for --after, or null."""
    return {"groups": [group_json(group) for group in page.groups], "next": page.next or None}


def group_json(group: Group) -> dict[str, Any]:
    """*group* as a JSON object; `address` is by what it is asked for."""
    return asdict(group) | {"address": group_address(group.fingerprint)}


def group_detail_json(group: Group, history: Sequence[HistoryLine]) -> dict[str, Any]:
    """Everything about a group as a JSON object."""
    lines = [
        {"at": line.at, "who": line.who, "what": line.what, "detail": line.detail}
        for line in history
    ]
    return group_json(group) | {"history": lines}
