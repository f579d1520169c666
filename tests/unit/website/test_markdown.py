"""GitHub's Markdown becomes the site's and says the same."""

from __future__ import annotations

import pytest
from website.markdown import (
    as_page,
    blank_code,
    drawn_elsewhere,
    links,
    relink,
    slug,
    widen_lists,
)


@pytest.mark.parametrize(
    ("title", "anchor"),
    [
        ("What you write", "what-you-write"),
        ("`SIGTERM`, and then?", "sigterm-and-then"),
        ("Redis & co", "redis--co"),
        ("dlq_letters / a gauge", "dlq_letters--a-gauge"),
    ],
)
def test_anchors_are_githubs(title, anchor):
    assert slug(title) == anchor


def test_code_is_blanked_and_nothing_moves():
    text = "see `[a](b.md)`\n```\n[c](d.md)\n```\n[e](f.md)\n"
    blanked = blank_code(text)
    assert len(blanked) == len(text)
    assert blanked.count("\n") == text.count("\n")
    assert list(links(text)) == [("e", "f.md")]


def test_a_link_whose_text_is_code_keeps_its_text():
    assert list(links("[`a[0]`](b.md)")) == [("`a[0]`", "b.md")]


def test_a_lone_backtick_hides_no_link_of_the_next_paragraph():
    assert list(links("a ` alone\n\n[b](c.md) and ` again")) == [("b", "c.md")]


def test_only_targets_outside_of_code_are_replaced():
    text = "[a](x.md) `[a](x.md)` ![p](x.svg)"
    assert relink(text, str.upper) == "[a](X.MD) `[a](x.md)` ![p](X.SVG)"


def test_what_belongs_to_a_point_is_indented_by_four_whatever_its_marker():
    text = (
        "1. first\n\n   ```\n   code\n   ```\n2. second\n\n"
        "* point\n  goes on\n\nprose\n  as it was\n"
    )
    assert widen_lists(text) == (
        "1. first\n\n    ```\n    code\n    ```\n2. second\n\n"
        "* point\n    goes on\n\nprose\n  as it was\n"
    )


def test_code_that_looks_like_a_list_is_left_alone():
    text = "```\n* no point\n  nor this\n```\n"
    assert widen_lists(text) == text


def test_a_diagram_that_a_program_would_draw_is_seen():
    assert drawn_elsewhere("a\n\n  ```mermaid\n  x\n  ```")
    assert not drawn_elsewhere("```text\nmermaid\n```")


def test_a_file_with_fences_in_it_is_shown_whole():
    page = as_page("a.py", "```\nx\n```\n", "python")
    assert page == "# a.py\n\n````python\n```\nx\n```\n````\n"
