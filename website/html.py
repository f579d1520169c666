"""What a built page asks for, offers and says, read from its HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

#: Elements whose text is no prose.
_CODE = frozenset({"code", "pre", "script", "style", "svg", "title"})
#: Element → the attribute by which a browser fetches something by itself.
_FETCHED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}


@dataclass
class Parts:
    """Of one page: what it links to, fetches by itself, can be linked to at, and its prose."""

    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=lambda: {""})
    prose: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts = Parts()
        self.code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.parts.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.parts.links.append(values["href"])
        if _FETCHED.get(tag) in values:
            self.parts.fetched.append(values[_FETCHED[tag]])
        self.code += tag in _CODE

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag in _CODE

    def handle_data(self, data: str) -> None:
        if not self.code and data.strip():
            self.parts.prose.append(data)


def parts(html: str) -> Parts:
    """Return what *html* links to, fetches, offers and says."""
    reader = _Reader()
    reader.feed(html)
    return reader.parts
