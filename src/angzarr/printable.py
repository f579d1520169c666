"""Printable: what came from outside, as text that neither a terminal nor a log acts on."""

from __future__ import annotations


def printable(value: object, *, keep: str = "") -> str:
    """Return *value* as one line without control characters; those in *keep* stay."""
    text = str(value)
    if text.isprintable():  # nearly every text, and quickly seen
        return text
    return "".join(c if c.isprintable() or c in keep else "\ufffd" for c in text)
