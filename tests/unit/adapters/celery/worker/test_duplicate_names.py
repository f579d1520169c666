"""Two things under one name are refused; one whose module was imported twice stays as it was."""

from __future__ import annotations

import importlib.util
import sys
import uuid
import warnings

import pytest
from celery.exceptions import DuplicateTaskNameWarning

from angzarr.errors import ConfigurationError, DuplicateHandler

PLUGIN = """
from angzarr import Aggregate, ProcessManager, Projection, Saga, handles, reacts_to
from plugins_app import app

@app.task(name="plugin.task")
def task(): return MARK
@app.task(name="plugin.eager", lazy=False)
def eager(): return MARK
@app.handler("Placed", name="plugin.handler")
def handler(event): return MARK
@app.undo(name="plugin.undo")
def undo(data): pass
@app.saga("plugin-saga")
class S(Saga):
    @reacts_to("Placed")
    def placed(self, event, ctx): pass
@app.process_manager("plugin-process")
class P(ProcessManager[dict]):
    @reacts_to("Placed")
    def placed(self, event, ctx): pass
@app.aggregate("plugin-orders")
class A(Aggregate[dict]):
    @handles("Place")
    def place(self, command, ctx): pass
@app.projection("plugin-view", domains="orders")
class V(Projection):
    @handles("Placed")
    def placed(self, event): pass
"""


@pytest.fixture
def app(make_app, monkeypatch):
    app = make_app(books="memory://", ordering={"url": "memory://"})
    monkeypatch.setitem(sys.modules, "plugins_app", type(sys)("plugins_app"))
    sys.modules["plugins_app"].app = app
    return app


def load(path, name, mark):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    module.MARK = mark
    spec.loader.exec_module(module)
    return module


def names_of(app):
    return {handler.name for handler in app.handlers if not handler.name.startswith("celery.")}


@pytest.mark.parametrize("second", ["plugin", "other.name.of.plugin"])
def test_what_is_imported_twice_is_registered_once_and_said(app, tmp_path, second):
    path = tmp_path / f"plugin_{uuid.uuid4().hex}.py"
    path.write_text(PLUGIN)
    first = load(path, "plugin", "first")
    known = names_of(app)
    with warnings.catch_warnings(record=True, action="always") as told:
        again = load(path, second, "again")
        app.finalize()
    assert names_of(app) - known == {"plugin.task"}, "which is lazy, like any task"
    for name in ("task", "eager", "handler"):
        assert app.tasks[f"plugin.{name}"].run(*[1][: name == "handler"]) == "first"
    assert again.handler is first.handler
    assert again.undo is first.undo
    assert (again.S, again.P, again.A, again.V) == (first.S, first.P, first.A, first.V)
    said = [str(one.message) for one in told if one.category is DuplicateTaskNameWarning]
    assert len(said) == len(set(said)) == 8
    assert all("what was registered first stays; import it once" in text for text in said)


def one():
    pass


def two():
    pass


def made():
    def inner():
        pass

    return inner


def test_two_functions_of_one_name_are_refused_and_each_is_named_once(app):
    app.task(name="t", lazy=False)(one)
    app.task(name="t", lazy=False)(one)  # the very same
    with pytest.raises(DuplicateHandler) as caught:
        app.task(name="t", lazy=False)(two)
    said = str(caught.value)
    assert said.count("one (") == said.count("two (") == 1
    assert said.endswith("rename one, or pass name=…")


def test_two_functions_of_one_qualified_name_are_told_by_their_places(app):
    app.task(name="t", lazy=False)(made())
    with pytest.raises(DuplicateHandler) as caught:
        app.task(name="t", lazy=False)(made())
    assert str(caught.value).count("made.<locals>.inner") == 1
    assert "test_duplicate_names.py:" in str(caught.value)


def test_one_function_for_two_events_is_refused(app):
    def handle(event):
        pass

    app.handler("Placed")(handle)
    for event in ("Placed", "Paid"):
        with pytest.raises(DuplicateHandler, match="rename one, or pass name"):
            app.handler(event)(handle)


def test_two_classes_of_one_name_are_refused(app):
    from angzarr import Saga, reacts_to

    def saga():
        @app.saga("s")
        class S(Saga):
            @reacts_to("Placed")
            def placed(self, event, ctx):
                pass

    saga()
    with pytest.raises(ConfigurationError, match="give each a name of its own"):
        saga()
