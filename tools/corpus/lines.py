"""The recorded set: one JSON line a letter, with the cases that it is judged in."""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.corpus import held_out, themes
from tools.corpus.scenario import SCENARIOS, Scenario

from angzarr.analysis.ledger.entry import FailureClass
from angzarr.dead_letters.codec import JSON_CONTENT_TYPE, decode, encode
from angzarr.dead_letters.letter import DeadLetter

RECORDED = Path(__file__).with_name("letters.jsonl")


@dataclass(frozen=True)
class Line:
    """A letter in one situation."""

    scenario: str
    #: Whether no rule was ever made with it in mind.
    held_out: bool
    label: FailureClass
    why: str
    situation: Mapping[str, Any]
    letter: DeadLetter


def scenarios() -> dict[str, Scenario]:
    """Return all scenarios by name, in a fixed order."""
    for package in (themes, held_out):
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda one: one.name):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(SCENARIOS.items()))


def line_of(scenario: Scenario, letter: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what is recorded of *scenario*: its *letter*, and its cases as they are now."""
    return {
        "scenario": scenario.name,
        "needs": scenario.needs,
        "held_out": scenario.held_out,
        "cases": [
            {"label": case.label.value, "why": case.why, "situation": case.situation.as_json()}
            for case in scenario.cases
        ],
        "letter": letter,
    }


def written(letter: DeadLetter) -> dict[str, Any]:
    """Return the letter in wire JSON, or in base64 where JSON would lose what others wrote."""
    encoded = encode(letter)
    if encoded.content_type == JSON_CONTENT_TYPE:
        return json.loads(encoded.body)
    return {"base64": base64.b64encode(encoded.body).decode(), "contentType": encoded.content_type}


def letter_of(line: Mapping[str, Any]) -> DeadLetter:
    """Read the letter of a recorded line with production's codec; raises DecodeError."""
    written = line["letter"]
    if "base64" in written:
        return decode(base64.b64decode(written["base64"]), written["contentType"])
    return decode(json.dumps(written).encode(), JSON_CONTENT_TYPE)


def write(recorded: Iterable[Mapping[str, Any]], path: Path = RECORDED) -> None:
    lines = sorted(recorded, key=lambda line: line["scenario"])
    text = "".join(f"{json.dumps(line, sort_keys=True, ensure_ascii=False)}\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def read(path: Path = RECORDED) -> list[dict[str, Any]]:
    """Return the recorded lines as they stand in the file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def judged(recorded: Iterable[Mapping[str, Any]]) -> Iterator[Line]:
    """Yield each letter once for each situation that it is judged in."""
    for line in recorded:
        letter = letter_of(line)
        for case in line["cases"]:
            label = FailureClass(case["label"])
            yield Line(
                line["scenario"], line["held_out"], label, case["why"], case["situation"], letter
            )
