"""The pages say what the code has: names, links, samples and the tests that promises rest on."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import click
import httpx
import pytest
from pydantic import BaseModel

import angzarr
from angzarr import aggregates, delivery, errors, events, resilience, sagas
from angzarr.cli.main import main
from angzarr.events import headers
from angzarr.facts.act import ActKind, ActOrigin
from angzarr.settings.settings import Settings, load

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\((?!https?:|mailto:)([^)\s]+)\)")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in _BLOCK.findall(page.read_text()) if kind == language]


def prose(page: Path) -> str:
    return _BLOCK.sub("", page.read_text())


def by_name(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


# -- links ---------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return what GitHub lets a link point at: slugs of headings, and ids written out."""
    text = prose(page)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_no_link_is_dead(page):
    for link in _LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link} names no heading"


def test_every_page_is_in_the_index():
    index = (DOCS / "index.md").read_text()
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in _LINK.findall(index)}
    pages = {page for page in DOCS.rglob("*.md") if page != DOCS / "index.md"}
    assert pages - listed == set()


# -- decisions and changes -------------------------------------------------------------------


def test_each_decision_has_a_number_of_its_own_and_says_it():
    pages = sorted((DOCS / "adr").glob("*.md"))
    numbers = [page.name[:4] for page in pages]
    assert numbers == [f"{n:04}" for n in range(1, len(pages) + 1)], "the later one takes the next"
    assert [p.name for p in pages if not p.read_text().startswith(f"# {p.name[:4]} ")] == []


def test_the_changes_of_a_release_stand_once_under_one_heading_each():
    for release in re.split(r"^## ", (CHECKOUT / "CHANGELOG.md").read_text(), flags=re.MULTILINE):
        headings = re.findall(r"^### (.+)$", release, re.MULTILINE)
        assert headings == sorted(set(headings), key=["Added", "Changed", "Fixed"].index)
        lines = re.findall(r"^- .+$", release, re.MULTILINE)
        assert [line for line in set(lines) if lines.count(line) > 1] == []


# -- names ---------------------------------------------------------------------------------


def settings_of(model: type[BaseModel], parents: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            yield from settings_of(field.annotation, (*parents, name))
        else:
            yield (*parents, name)


@pytest.mark.parametrize("path", list(settings_of(Settings)), ids=".".join)
def test_every_setting_is_listed_with_its_variable(path):
    variable = "ANGZARR_" + "__".join(path).upper()
    rows = [
        line
        for line in (REFERENCE / "configuration.md").read_text().splitlines()
        if line.startswith(f"| `{'.'.join(path)}` |")
    ]
    assert [f"`{variable}`" in row for row in rows] == [True]


def test_no_setting_is_listed_that_does_not_exist():
    said = re.findall(
        r"^\| `([a-z_.]+)` \|.*`ANGZARR_[A-Z_]+` \|$",
        (REFERENCE / "configuration.md").read_text(),
        re.MULTILINE,
    )
    assert set(said) == {".".join(path) for path in settings_of(Settings)}


def constants() -> dict[str, str]:
    return {
        name: value
        for name, value in vars(headers).items()
        if name.isupper() and isinstance(value, str) and not name.startswith("_")
    }


def test_every_header_is_listed_under_its_constant():
    page = (REFERENCE / "headers.md").read_text()
    missing = [n for n, value in constants().items() if f"| `{value}` | `{n}` |" not in page]
    assert missing == []
    assert [name for name in headers.BROKER_COUNTERS if f"`{name}`" not in page] == []


def test_every_error_is_listed():
    classes = {
        name
        for name, found in vars(errors).items()
        if inspect.isclass(found)
        and issubclass(found, errors.AngzarrError)
        and not name.startswith("_")
    }
    page = (REFERENCE / "public-api.md").read_text()
    assert [name for name in sorted(classes) if f"`{name}" not in page] == []


def test_every_public_name_is_listed():
    page = (REFERENCE / "public-api.md").read_text()
    public = [
        name
        for package in (angzarr, aggregates, delivery, events, resilience, sagas)
        for name in package.__all__
    ]
    assert [name for name in public if f"`{name}`" not in page] == []


def test_every_room_is_on_the_map_and_no_other():
    map_ = (DOCS / "architecture.md").read_text()
    (tree,) = (text for text in blocks(DOCS / "architecture.md", "") if "src/angzarr/" in text)
    root = CHECKOUT / "src" / "angzarr"
    rooms = {str(path.parent.relative_to(root)) for path in root.rglob("__init__.py")} - {"."}
    rooms |= {path.stem for path in root.glob("*.py") if not path.stem.startswith("_")}
    said = set(re.findall(r"^  ([a-z_/0-9]+)  ", tree, re.MULTILINE))
    assert said == {room for room in rooms if "migrations" not in room}
    assert len(map_.splitlines()) <= 350, "the map is smaller than the country"


def test_every_module_that_the_map_names_exists():
    root = CHECKOUT / "src" / "angzarr"
    named = re.findall(r"[a-z_]+(?:/[a-z_]+)+\.(?:py|yaml)", (DOCS / "architecture.md").read_text())
    assert len(named) > 10
    assert [one for one in named if not (root / one).exists()] == []


def test_every_make_target_that_is_named_exists():
    known = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    said = {
        target
        for page in PAGES
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert said - known == set()


# -- promises ------------------------------------------------------------------------------


def test_every_promise_names_tests_that_exist():
    pages = [DOCS / "guarantees.md", *sorted((DOCS / "adr").glob("*.md"))]
    said = {name for page in pages for name in re.findall(r"`(test_\w+)`", page.read_text())}
    files = (CHECKOUT / "tests").rglob("*.py")
    known = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert said - known == set()


# -- samples -------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_sample_is_valid_python(page):
    for sample in blocks(page, "python"):
        ast.parse(textwrap.dedent(sample))


def test_every_yaml_sample_of_settings_loads(tmp_path):
    pages = [CHECKOUT / "README.md", REFERENCE / "configuration.md", DOCS / "how-to/configure.md"]
    samples = [sample for page in pages for sample in blocks(page, "yaml")]
    file = tmp_path / "settings.yaml"
    for sample in samples:
        file.write_text(sample)
        load({}, file)
    assert len(samples) >= 5


@pytest.fixture
def orders(monkeypatch):
    """The module that the README shows."""
    monkeypatch.delenv("ANGZARR_CONFIG", raising=False)
    sample, _ = blocks(CHECKOUT / "README.md", "python")
    module = types.ModuleType("orders")
    monkeypatch.setitem(sys.modules, "orders", module)
    exec(compile(sample, "README.md", "exec"), module.__dict__)  # noqa: S102 - our own page
    yield module
    module.app.close()


def test_the_readmes_handler_runs(orders, monkeypatch):
    posted = []

    def post(url: str, *, json: object) -> httpx.Response:
        posted.append(json)
        return httpx.Response(200, request=httpx.Request("POST", url))

    monkeypatch.setattr(httpx, "post", post)
    orders.sync_to_crm.apply(args=[{"order_id": "o-1", "total": "9.90"}]).get()
    assert posted == [{"order_id": "o-1", "total": "9.90"}]
    with pytest.raises(angzarr.GiveUp):
        orders.sync_to_crm.apply(args=[{"order_id": "o-2", "total": "-1"}]).get()


def test_the_readme_publishes_to_its_handler(orders, monkeypatch):
    sent = []
    monkeypatch.setattr(
        orders.app, "send_task", lambda name, **options: sent.append((name, options["args"]))
    )
    _, sample = blocks(CHECKOUT / "README.md", "python")
    exec(compile(sample, "README.md", "exec"), {})  # noqa: S102 - our own page
    assert sent == [("orders.sync_to_crm", [{"order_id": "o-1", "total": str(Decimal("9.90"))}])]


def test_what_the_tutorial_publishes_is_published():
    (sample,) = [one for one in blocks(DOCS / "tutorial.md", "python") if "app.publish(" in one]
    env = {**os.environ, "CELERY_BROKER_URL": "memory://", "PYTHONPATH": str(CHECKOUT / "src")}
    env.pop("ANGZARR_CONFIG", None)
    told = subprocess.run(
        [sys.executable, "-c", sample],
        cwd=CHECKOUT / "examples", env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr


# -- commands ------------------------------------------------------------------------------


def commands(command: click.Command, path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name), f"{path} {name}")


def test_every_command_is_on_its_page():
    rows = re.findall(
        r"^\| (`angzarr [^|]*) \|", (REFERENCE / "commands.md").read_text(), re.MULTILINE
    )
    told = set()
    for row in rows:
        first, *verbs = re.findall(r"`([^`]+)`", row)
        told |= {first, *(f"{first.rpartition(' ')[0]} {verb}" for verb in verbs)}
    assert set(commands(main, "angzarr")) == told


def test_every_act_is_in_the_reference():
    page = (REFERENCE / "facts.md").read_text()
    acts = page[page.index("\n## Acts\n") : page.index("\n## Errors\n")]
    words = [word.value for word in (*ActKind, *ActOrigin)]
    assert [word for word in words if f"`{word}`" not in acts] == []
