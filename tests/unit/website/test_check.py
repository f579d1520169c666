"""The built site is read as a browser reads it, and every fault is named."""

from __future__ import annotations

import pytest
from website.check import faults

SOUND = '<h1 id="top">A</h1><a href="#top">up</a> <a href="b.html#x">b</a> <img src="p.svg">'


@pytest.fixture
def site(tmp_path):
    (tmp_path / "a.html").write_text(SOUND)
    (tmp_path / "b.html").write_text('<a id="x"></a><a href="https://example.com/">away</a>')
    (tmp_path / "p.svg").write_text("<svg/>")
    (tmp_path / "s.css").write_text("a { background: url(p.svg) }")
    return tmp_path


def found(site):
    return list(faults(site, sorted(site.rglob("*.html"))))


def test_a_sound_site_has_no_fault(site):
    assert found(site) == []


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="c.html">c</a>', "a.html: c.html leads nowhere"),
        ('<a href="#none">c</a>', "a.html: #none names no anchor"),
        ('<a href="b.html#none">c</a>', "a.html: b.html#none names no anchor"),
        ('<a href="../a.html">c</a>', "a.html: ../a.html leaves the site"),
        ('<a href="/c.html">c</a>', "a.html: /c.html leads nowhere"),
        ('<img src="q.svg">', "a.html: q.svg leads nowhere"),
        ('<script src="https://cdn.example/x.js"></script>', "a.html: fetches https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/f">', "a.html: fetches //fonts.example/f"),
        ("<td>### Chains</td>", "a.html: raw markup: ### Chains"),
        ("<p>| a | b |</p>", "a.html: raw markup: | a | b |"),
        ("<p>a **bold** word</p>", "a.html: raw markup: a **bold** word"),
        ("<p>see [x](y.md)</p>", "a.html: raw markup: see [x](y.md)"),
    ],
)  # fmt: skip
def test_every_fault_is_named(site, html, fault):
    (site / "a.html").write_text(SOUND + html)
    assert found(site) == [fault]


@pytest.mark.parametrize(
    "rule", ["a{background:url(//x.example/y)}", '@import "https://x.example/y";']
)
def test_a_style_sheet_that_asks_another_host_is_named(site, rule):
    (site / "s.css").write_text(rule)
    (fault,) = found(site)
    assert fault.startswith("s.css: fetches ")


def test_markup_in_code_is_no_fault(site):
    (site / "a.html").write_text(SOUND + "<pre><code>## a\n| b |</code></pre>")
    assert found(site) == []
