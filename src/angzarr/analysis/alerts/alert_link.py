"""The link of an alert: a template, filled in with what the alert is about. Pure."""

from __future__ import annotations

import string
from typing import Final
from urllib.parse import quote

from angzarr.analysis.alerts.alert import Alert
from angzarr.analysis.ledger.group_address import group_address

#: What a template may name.
PLACES: Final = ("group", "kind", "domain", "handler", "alert")


def check_link(template: str) -> None:
    """Raise ValueError, which says the cure, unless *template* can be filled in."""
    if not template.startswith(("https://", "http://")):
        raise ValueError("the link of alerts must begin with https:// or http://")
    if any(part not in PLACES for part in _places(template)):
        known = ", ".join(f"{{{place}}}" for place in PLACES)
        msg = f"the link of alerts may name {known} and nothing else in braces"
        raise ValueError(msg)


def link_of(alert: Alert, template: str) -> str:
    """Return *template* with what is said of *alert*, quoted; an empty one makes no link."""
    said = {
        "group": group_address(alert.fingerprint) if alert.fingerprint else "",
        "kind": alert.kind.value,
        "domain": alert.domain,
        "handler": alert.handler_name,
        "alert": alert.id,
    }
    return template.format(**{k: quote(it, safe="", errors="replace") for k, it in said.items()})


def _places(template: str) -> list[str]:
    """Return what *template* names, with what else is said of it there."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError:
        return [""]
    return [f"{place}{spec}{how or ''}" for _, place, spec, how in parsed if place is not None]
