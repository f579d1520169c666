"""Sorting: letters in the queue of no domain that another app wrote go to that app's own.

Earlier releases put the letters of every app's plain tasks there, and each analysis worker reads
it: it would file another app's letter, and replay it as its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from angzarr.dead_letters.names import domain_of_app
from angzarr.dead_letters.queue import UNKNOWN_DOMAIN, Letterbox, RawLetter, Receipt, put_raw

_log = logging.getLogger("angzarr.analysis")

_NOWHERE: Final = ""


@dataclass(frozen=True, slots=True)
class LetterSorting:
    """Puts letters where their app reads them, byte for byte: what is signed stays so."""

    queue: Letterbox
    #: The name of this worker's app, and the domains that it reads.
    component: str
    domains: AbstractSet[str]

    def passed_on(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Return those of *receipts* that are with their own app now; raises if its queue is away.

        One that is not taken there is not among them: it is filed here, and not lost.
        """
        found = [(one, owner) for one in receipts if (owner := self._owner(one))]
        if not found:
            return []
        raws = [
            RawLetter(domain=to, raw=one.raw, content_type=one.content_type) for one, to in found
        ]
        taken = []
        for (receipt, owner), refusal in zip(found, put_raw(self.queue, raws), strict=True):
            letter = receipt.letter
            told = (letter.id if letter else "", letter.component if letter else "", owner)
            if refusal is None:
                _log.info("letter_sorted: %s of app %r, to domain %r", *told)
                taken.append(receipt)
            else:
                _log.warning("letter_not_sorted: %s of app %r, to domain %r: %s", *told, refusal)
        return taken

    def _owner(self, receipt: Receipt) -> str:
        """Return the domain of the app that wrote it, nothing if that is this one or not known.

        Only angzarr's apps read by that name; a letter that holds no Celery task may be of others.
        """
        letter = receipt.letter
        if receipt.domain != UNKNOWN_DOMAIN or letter is None or letter.component == self.component:
            return _NOWHERE
        if letter.envelope or not letter.message.task:
            return _NOWHERE
        owner = domain_of_app(letter.component)
        return _NOWHERE if owner in self.domains else owner
