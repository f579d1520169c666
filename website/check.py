"""What must hold of the built site, whatever built it: no dead link, no other host, no raw markup.

MkDocs checks the links of Markdown; this reads what a browser would read, the theme's part and the
404 page with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from website.html import Parts, parts

#: Markdown that was left as it was written: bold, links, headings, fences, rows of a table.
_MARKUP = re.compile(r"\*\*\w|\]\(|^\s*#{2,6} |```|^\s*\|[ -]|^\s*\* \w", re.MULTILINE)
#: What a style sheet fetches.
_STYLE = re.compile(r"""url\(\s*["']?((?:https?:)?//[^)"']+)|@import\s+["']([^"']+)""")


def faults(site: Path, pages: list[Path]) -> Iterator[str]:
    """Yield a line for every fault of *pages* and of the style sheets of *site*."""
    for page in pages:
        found = _read(page)
        name = page.relative_to(site)
        yield from (f"{name}: fetches {url}" for url in found.fetched if _foreign(url))
        yield from (f"{name}: raw markup: {text.strip()[:60]}" for text in _raw(found))
        for link in [*found.links, *found.fetched]:
            if why := _dead(site, page, link):
                yield f"{name}: {link} {why}"
    for sheet in sorted(site.rglob("*.css")):
        for match in _STYLE.finditer(sheet.read_text()):
            yield f"{sheet.relative_to(site)}: fetches {match[1] or match[2]}"


def _raw(found: Parts) -> list[str]:
    return [text for text in found.prose if _MARKUP.search(text)]


def _foreign(url: str) -> bool:
    return bool(urlsplit(url).netloc)


def _dead(site: Path, page: Path, link: str) -> str:
    """Say why *link* leads nowhere; "" where it leads to a page, or away from the site."""
    url = urlsplit(link)
    if url.scheme or url.netloc:
        return ""
    path = unquote(url.path)
    base = site if path.startswith("/") else page.parent
    target = (base / path.lstrip("/")).resolve() if path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_relative_to(site.resolve()):
        return "leaves the site"
    if not target.is_file():
        return "leads nowhere"
    if target.suffix == ".html" and unquote(url.fragment) not in _read(target).anchors:
        return "names no anchor"
    return ""


@cache
def _read(page: Path) -> Parts:
    return parts(page.read_text())
