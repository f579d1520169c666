"""Modules and classes that the source names by text are there: no import shows that they moved."""

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

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


def test_what_is_named_by_text_is_there():
    rooms = {room.name for room in SOURCE.iterdir() if room.is_dir()}
    named = {
        (str(path.relative_to(SOURCE)), *one)
        for path in SOURCE.rglob("*.py")
        if "wire" not in path.parts and "migrations" not in path.parts
        for one in named_in(path)
        if one[0].split(".")[1] in rooms
    }
    gone = [
        f"{place} names {module}:{name}"
        for place, module, name in sorted(named, key=str)
        if not (find_spec(module) and (name is None or hasattr(import_module(module), name)))
    ]
    assert not gone
    transport = "angzarr.adapters.redis.transport"
    assert ("adapters/redis/transport.py", transport, "RedisTransport") in named
    assert len(named) > 100
