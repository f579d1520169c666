"""Our draws are no draws of the program's generator, whichever thread or process makes them."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import angzarr
from angzarr.runtime.chance import chance

HERE = Path(angzarr.__file__).parent
#: What may be drawn there is a generator of its own, or for a test.
OWN = {"Random", "SystemRandom"}
TESTS = HERE / "testing"


def test_a_number_is_drawn_that_lets_a_seeded_program_be():
    random.seed(1)
    wanted = [random.random() for _ in range(3)]
    random.seed(1)
    drawn = [(random.random(), chance()) for _ in range(3)]
    assert [mine for mine, _ in drawn] == wanted
    assert all(0 <= ours < 1 for _, ours in drawn)


def test_no_module_draws_from_the_generator_of_the_program():
    """A thread of ours that did would also disturb what draws examples for tests."""
    found = [
        f"{path.relative_to(HERE)}:{node.lineno}"
        for path in HERE.rglob("*.py")
        if TESTS not in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
            and node.attr not in OWN
        )
        or (isinstance(node, ast.ImportFrom) and node.module == "random")
    ]
    assert found == []
