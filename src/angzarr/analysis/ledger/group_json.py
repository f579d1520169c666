"""Groups as JSON, for programs: every door says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from angzarr.analysis.ledger.entry import HistoryLine
from angzarr.analysis.ledger.group import Group, GroupPage
from angzarr.analysis.ledger.group_address import group_address


def page_json(page: GroupPage) -> dict[str, Any]:
    """Return *page* as a JSON object; `next` is the value for --after, or null."""
    return {"groups": [group_json(group) for group in page.groups], "next": page.next or None}


def group_json(group: Group) -> dict[str, Any]:
    """Return *group* as a JSON object; `address` is by what it is asked for."""
    return asdict(group) | {"address": group_address(group.fingerprint)}


def detail_json(group: Group, history: Sequence[HistoryLine]) -> dict[str, Any]:
    """Return everything about a group as a JSON object."""
    lines = [
        {"at": line.at, "who": line.who, "what": line.what, "detail": line.detail}
        for line in history
    ]
    return group_json(group) | {"history": lines}
