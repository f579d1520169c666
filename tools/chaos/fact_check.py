"""Facts: whether the database tells of every end exactly once. Pure, but for `FactsDatabase`.

An end and its fact are one step of the claim store, and a relay moves the fact from there. So an
event that was handled has one fact of that, whoever was killed in between, and one that is in the
ledger has one of its letter. Where both happened to one pair, only the end that was settled has
its fact.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import psycopg

from chaos.fates import HANDLED, SKIPPED
from chaos.history import Pair
from chaos.rules import Breach

UNTOLD, TOLD_TWICE = "no fact", "two facts"
#: What facts call the ends of an event; "dead_lettered" stands for every reason of a letter.
LETTER = "dead_lettered"
ENDS = frozenset({HANDLED, SKIPPED, LETTER})

FACTS = "SELECT tool_id, event_id, data ->> 'outcome' FROM facts WHERE event_id IS NOT NULL"


class FactsDatabase:
    """The database with the facts at *url*, read past angzarr."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql+psycopg", "postgresql")

    def ends(self) -> dict[Pair, Counter[str]]:
        """Return how often which end of each pair is told."""
        with psycopg.connect(self._url) as connection:
            rows = connection.execute(FACTS).fetchall()
        told: dict[Pair, Counter[str]] = defaultdict(Counter)
        for handler, event, outcome in rows:
            if outcome in ENDS:
                told[Pair(handler, event)][outcome] += 1
        return dict(told)


def check_facts(
    ends: Mapping[Pair, frozenset[str]], told: Mapping[Pair, Counter[str]]
) -> Iterator[Breach]:
    """Yield what is not told once; *ends* has those of each pair, in the words of facts."""
    for pair, had in ends.items():
        of_pair = told.get(pair, Counter())
        where = f"{pair.handler}, which {_words(had)}, has {dict(of_pair) or 'none'}"
        if not had & of_pair.keys() or (len(had) == 1 and of_pair.keys() - had):
            yield Breach(kind=UNTOLD, event=pair.event, text=where)
        elif any(number > 1 for number in of_pair.values()):
            yield Breach(kind=TOLD_TWICE, event=pair.event, text=where)


def _words(had: Iterable[str]) -> str:
    return " and ".join(f"is {one}" for one in sorted(had))
