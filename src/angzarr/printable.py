"""Printable: what came from outside, as text that neither a terminal nor a log acts on."""

from __future__ import annotations

import json


def printable(value: object, *, keep: str = "") -> str:
    """Return *value* as one line without control characters; those in *keep* stay."""
    text = str(value)
    if text.isprintable():  # nearly every text, and quickly seen
        return text
    return "".join(c if c.isprintable() or c in keep else "\ufffd" for c in text)


def escaped(text: str) -> str:
    """Return JSON whose characters all show: those that do not are spelt as JSON spells them."""
    if text.isprintable():
        return text
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else json.dumps(c)[1:-1] for c in plain)
