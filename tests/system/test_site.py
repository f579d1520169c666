"""A page with a fault does not become a site: the build names it and fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak
CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A copy of what the site is made of."""
    for folder in (
        "charts", "docs", "website", "examples", "proto", "src/angzarr/analysis", "tests/unit"
    ):  # fmt: skip
        shutil.copytree(CHECKOUT / folder, tmp_path / folder)
    for file in CHECKOUT.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    return tmp_path


@pytest.fixture
def build(checkout, docs_python):
    def run():
        done = subprocess.run(
            [docs_python, "-m", "mkdocs", "build", "--strict"],
            cwd=checkout, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return done.stdout + done.stderr
        checked = subprocess.run(
            [docs_python, "-m", "website", "build/site"],
            cwd=checkout, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return checked.stderr if checked.returncode else ""

    return run


def test_the_pages_as_they_are_make_a_site(build, checkout):
    assert build() == ""
    built = {page.relative_to(checkout / "build/site") for page in checkout.rglob("*.html")}
    pages = [page.relative_to(checkout / "docs") for page in (checkout / "docs").rglob("*.md")]
    assert [page for page in pages if page.with_suffix(".html") not in built] == []


#: One fault goes into each of these.
PAGES = ("why", "guarantees", "tutorial", "glossary", "architecture")
#: What a page says → what the build says of it. mkdocs finds these …
BUILD_FAULTS = {
    "see [x](nowhere.md)\n": "nowhere.md",
    "see [x](guarantees.md#no-such-heading)\n": "no-such-heading",
    "see [x](/why.html)\n": "/why.html",
    "see [x](../nowhere.py)\n": "nowhere.py cannot be shown",
    "```mermaid\ngraph LR\n```\n": "architecture.md has a Mermaid diagram",
}
#: … and these are found in the site that it built.
SITE_FAULTS = {
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n| 3 | 4 |\n": "raw markup: | 3 | 4 |",
    "| a | b |\n|---|---|\n| 1 | 2 |\n## Gone\n": "raw markup: ## Gone",
    '<img src="https://cdn.example/x.png">\n': "fetches https://cdn.example/x.png",
}


@pytest.mark.parametrize("faults", [BUILD_FAULTS, SITE_FAULTS], ids=["build", "site"])
def test_every_fault_of_a_page_is_named_and_ends_the_build(build, checkout, faults):
    for name, text in zip(PAGES, faults, strict=False):
        page = checkout / "docs" / f"{name}.md"
        page.write_text(page.read_text() + "\n" + text)
    said = build()
    assert [text for text, sentence in faults.items() if sentence not in said] == [], said


def test_a_page_that_the_index_does_not_list_ends_the_build(build, checkout):
    (checkout / "docs" / "how-to" / "forgotten.md").write_text("# Forgotten\n")
    assert "how-to/forgotten.md" in build()
