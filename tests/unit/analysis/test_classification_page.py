"""The page of the reference says what rules can."""

from __future__ import annotations

from pathlib import Path

import yaml

from angzarr.analysis.classification.evidence import SAID
from angzarr.analysis.classification.rule_conditions import CONDITIONS
from angzarr.analysis.ledger.entry import FailureClass
from angzarr.analysis.ledger.transition import Action
from angzarr.settings.settings import load

PAGE = (Path(__file__).parents[3] / "docs/reference/classification.md").read_text()


def test_every_condition_is_on_the_page_with_what_it_asks_for():
    missing = [n for n, known in CONDITIONS.items() if f"| `{n}` |" not in PAGE]
    wrong = [n for n, known in CONDITIONS.items() if f"| {known.what} |" not in PAGE]
    assert (missing, wrong) == ([], [])


def test_every_class_action_and_word_is_on_the_page():
    words = [*FailureClass, *Action, *(f"{{{name}}}" for name in SAID)]
    assert [word for word in words if f"`{word}`" not in PAGE] == []


def test_the_samples_of_settings_load(tmp_path):
    file = tmp_path / "settings.yaml"
    samples = [block.partition("```")[0] for block in PAGE.split("```yaml\n")[1:]]
    for sample in samples:
        assert "analysis" in yaml.safe_load(sample)
        file.write_text(sample)
        load({}, file)
    assert samples
