"""Values of labels that come with messages. How many there are is the SDK's to bound."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 200


def label(text: str) -> str:
    """Return *text* as a label's value, cut: whoever publishes may have chosen it.

    Halves of characters are marked: no exporter can write them.
    """
    return text[:_LONGEST].encode("utf-8", "replace").decode()
