"""A bill of materials holds what is pinned, with licences and hashes, and names no machine."""

from __future__ import annotations

import copy
import json

import pytest
from release.bill import PLAIN_URL, UNSAID, Pin, bill, licences, numbered, within
from release.problem import NotFit

TOLD = {
    "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
    "specVersion": "1.6",
    "metadata": {"tools": {"components": [{"type": "application", "name": "t", "version": "1"}]}},
    "components": [
        {
            "bom-ref": "Big_Lib==2.0",
            "name": "Big_Lib",
            "version": "2.0",
            "licenses": [{"license": {"id": "MIT", "acknowledgement": "declared"}}],
            "externalReferences": [
                {"type": "distribution", "url": "file:///home/me/x", "comment": "Local"},
                {"type": "website", "url": "https://pypi.example/project/big-lib"},
                {"type": "vcs", "url": "https://example.com/big", "comment": "c"},
            ],
        },
        {
            "bom-ref": "small==1.0",
            "name": "small",
            "version": "1.0",
            "licenses": [
                {"license": {"name": "License :: OSI Approved :: Apache Software License"}},
                {"license": {"id": "Apache-2.0", "acknowledgement": "declared"}},
            ],
        },
        {"bom-ref": "protobuf==7", "name": "protobuf", "version": "7"},
        {"bom-ref": "pytest==9", "name": "pytest", "version": "9"},
    ],
    "dependencies": [
        {"ref": "Big_Lib==2.0", "dependsOn": ["small==1.0", "pytest==9"]},
        {"ref": "small==1.0"},
        {"ref": "pytest==9"},
    ],
}
PINS = [
    Pin("small", "1.0", ("b", "a")),
    Pin("big-lib", "2.0", ("c",)),
    Pin("protobuf", "7", ("d",)),
]
ROOT = {"type": "library", "bom-ref": "pkg:pypi/mine@1", "name": "mine", "version": "1"}


def made(pins=PINS, told=TOLD, epoch=1795532555):
    return bill(told, pins, ROOT, {"big-lib"}, epoch)


def test_it_holds_the_pins_alone_with_every_hash():
    found = {part["name"]: part for part in made()["components"]}
    assert list(found) == ["big-lib", "protobuf", "small"]
    assert [one["content"] for one in found["small"]["hashes"]] == ["a", "b"]
    assert found["big-lib"]["purl"] == "pkg:pypi/big-lib@2.0"


def test_who_needs_whom_is_kept_for_what_is_pinned():
    edges = {one["ref"]: one.get("dependsOn", []) for one in made()["dependencies"]}
    assert edges["pkg:pypi/mine@1"] == ["pkg:pypi/big-lib@2.0"]
    assert edges["pkg:pypi/big-lib@2.0"] == ["pkg:pypi/small@1.0"]
    assert "pytest" not in str(edges)


def test_it_names_no_folder_and_no_registry():
    text = json.dumps(made())
    assert not UNSAID.search(text)
    assert "https://example.com/big" in text


@pytest.mark.parametrize(
    "said",
    ['"file:x"', '"/home/me"', '"https://pythonhosted.example/a"', '"x (pypi.example)"'],
)
def test_what_must_not_be_said_is_found(said):
    assert UNSAID.search(f'{{"url": {said}}}')


def test_licences_are_ids_once_each_and_the_one_that_is_not_declared_is_concluded():
    assert licences(made()) == {
        "big-lib": ["MIT"],
        "small": ["Apache-2.0"],
        "protobuf": ["BSD-3-Clause"],
    }
    (known,) = [one for one in made()["components"] if one["name"] == "protobuf"]
    assert known["licenses"][0]["license"]["acknowledgement"] == "concluded"


def test_the_same_makes_the_same_whatever_the_order_and_another_has_another_number():
    shuffled = {**copy.deepcopy(TOLD), "components": TOLD["components"][::-1]}
    assert numbered(made()) == numbered(made(PINS[::-1], shuffled))
    assert numbered(made())["serialNumber"] != numbered(made(PINS[:2]))["serialNumber"]
    assert made()["metadata"]["timestamp"] == "2026-11-24T15:02:35+00:00"


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        (Pin("gone", "1", ("a",)), "gone is pinned and not installed"),
        (Pin("small", "1.1", ("a",)), "small is pinned to 1.1, and 1.0 is installed"),
    ],
)
def test_an_environment_that_is_not_as_pinned_is_refused(pin, said):
    with pytest.raises(NotFit, match=said):
        made([pin])


def test_an_image_holds_the_wheel_and_what_it_needs():
    image = within({"type": "container", "bom-ref": "image@1"}, made())
    assert image["metadata"]["component"]["bom-ref"] == "image@1"
    assert image["components"][0] == ROOT
    assert image["dependencies"][0] == {"ref": "image@1", "dependsOn": ["pkg:pypi/mine@1"]}


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://github.com/a/b_c-d.git", True),
        ("http://example.com:80/x?tab=y&z=1#readme", True),
        ("https://example.com/a b", False),
        ("https://example.com/<x>", False),
        ("https://example.com/100%", False),
        ("https://example.com/#a#b", False),
        ("https://example.com/x\n", False),
        ("https://", False),
    ],
)
def test_only_what_is_surely_a_url_is_spared_the_parser(url, plain):
    assert bool(PLAIN_URL.fullmatch(url)) == plain
