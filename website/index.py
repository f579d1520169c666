"""The order of the site's pages: that of docs/index.md, so that no second list can disagree.

Pure: text in, values out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from website.markdown import links

#: A page alone, named by its own heading; a page with a name; a section with its pages.
Entry = str | dict[str, str] | dict[str, list["Entry"]]

_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
#: Link texts that name nothing without the rest of their line: numbers of decisions.
_NUMBER = re.compile(r"\d+")


class Listed(NamedTuple):
    """A page as the index lists it, under a section ("" before the first)."""

    section: str
    title: str
    page: str


def listed(index: str) -> Iterator[Listed]:
    """Yield every page that *index* links to, once, in its order."""
    seen = set()
    first, *rest = _HEADING.split(index)
    for section, text in [("", first), *zip(rest[::2], rest[1::2], strict=True)]:
        for title, target in links(text):
            page = target.partition("#")[0]
            if page not in seen and ":" not in page:
                seen.add(page)
                yield Listed(section, title, page)


def navigation(pages: list[Listed], first: str) -> list[Entry]:
    """Return the menu: *first* as the section of the pages that stand before every heading."""
    sections: dict[str, list[Entry]] = {first: ["index.md"]}
    for one in pages:
        named = one.page if _NUMBER.fullmatch(one.title) else {one.title: one.page}
        sections.setdefault(one.section or first, []).append(named)
    return [{section: entries} for section, entries in sections.items()]
