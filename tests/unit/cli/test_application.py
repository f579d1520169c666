"""How -A names an app: every spelling that `celery -A` takes, for every command."""

from __future__ import annotations

import importlib
import itertools
import sys

import click
import pytest
from celery import Celery
from celery.app.utils import find_app

from angzarr import Angzarr
from angzarr.cli.application import load_angzarr, load_application, load_celery

OURS = (
    "from angzarr import Angzarr\napp = Angzarr('shop', broker='memory://', set_as_current=False)\n"
)
STOCK = (
    "from celery import Celery\napp = Celery('shop', broker='memory://', set_as_current=False)\n"
)

#: Layout of a project: file → its content, where {app} makes the app.
LAYOUTS = {
    "module": {"{name}.py": "{app}"},
    "module with another name for it": {"{name}.py": "{app}celery = app\ndel app\n"},
    "module with a name of its own": {"{name}.py": "{app}shop = app\ndel app\n"},
    "django": {
        "{name}/__init__.py": "from .celery import app as celery_app\n__all__ = ('celery_app',)\n",
        "{name}/celery.py": "{app}",
    },
    "package with an empty init": {"{name}/__init__.py": "", "{name}/celery.py": "{app}"},
    "deep": {"{name}/__init__.py": "", "{name}/sub.py": "{app}"},
}
#: Layout → what may be given to -A there.
SPELLINGS = {
    "module": ["{name}", "{name}:app", "{name}.app"],
    "module with another name for it": ["{name}", "{name}:celery", "{name}.celery"],
    "module with a name of its own": ["{name}", "{name}:shop", "{name}.shop"],
    "django": [
        "{name}", "{name}:celery_app", "{name}.celery_app", "{name}.celery", "{name}.celery:app",
        "{name}.celery.app",
    ],
    "package with an empty init": ["{name}", "{name}.celery", "{name}.celery:app"],
    "deep": ["{name}.sub", "{name}.sub:app", "{name}.sub.app"],
}  # fmt: skip
CASES = [(layout, one) for layout, spellings in SPELLINGS.items() for one in spellings]

numbers = itertools.count()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write a project of a layout and return the name of its module or package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"project_of_a_test_{next(numbers)}"

    def write(files, app=OURS):
        for path, content in files.items():
            file = tmp_path / path.replace("{name}", name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(content.replace("{app}", app))
        importlib.invalidate_caches()
        return name

    yield write
    for module in [one for one in sys.modules if one.split(".")[0] == name]:
        del sys.modules[module]


@pytest.mark.parametrize(("layout", "spelling"), CASES)
def test_an_app_is_found_as_celery_finds_it(project, layout, spelling):
    name = project(LAYOUTS[layout])
    found = load_angzarr(spelling.replace("{name}", name))
    assert isinstance(found, Angzarr)
    assert found is find_app(spelling.replace("{name}", name))


@pytest.mark.parametrize(("layout", "spelling"), CASES)
def test_the_doctor_finds_any_celery_app_by_the_same_names(project, layout, spelling):
    name = project(LAYOUTS[layout], STOCK)
    assert isinstance(load_celery(spelling.replace("{name}", name)), Celery)


def test_a_plain_celery_app_is_refused_with_the_cure(project):
    name = project(LAYOUTS["module"], STOCK)
    with pytest.raises(click.UsageError, match=r"a plain Celery app .* angzarr\.Angzarr"):
        load_application(name)


@pytest.mark.parametrize(
    ("spelling", "said"),
    [
        ("{name}:other", "module '{name}' has no attribute 'other'"),
        ("{name}:LATER", "'{name}:LATER' is a str"),
        ("{name}.other", "there is no module '{name}.other'"),
        ("{name}x", "there is no module '{name}x'"),
        ("{name}x:app", "there is no module '{name}x'"),
        (":app", "':app'"),
        ("..", "'..'"),
    ],
)
def test_a_wrong_name_is_one_sentence(project, spelling, said):
    name = project({"{name}.py": "{app}LATER = ''\n"})
    with pytest.raises(click.UsageError) as refused:
        load_application(spelling.replace("{name}", name))
    assert said.replace("{name}", name) in refused.value.message


@pytest.mark.parametrize(
    "error", ["import surely_no_such_module", "1 / 0", "{}.missing", "int('x')"]
)
@pytest.mark.parametrize("layout", ["module", "django", "package with an empty init", "deep"])
def test_what_a_project_raises_at_its_import_is_shown_and_no_absence(project, layout, error):
    name = project(LAYOUTS[layout], f"{error}\n")
    spelling = "{name}.sub" if layout == "deep" else "{name}"
    with pytest.raises(
        (ModuleNotFoundError, ZeroDivisionError, AttributeError, ValueError)
    ) as shown:
        load_application(spelling.replace("{name}", name))
    assert name not in str(shown.value)
