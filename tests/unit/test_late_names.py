"""Modules and classes that the source names by text are there: no import shows that they moved."""

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import angzarr

SOURCE = Path(angzarr.__file__).parent
_MODULE = re.compile(r"angzarr(\.[a-z_][a-z_0-9]*)+")
_CLASS = re.compile(rf"({_MODULE.pattern}):(?P<name>\w+)")
#: What looks like a module and is the name of a logger, a metric or an attribute.
_OTHER = re.compile(r"angzarr\.[a-z_]+")


def named_in(path):
    """Yield (module, name or None) for each text that names a module of ours."""
    module = "angzarr." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if found := _CLASS.fullmatch(node.value):
                yield found[1], found["name"]
            elif _MODULE.fullmatch(node.value) and not _OTHER.fullmatch(node.value):
                yield node.value, None
        elif isinstance(node, ast.JoinedStr) and ast.unparse(node).startswith("f'{__name__}:"):
            yield module, ast.unparse(node).rpartition(":")[2].rstrip("'")


NAMED = sorted(
    {
        (str(path.relative_to(SOURCE)), *one)
        for path in SOURCE.rglob("*.py")
        if "wire" not in path.parts and "migrations" not in path.parts
        for one in named_in(path)
        if one[0].split(".")[1] in {room.name for room in SOURCE.iterdir() if room.is_dir()}
    },
    key=str,
)


def test_such_names_are_found():
    assert len(NAMED) > 100
    assert (
        "adapters/redis/transport.py",
        "angzarr.adapters.redis.transport",
        "RedisTransport",
    ) in NAMED


@pytest.mark.parametrize(("place", "module", "name"), NAMED)
def test_what_is_named_by_text_is_there(place, module, name):
    assert find_spec(module), f"{place} names {module}"
    if name is not None:
        assert hasattr(import_module(module), name), f"{place} names {module}:{name}"
