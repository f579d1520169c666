"""The wheel and the sdist hold every file of the package, and nothing that was left there."""

from __future__ import annotations

from pathlib import Path

from release import contents
from release.checkout import sources

CHECKOUT = Path(__file__).resolve().parents[3]
SOURCES = {"src/angzarr/a.py", "src/angzarr/b.lua", "examples/c.py", "proto/d.proto"}


def test_examples_lie_in_the_package_and_protocol_files_only_in_the_sdist():
    assert contents.in_wheel(SOURCES) == {
        "angzarr/a.py",
        "angzarr/b.lua",
        "angzarr/examples/c.py",
    }
    assert contents.in_sdist(SOURCES) == SOURCES | contents.ROOT


def test_what_is_lacking_and_what_is_stray_is_named():
    assert contents.wrongs("the wheel", {"a", "b"}, {"b", "tests/c"}) == [
        "the wheel lacks a",
        "the wheel holds tests/c, which does not belong there",
    ]


def test_a_file_of_an_unknown_kind_is_named():
    (said,) = contents.strays({"angzarr/a.py", "angzarr/py.typed", "angzarr/a.py.orig"})
    assert said.startswith("angzarr/a.py.orig is of no kind")


def test_a_renamed_folder_is_missed():
    held = {"angzarr/adapters/redis/lua/claim.lua"}
    needed = {"angzarr/scripts/*.lua": "its scripts", "angzarr/adapters/redis/*.lua": "the same"}
    assert contents.unmet(held, needed) == [
        "nothing in the wheel is angzarr/scripts/*.lua: its scripts would be lost"
    ]


def test_every_kind_of_file_that_this_checkout_ships_is_known_and_needed_ones_are_there():
    wheel = contents.in_wheel(sources(CHECKOUT))
    assert contents.strays(wheel) == []
    assert contents.unmet(wheel, contents.NEEDED) == []
