"""What MkDocs calls while it builds: the menu from the index, files outside docs/ as pages."""

from __future__ import annotations

import logging
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from website import index, markdown, outside

ROOT = Path(__file__).resolve().parents[1]
#: Files beside docs/ that stand in the menu, under this heading.
ABOUT = "Project"
FIRST = "Start"
#: A warning under this name ends a strict build.
_log = logging.getLogger("mkdocs.plugins.website")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the menu from docs/index.md and the anchors from GitHub's rule."""
    pages = [
        one._replace(page=_in_site(one.page), section=_section(one))
        for one in index.listed((ROOT / "docs/index.md").read_text())
    ]
    config.nav = index.navigation(sorted(pages, key=lambda one: one.section == ABOUT), FIRST)
    config.mdx_configs["toc"] = {"permalink": True, "slugify": markdown.slug}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside docs/ that some page links to."""
    pages = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    named = set(_pages_of(config.nav))
    for path in outside.reached(pages, _read):
        shown = outside.shown_as(path)
        try:
            text = outside.content(ROOT, path)
        except (OSError, UnicodeDecodeError) as error:
            _log.warning("%s cannot be shown: %s", path, error)
            continue
        how = InclusionLevel.INCLUDED if shown in named else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, shown, content=text, inclusion=how))
        _SOURCES[shown] = path
    return files


def on_page_markdown(text: str, page: Page, **_: object) -> str:
    """Make GitHub's Markdown the site's."""
    here = page.file.src_uri
    if markdown.drawn_elsewhere(text):
        _log.warning(
            "%s has a Mermaid diagram, which this site does not draw: draw it as text", here
        )
    text = outside.rewrite(text, _SOURCES.get(here, f"docs/{here}"), here)
    return markdown.widen_lists(text)


#: Page that shows a file outside docs/ → that file, from the root of the project.
_SOURCES: dict[str, str] = {}


def _read(path: str) -> str:
    return (ROOT / path).read_text() if (ROOT / path).is_file() else ""


def _in_site(page: str) -> str:
    path, _ = outside.place(page, "docs/index.md")
    return page if path.startswith("docs/") else outside.shown_as(path)


def _section(one: index.Listed) -> str:
    return ABOUT if one.page.startswith("../") else one.section


def _pages_of(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    if isinstance(nav, dict):
        nav = list(nav.values())
    return [page for one in nav for page in _pages_of(one)] if isinstance(nav, list) else []
