"""A link that leaves docs/ leads to a page of the site that shows the file."""

from __future__ import annotations

import pytest
from website.outside import content, place, reached, rewrite


@pytest.mark.parametrize(
    ("target", "page", "found"),
    [
        ("../README.md#try", "docs/index.md", ("README.md", "try")),
        ("../../src/x/rules.yaml", "docs/reference/a.md", ("src/x/rules.yaml", "")),
        ("docs/why.md", "README.md", ("docs/why.md", "")),
        ("#here", "docs/index.md", ("", "here")),
        ("https://example.com/a", "docs/index.md", ("", "")),
        ("mailto:a@example.com", "docs/index.md", ("", "")),
        ("../../etc/passwd", "docs/index.md", ("", "")),
    ],
)
def test_a_target_is_found_from_the_root_of_the_project(target, page, found):
    assert place(target, page) == found


def test_links_out_of_docs_lead_to_the_pages_that_show_their_targets():
    text = "[r](../README.md#try) [e](../examples/a.py) [w](why.md) [u](https://example.com)"
    assert rewrite(text, "docs/index.md", "index.md") == (
        "[r](project/readme.md#try) [e](project/examples/a.py.md) [w](why.md)"
        " [u](https://example.com)"
    )


def test_links_of_a_shown_page_lead_back_into_the_site():
    text = "[w](docs/why.md) [c](CHANGELOG.md) [i](#here)"
    assert rewrite(text, "README.md", "project/readme.md") == (
        "[w](../why.md) [c](changelog.md) [i](#here)"
    )


def test_what_a_shown_page_links_to_is_shown_too_and_once():
    pages = {
        "docs/index.md": "[r](../README.md) [again](../README.md)",
        "README.md": "[l](LICENSE) [i](docs/index.md)",
    }
    assert list(reached(["docs/index.md"], lambda page: pages[page])) == ["README.md", "LICENSE"]


def test_a_folder_is_shown_with_its_files(tmp_path):
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "b.proto").write_text("message B {}\n")
    (tmp_path / "wire" / "a.proto").write_text("message A {}\n")
    page = content(tmp_path, "wire")
    assert page.startswith("# wire\n\n## a.proto\n\n```protobuf\nmessage A {}\n```\n")
    assert page.index("## a.proto") < page.index("## b.proto")


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(OSError, match=r"gone\.py"):
        content(tmp_path, "gone.py")
