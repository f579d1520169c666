"""How a transfer goes, told with a total where the source can count, else without."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from angzarr.cli.dlq import letters_move as letters_view
from angzarr.cli.dlq.letters_move import progress

#: What a terminal acts on.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def terminal(monkeypatch):
    """A terminal, and what it was written."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100)
    monkeypatch.setattr(letters_view, "Console", lambda **_options: console)
    return written


@pytest.mark.parametrize(("total", "said"), [(None, "120/?"), (500, "120/500"), (100, "120/120")])
def test_a_terminal_shows_a_bar_or_a_running_count(terminal, total, said):
    with progress("moving", total, bar=True) as tell:
        tell(40)
        tell(120)
    assert said in CONTROL.sub("", terminal.getvalue())


@pytest.mark.parametrize(
    ("total", "said"),
    [
        (None, "moving: 40 letters\nmoving: 120 letters\n"),
        (100, "moving: 40 of about 100 letters\nmoving: 120 of about 120 letters\n"),
    ],
)
def test_elsewhere_a_line_tells_the_count_now_and_then(monkeypatch, capsys, total, said):
    monkeypatch.setattr(letters_view, "_NOW_AND_THEN", 0.0)
    with progress("moving", total, bar=True) as tell:
        tell(40)
        tell(120)
    assert capsys.readouterr().err == said


def test_what_takes_no_time_needs_no_line(capsys):
    with progress("moving", None, bar=True) as tell:
        tell(120)
    assert capsys.readouterr().err == ""
