"""The site's menu is docs/index.md read aloud: its order, its names, every page."""

from __future__ import annotations

from pathlib import Path

from website.index import Listed, listed, navigation

CHECKOUT = Path(__file__).resolve().parents[3]

INDEX = """# Documentation

| you want to | read |
|---|---|
| try it | [First steps](tutorial.md), [Why](why.md#why) |

## How to

* [Use `redis`](how-to/redis.md), also told [elsewhere](https://example.com/how-to)
* [Use it again](how-to/redis.md)

```
[not a page](in-code.md)
```

## Decisions

| | |
|---|---|
| [0001](adr/0001-a.md) | A decision |
"""


def test_pages_come_in_the_order_of_the_index_under_its_headings():
    assert list(listed(INDEX)) == [
        Listed("", "First steps", "tutorial.md"),
        Listed("", "Why", "why.md"),
        Listed("How to", "Use `redis`", "how-to/redis.md"),
        Listed("Decisions", "0001", "adr/0001-a.md"),
    ]


def test_the_menu_has_a_section_a_heading_and_numbers_take_the_pages_own_title():
    assert navigation(list(listed(INDEX)), "Start") == [
        {"Start": ["index.md", {"First steps": "tutorial.md"}, {"Why": "why.md"}]},
        {"How to": [{"Use `redis`": "how-to/redis.md"}]},
        {"Decisions": ["adr/0001-a.md"]},
    ]


def test_every_page_of_docs_is_in_the_menu():
    docs = CHECKOUT / "docs"
    named = {one.page for one in listed((docs / "index.md").read_text())} | {"index.md"}
    assert {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - named == set()
