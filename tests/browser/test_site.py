"""The documentation site in a browser: readable at both widths, by day and night, and by itself."""

from __future__ import annotations

import fcntl
import http.server
import os
import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = (
    "index.html",
    "tutorial.html",
    "guarantees.html",
    "reference/breakers.html",
    "how-to/run-the-dashboard.html",
    "project/readme.html",
    "404.html",
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory, docs_python):
    """The site, built anew by the first of the processes that share the tests."""
    mine = tmp_path_factory.getbasetemp()
    shared = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            build(docs_python, folder)
    return folder


def build(python, folder):
    command = [python, "-m", "mkdocs", "build", "--strict", "--site-dir", f"{folder}.part"]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    Path(f"{folder}.part").rename(folder)


@pytest.fixture(scope="module")
def address(site):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(60)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_their_window_and_ask_nobody_else_for_anything(open_visit, width, scheme):
    visit = open_visit(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for page in PAGES:
        assert visit.go(f"/{page}").status == 200
        heading = visit.page.locator("h1").first
        assert heading.is_visible()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, page
        ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) > 380) == (scheme == "light"), ground


def test_the_search_finds_a_page(visit):
    visit.go("/index.html")
    visit.page.locator(".md-search__input").fill("poison wave")
    hit = visit.page.locator(".md-search-result__link").first
    hit.wait_for()
    hit.click()
    visit.page.wait_for_url("**/*.html?h=*")
    assert "oison" in visit.page.locator("article").inner_text()


def test_a_sample_can_be_copied(open_visit):
    visit = open_visit(permissions=["clipboard-read", "clipboard-write"])
    visit.go("/how-to/run-the-dashboard.html")
    visit.page.locator("button[data-md-type=copy], .md-clipboard").first.click()
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("pip install '.[dashboard]'")


def test_a_figure_is_shown(visit):
    visit.go("/reference/breakers.html")
    figure = visit.page.locator("article img").first
    assert figure.evaluate("image => image.complete && image.naturalWidth > 100")


def test_the_menu_has_the_sections_of_the_index(visit):
    visit.go("/index.html")
    tabs = visit.page.locator(".md-tabs__link").all_inner_texts()
    index = (CHECKOUT / "docs/index.md").read_text()
    headings = [line[3:] for line in index.splitlines() if line.startswith("## ")]
    assert [tab.strip() for tab in tabs] == ["Start", *headings, "Project"]
