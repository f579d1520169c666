"""Provoke every failure of the set and record its letter: ``python -m tools.corpus [scenario…]``.

With names (or beginnings of names), only those. A scenario whose server is not running keeps its
recorded line, and says so. ``--score`` provokes nothing and prints how the classifier fares; with
``--json`` for programs.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what tests import by bare names

from tools.corpus.judging import predicted, score_of
from tools.corpus.lines import judged, line_of, read, scenarios, write, written
from tools.corpus.places.servers import NotRunning, address
from tools.corpus.scenario import Scenario
from tools.corpus.workshop import provoke


def main(arguments: Sequence[str]) -> int:
    if "--score" in arguments:
        return _print_json() if "--json" in arguments else _print_score()
    logging.disable(logging.CRITICAL)  # each letter is an error to the road
    known = scenarios()
    recorded = {line["scenario"]: line for line in read() if line["scenario"] in known}
    kept = 0
    for name, scenario in known.items():
        try:
            letter = _letter(scenario, recorded.get(name), arguments)
        except NotRunning as error:
            kept += 1
            print(f"{name}: its recorded letter is kept: {error}")
            letter = recorded.get(name, {}).get("letter")
        if letter is not None:
            recorded[name] = line_of(scenario, letter)
    write(recorded.values())
    lines = sum(len(line["cases"]) for line in recorded.values())
    print(f"{len(recorded)} letters, judged in {lines} situations; {kept} kept as they were")
    return 0


def _letter(
    scenario: Scenario, recorded: Mapping[str, Any] | None, asked: Sequence[str]
) -> Mapping[str, Any] | None:
    if asked and not scenario.name.startswith(tuple(asked)):
        return recorded and recorded["letter"]
    if scenario.needs:
        address(scenario.needs)
    return written(provoke(scenario))


def _print_score() -> int:
    found = predicted(judged(read()))
    for title, held_out in (("rules were made with these in mind", False), ("held out", True)):
        some = [(line, said) for line, said in found if line.held_out is held_out]
        right = sum(said is line.label for line, said in some)
        print(f"{title}: {right} of {len(some)} lines right")
        for one, figures in score_of(some).classes.items():
            print(
                f"  {one:22} lines {figures.labelled:3}  precision {figures.precision:.2f}"
                f"  recall {figures.recall:.2f}"
            )
        for line, said in some:
            if said is not line.label:
                print(f"  {_wrong(line, said)}")
    return 0


def _print_json() -> int:
    lines = list(judged(read()))
    known = [line for line in lines if not line.held_out]
    sets = {
        "known": predicted(known),
        "ledger_only": predicted(known, only_ledger=True),
        "held_out": predicted([line for line in lines if line.held_out]),
    }
    told = {
        name: {
            one: {
                "lines": figures.labelled,
                "precision": figures.precision,
                "recall": figures.recall,
            }
            for one, figures in score_of(found).classes.items()
            if figures.labelled
        }
        for name, found in sets.items()
    }
    print(json.dumps({"letters": len({line.scenario for line in lines}), **told}))
    return 0


def _wrong(line: Any, said: Any) -> str:
    letter = line.letter
    return (
        f"{line.scenario}: {line.label}, not {said} ({letter.category} {letter.error_code}"
        f" {letter.error_type}): {line.why}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
