from __future__ import annotations

import re
from pathlib import Path

from angzarr.dead_letters import metadata

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "dead-letters.md"


def test_the_reference_lists_every_key_and_no_other():
    section = PAGE.read_text().partition("\n## Metadata\n")[2].partition("\n## ")[0]
    listed = [
        key
        for line in section.splitlines()
        if line.startswith("| `")
        for key in re.findall("`([a-z0-9_]+)`", line.split("|")[1])
    ]
    constants = {
        value
        for name, value in vars(metadata).items()
        if name.isupper() and isinstance(value, str) and not name.startswith("_")
    }
    assert sorted(listed) == sorted(constants | {fact.key for fact in metadata._FACTS})
