"""Says of which acts no fact may tell, where facts were lost with their process (spec F1).

Its lines may be all that is left of them: who did what, when, and whether it was done. A fact that
was just being written may have been kept: its answer was not waited for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from angzarr.facts.act import ActKind, ActStage
from angzarr.facts.fact import Fact
from angzarr.facts.fact_text import fact_from_text
from angzarr.facts.resolution import LIFECYCLE
from angzarr.runtime.text import printable

_log = logging.getLogger("angzarr.facts")

#: Acts that are named at most, the first ones; of more there is a number.
MOST_NAMED: Final = 50
_BEGUN: Final = ":begun"
_STAGES: Final = {
    ActStage.BEGUN.value: "was begun",
    ActStage.FAILED.value: "failed",
    ActStage.CHANGED_NOTHING.value: "changed nothing",
}
_ACTS: Final = frozenset({*(kind.value for kind in ActKind), *_STAGES})
#: How `ActLog` calls an act: kind, subject, time.
_NAME: Final = re.compile(r"(\w+):(.*):(\d{4}-\d\d-\d\dT.*)", re.DOTALL)


def tell_lost_acts(facts: Iterable[Fact]) -> None:
    """Log a sentence for each act among lost *facts*, in their order."""
    acts: dict[str, Fact] = {}
    for fact in facts:
        if fact.type == LIFECYCLE and fact.by is not None and fact.subtype in _ACTS:
            acts[(fact.resolves or fact.id).removesuffix(_BEGUN)] = fact  # its end stands last
    for name, last in list(acts.items())[:MOST_NAMED]:
        _log.error(
            "act_not_recorded: %s by %s %s, but the process ended before the place of facts"
            " answered: perhaps no fact there tells of it",
            _act(name, last), printable(last.by), _STAGES.get(last.subtype, "was done"),
        )  # fmt: skip
    if len(acts) > MOST_NAMED:
        _log.error(
            "act_not_recorded: of %d more acts perhaps no fact tells", len(acts) - MOST_NAMED
        )


def tell_lost_act_lines(texts: Iterable[str]) -> None:
    """The same for facts as lines (`fact_text`)."""
    found = []
    for text in texts:
        with suppress(ValueError):
            found.append(fact_from_text(text))
    tell_lost_acts(found)


def _act(name: str, last: Fact) -> str:
    """What was done, to what and when."""
    known = _NAME.fullmatch(name)
    if known is None:
        return f"{last.subtype} ({printable(name)}) at {last.at.isoformat()}"
    kind, subject, at = known.groups()
    return f"{kind} of {printable(subject)} at {printable(at)}"
