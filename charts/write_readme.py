"""Write charts/angzarr/README.md from Chart.yaml and the comments of values.yaml.

`python charts/write_readme.py` writes it; with `--check` it only says whether it is up to date.
A line "# -- …" describes the key after it, further lines "# …" go on with it. A key without such a
line that has keys below it is a heading of theirs; any other is an error, so none goes undescribed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).parent / "angzarr"
README = CHART / "README.md"

HEAD = """# {name} {version}

{description}. Needs Kubernetes {kubernetes}
and Helm 3; KEDA, a Prometheus operator or Grafana only where you ask for what is theirs.

```
helm install shop charts/angzarr --namespace shop --values shop.yaml
```

with, at least:

```yaml
{minimal}```

[How to deploy with it](../../docs/how-to/deploy-with-helm.md), by example. What cannot work is
refused by one sentence, before anything is installed.

This page is made from `values.yaml`: change it there, then run `python charts/write_readme.py`.

## Values

| value | what | default |
|---|---|---|
"""


class Value(NamedTuple):
    """A value, as its comment describes it."""

    path: str
    about: str
    default: Any


class Undescribed(Exception):
    """A value has no comment."""


def read_values(text: str) -> Iterator[Value]:
    """Yield every described value of *text*, in order; raises Undescribed."""
    yield from _below(yaml.compose(text), [], text.splitlines())


def _below(node: Any, parents: list[str], lines: list[str]) -> Iterator[Value]:
    for key, value in node.value:
        path = [*parents, key.value]
        about = _comment_above(lines, key.start_mark.line)
        if about:
            yield Value(".".join(path), about, yaml.safe_load(yaml.serialize(value)))
        elif isinstance(value, yaml.MappingNode) and value.value and not value.flow_style:
            yield from _below(value, path, lines)
        else:
            raise Undescribed(".".join(path))


def _comment_above(lines: list[str], number: int) -> str:
    """Return the description that ends in the line before *number*, or an empty text."""
    found: list[str] = []
    for line in reversed(lines[:number]):
        words = line.strip()
        if not words.startswith("#"):
            break
        if words.startswith("# -- "):
            return " ".join([words.removeprefix("# -- "), *reversed(found)])
        found.append(words.lstrip("# "))
    return ""


def render() -> str:
    """Return the page."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    minimal = (CHART / "ci" / "minimal.yaml").read_text()
    head = HEAD.format(
        name=chart["name"],
        version=chart["version"],
        description=chart["description"],
        kubernetes=chart["kubeVersion"].removesuffix("-0").replace(">=", "≥ "),
        minimal=minimal,
    )
    rows = [
        f"| `{one.path}` | {one.about.replace('|', chr(92) + '|')} | {_shown(one.default)} |"
        for one in read_values((CHART / "values.yaml").read_text())
    ]
    return head + "\n".join(rows) + "\n"


def _shown(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return ""
    text = json.dumps(value, ensure_ascii=False).replace("|", "\\|")
    return f"`{text}`"


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    page = render()
    if "--check" not in arguments:
        README.write_text(page)
        return 0
    if README.exists() and README.read_text() == page:
        return 0
    print(f"{README} is not what values.yaml says: run python charts/write_readme.py")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
