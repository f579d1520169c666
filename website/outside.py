"""Files of the project that pages link to and that lie outside docs/: each is a page of the site.

On GitHub such a link opens the file. A site has no files beside it, so it shows them itself.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from website.markdown import as_page, links, relink

#: The folder of the site that shows them.
SHOWN = "project"
#: Suffix → the language whose colours it gets.
_LANGUAGES = {".py": "python", ".proto": "protobuf", ".yaml": "yaml", ".toml": "toml", "": "text"}


def place(target: str, page: str) -> tuple[str, str]:
    """Return where *target* on *page* leads, from the root of the project, and its anchor.

    *page* is from there too. The place is "" for what leaves the project or names the page itself.
    """
    path, _, anchor = target.partition("#")
    if not path or ":" in path or path.startswith("/"):
        return "", anchor
    found = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return ("" if found.startswith("..") else found), anchor


def shown_as(path: str) -> str:
    """Return the page, from docs/, that shows the file or folder *path* of the project."""
    if PurePosixPath(path).suffix == ".md":
        return f"{SHOWN}/{path.lower()}"
    return f"{SHOWN}/{path}.md"


def rewrite(text: str, page: str, here: str) -> str:
    """Turn links of *page* that leave docs/ into links to the pages that show their targets.

    *page* is where the text lies in the project, *here* its place from docs/, which for a page that
    is shown differs.
    """

    def target(written: str) -> str:
        path, anchor = place(written, page)
        if not path:
            return written
        to = path.removeprefix("docs/") if _in_docs(path) else shown_as(path)
        relative = posixpath.relpath(to, posixpath.dirname(here) or ".")
        return f"{relative}#{anchor}" if anchor else relative

    return relink(text, target)


def reached(pages: Iterable[str], read: Callable[[str], str]) -> Iterator[str]:
    """Yield every path outside docs/ that *pages* link to, or that a page so reached links to."""
    waiting, seen = list(pages), set()
    while waiting:
        page = waiting.pop(0)
        for _, target in links(read(page)):
            path, _ = place(target, page)
            if path and not _in_docs(path) and path not in seen:
                seen.add(path)
                yield path
                if path.endswith(".md"):
                    waiting.append(path)


def content(root: Path, path: str) -> str:
    """Return the page that shows *path*: Markdown as it is, code between fences, a folder's files.

    Raises OSError where nothing is there.
    """
    found = root / path
    if found.is_dir():
        files = sorted(one for one in found.iterdir() if one.is_file())
        return f"# {path}\n\n" + "\n".join(
            as_page(one.name, one.read_text(), _language(one)).replace("# ", "## ", 1)
            for one in files
        )
    text = found.read_text()
    return text if found.suffix == ".md" else as_page(path, text, _language(found))


def _language(file: Path) -> str:
    return _LANGUAGES.get(file.suffix, "text")


def _in_docs(path: str) -> bool:
    return path == "docs" or path.startswith("docs/")
