"""Letters by reason: those of some reasons go to a letterbox of their own (spec C6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from angzarr.dead_letters.letter import DeadLetter, Reason
from angzarr.dead_letters.queue import Letterbox
from angzarr.errors import DeadLetterQueueUnavailable


class LettersByReason:
    """A letterbox before several: *own* by reason, *rest* for all other letters.

    No letter goes to another than its own, also while that is away.
    """

    def __init__(self, rest: Letterbox, own: Mapping[Reason, Letterbox]) -> None:
        self._rest = rest
        self._own = dict(own)

    def put(self, letters: Sequence[DeadLetter], /) -> list[str | None]:
        """Put *letters* (see Letterbox); one that is away keeps none back from the others.

        Raises DeadLetterQueueUnavailable if none of those that were needed could be asked.
        """
        boxes = [self._own.get(letter.reason, self._rest) for letter in letters]
        answers: list[str | None] = [None] * len(letters)
        away: list[DeadLetterQueueUnavailable] = []
        needed = [box for box in (self._rest, *self._own.values()) if box in boxes]
        for box in needed:
            which = [at for at, one in enumerate(boxes) if one is box]
            try:
                told = box.put([letters[at] for at in which])
            except DeadLetterQueueUnavailable as error:
                away.append(error)
                told = [str(error)] * len(which)
            for at, answer in zip(which, told, strict=True):
                answers[at] = answer
        if away and len(away) == len(needed):
            raise away[0]
        return answers

    def close(self) -> None:
        """Close all of them."""
        with ExitStack() as doors:
            for box in (self._rest, *self._own.values()):
                doors.callback(box.close)
