"""Why something is not fit to be released."""

from __future__ import annotations


class NotFit(Exception):
    """What was built must not leave; every sentence says what is wrong and what to do."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))


def refuse(sentences: list[str]) -> None:
    """Raise NotFit with *sentences*, if there are any."""
    if sentences:
        raise NotFit(*sentences)
