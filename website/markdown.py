"""What differs between GitHub's Markdown and the site's. Pure: text in, text out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

#: A link or picture: its text, its target. Titles behind targets are not used on our pages.
_LINK = re.compile(r"\[((?:[^\]\[\n]|\[[^\]\n]*\])*)\]\(([^)\s]+)\)")

_FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^ *\2`*~* *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`)((?:(?!\n\n).)+?)(?<!`)\1(?!`)", re.DOTALL)
_MARKER = re.compile(r"(?:[*+-]|\d+\.) +")
_PICTURE = re.compile(r"^( *)```mermaid$", re.MULTILINE)
#: Python-Markdown wants this much before what belongs to a point of a list, whatever its marker.
_INDENT = 4


def slug(title: str, separator: str = "-") -> str:
    """Return the anchor that GitHub gives a heading: links written for it work on the site too."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator)


def blank_code(text: str) -> str:
    """Replace code by spaces of the same shape, so that nothing in it is taken for Markdown."""
    for pattern in (_FENCE, _CODE):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


def links(text: str) -> Iterator[tuple[str, str]]:
    """Yield the text and the target of every link outside of code."""
    for found in _LINK.finditer(blank_code(text)):
        yield text[slice(*found.span(1))], text[slice(*found.span(2))]


def relink(text: str, target: Callable[[str], str]) -> str:
    """Replace the target of every link outside of code by what *target* makes of it."""
    parts, end = [], 0
    for found in _LINK.finditer(blank_code(text)):
        start, stop = found.span(2)
        parts += [text[end:start], target(text[start:stop])]
        end = stop
    return "".join([*parts, text[end:]])


def widen_lists(text: str) -> str:
    """Indent what belongs to a point of a list by four, as Python-Markdown needs it.

    GitHub takes the width of the marker: two or three. Code between fences is left alone unless it
    belongs to a point itself.
    """
    lines, width, fenced = [], 0, False
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if not fenced and line and indent < width:
            width = 0
        if not fenced and not width and (marker := _MARKER.match(line)):
            width = len(marker[0])
            lines.append(line)
            continue
        fenced ^= line.lstrip(" ").startswith("```")
        inside = width and line.strip()
        lines.append(" " * (_INDENT - width) + line if inside and width < _INDENT else line)
    return "\n".join(lines)


def drawn_elsewhere(text: str) -> bool:
    """Tell whether *text* has a Mermaid diagram: a program of another host would draw it."""
    return bool(_PICTURE.search(text))


def as_page(title: str, code: str, language: str) -> str:
    """Return a page that shows a file: *code* between fences that it does not contain itself."""
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    return f"# {title}\n\n{fence}{language}\n{code.rstrip()}\n{fence}\n"
