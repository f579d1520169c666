"""The names that our log lines begin with, as the source has them.

A line of WARNING or above begins with the name of its event: ``name: text``. Names are found by
reading the source: what a log call says first is a literal, or leads to literals in its module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "angzarr"

#: The levels that a call logs at; None: the call says it in its first argument.
_LEVELS = {
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
    "critical": "CRITICAL",
    "log": None,
    "write": None,
    "LineFields": None,
    "write_error": "ERROR",
}
#: What a module says that may log: few do, and reading all of them takes seconds.
_MAY_LOG = re.compile(rf"\b({'|'.join(_LEVELS)})\(")
#: What log calls are made on, as the source names it.
_LOGGERS = re.compile(r"_log|_LOG|logging\.getLogger\(.*\)|self\._lines|wiring")
#: A word with ``_``; one without is a name before a colon, or where nothing else is said.
_NAME = re.compile(r"[a-z]+(_[a-z0-9]+)+(?=[:= ]|$)|[a-z]+(?=[:=]|$)|holding(?= )")
#: Where levels and names of outcomes stand together.
_OUTCOMES = "adapters/structlog/hook.py"
#: These hand on what others say, and are looked at where those say it.
_HANDED_ON = {"adapters/structlog/hook.py:settled", "adapters/structlog/own_lines.py:write"}


@dataclass(frozen=True, slots=True)
class Said:
    """One log call and one text that it may begin with; *level* is None where it depends."""

    place: str
    level: str | None
    text: str | None

    @property
    def name(self) -> str | None:
        """The name of its event, or None where the text begins with none."""
        found = _NAME.match(self.text or "")
        return found and found[0]


def said_in(source: str, place: str) -> Iterator[Said]:
    """Yield what each log call of a module says that may be WARNING or above."""
    module = ast.parse(source)
    calls = [
        (call, *found)
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and (found := _logs(call, place)) is not None
    ]
    if not calls:
        return
    parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}
    for call, level, text in calls:
        if level in {"DEBUG", "INFO"}:
            continue
        function = _around(call, parents)
        name = function.name if function else "<module>"
        if f"{place}:{name}" in _HANDED_ON:
            continue
        texts = list(_texts(text, function, module)) or [None]
        arguments = call.args[call.args.index(text) + 1 :] if text in call.args else []
        for one in texts:
            if one and one.startswith("%s") and arguments:
                named = list(_texts(arguments[0], function, module)) or [None]
                yield from (Said(f"{place}:{call.lineno}", level, two) for two in named)
            else:
                yield Said(f"{place}:{call.lineno}", level, one)


def all_said() -> list[Said]:
    """Return what the whole source says."""
    return [
        said
        for path in sorted(SOURCE.rglob("*.py"))
        if _MAY_LOG.search(source := path.read_text())
        for said in said_in(source, str(path.relative_to(SOURCE)))
    ]


def _logs(call: ast.Call, place: str) -> tuple[str | None, ast.expr] | None:
    """Return level and text of *call* if it logs."""
    match call.func:
        case ast.Attribute(value=on, attr=verb) if _LOGGERS.fullmatch(ast.unparse(on)):
            pass
        case ast.Attribute(attr="warning" | "critical"):  # on what this does not know
            return None, ast.Constant(value=None)
        case ast.Name(id="LineFields" as verb) if place == _OUTCOMES:
            pass
        case _:
            return None
    if verb not in _LEVELS or not call.args:
        return None
    level = _LEVELS[verb]
    if level is None:
        found = re.fullmatch(r"logging\.([A-Z]+)", ast.unparse(call.args[0]))
        return (found[1] if found else None), call.args[1]
    return level, call.args[1 if verb == "write_error" else 0]


def _around(
    node: ast.AST, parents: dict[ast.AST, ast.AST]
) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    while (node := parents.get(node)) is not None:  # type: ignore[assignment]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return node
    return None


def _texts(
    value: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef | None, module: ast.Module
) -> Iterator[str]:
    """Yield the literals that *value* may be, as far as its module shows them."""
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from _texts(one, function, module)
            yield from _texts(other, function, module)
        case ast.Subscript(value=ast.Name(id=name)):
            for given in _assigned(name, module):
                if isinstance(given, ast.Dict):
                    for one in given.values:
                        yield from _texts(one, None, module)
        case ast.Name(id=name):
            for given in _assigned(name, function or module):
                yield from _texts(given, None, module)
            if function is not None:
                for given in _passed(name, function, module):
                    yield from _texts(given, None, module)


def _assigned(name: str, where: ast.AST) -> Iterator[ast.expr]:
    """Yield what *name* is set to within *where*."""
    for node in ast.walk(where):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=given) if found == name:
                yield given
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as given) if (
                found == name
            ):
                yield given
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=True)
                yield from (
                    given for one, given in pairs if isinstance(one, ast.Name) and one.id == name
                )


def _passed(
    name: str, function: ast.FunctionDef | ast.AsyncFunctionDef, module: ast.Module
) -> Iterator[ast.expr]:
    """Yield what callers within the module pass to *function* as *name*."""
    names = [one.arg for one in function.args.args]
    if name not in names:
        return
    at = names.index(name) - (names[0] == "self")
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _called(node.func) == function.name:
            yield from node.args[at : at + 1]
            yield from (one.value for one in node.keywords if one.arg == name)


def _called(function: ast.expr) -> str | None:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None
