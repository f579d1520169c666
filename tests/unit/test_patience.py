"""No test gives up on a slow machine: waits and bounds are long, looks are short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
#: Programs with their own patience, not tests; and errors that are real time-outs.
APART = {"chaos", "cluster", "corpus", "servers", "typing"}
#: Seconds. A wait below this is a short look that expects nothing; above the other, it is patient.
LOOK, PATIENT = 1, 60
#: Seconds that may be the upper bound of what takes none.
BOUND = 10
#: Calls whose only argument is how long they wait, and those whose `timeout` is.
BY_ARGUMENT = {"join", "result", "wait"}
BY_TIMEOUT = BY_ARGUMENT | {"Barrier", "acquire", "communicate", "get", "run", "urlopen"}
#: Wait for so many messages, not seconds.
COUNTING = {"inbox", "left", "reader", "right"}


def sources() -> list[Path]:
    return sorted(
        path
        for folder in ("tests", "tools")
        for path in (CHECKOUT / folder).rglob("*.py")
        if not APART & set(path.parts)
    )


def hasty(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each wait in *source* that a slow machine outlasts."""
    spared: set[ast.AST] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.With) and _expects_the_end(node):
            spared.update(ast.walk(node))
        if _is_hasty(node) and node not in spared:
            yield getattr(node, "lineno", 0), ast.unparse(node)


def _expects_the_end(block: ast.With) -> bool:
    """True if *block* handles or wants a wait that ends in vain."""
    entered = [ast.unparse(item.context_expr) for item in block.items]
    return any("raises(" in one or "suppress(" in one for one in entered)


def _is_hasty(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name("wait_until"), args=args, keywords=named):
            given = [*args[1:], *(one.value for one in named)]
            return any(map(_is_short, given))
        case ast.Call(func=ast.Attribute(value=on, attr=name), args=[given], keywords=[]):
            waits = name in BY_ARGUMENT and _is_short(given)
            return waits and ast.unparse(on).rpartition(".")[2] not in COUNTING
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name), keywords=named):
            waits = [one.value for one in named if one.arg == "timeout"]
            return name in BY_TIMEOUT and any(map(_is_short, waits))
        case ast.BinOp(left=ast.Call() as now, op=ast.Add(), right=span):
            return _is_short(span) and ast.unparse(now) == "time.monotonic()"
        case ast.Assert(test=ast.Compare(left=took, ops=[ast.Lt() | ast.LtE()], comparators=[to])):
            return _number(to) < BOUND and ast.unparse(took).startswith("time.monotonic() -")
    return False


def _is_short(node: ast.AST) -> bool:
    return LOOK <= _number(node) < PATIENT


def _number(node: ast.AST) -> float:
    """The number that *node* is, or infinity."""
    value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else float("inf")


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_no_wait_ends_before_a_slow_machine_is_done(path):
    assert list(hasty(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "wait",
    [
        "wait_until(done, 'it', 10)",
        "thread.join(5)",
        "assert started.wait(10)",
        "subprocess.run(command, timeout=30)",
        "deadline = time.monotonic() + 10",
        "assert time.monotonic() - began < 5",
    ],
)
def test_a_hasty_wait_is_found(wait):
    assert len(list(hasty(wait))) == 1


@pytest.mark.parametrize(
    "wait",
    [
        "wait_until(done, 'it')",
        "thread.join(60)",
        "assert not started.wait(0.3)",
        "inbox.wait(5)",
        "with pytest.raises(TimeoutError):\n    result.get(timeout=2)",
        "assert time.monotonic() - began > 5",
    ],
)
def test_patience_and_short_looks_pass(wait):
    assert list(hasty(wait)) == []
