"""What is released works where nothing else of the project is: fresh environments, real installs.

The wheel is built here; what it needs comes as pinned in requirements/dev.txt.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from private_server import server_module

pytestmark = pytest.mark.soak
CHECKOUT = Path(__file__).resolve().parents[2]
downloads = server_module("downloads")
WALK = Path(__file__).with_name("walk_modules.py")
EXTRAS = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
ACCOUNTED = re.compile(r"Every pair is accounted for: (\d+) = ")

#: Extra → the modules that it is for, by their beginnings; every module has one extra, or none.
BROUGHT = {
    "redis": ("angzarr.adapters.redis",),
    "kafka": ("angzarr.adapters.kafka",),
    "sqs": ("angzarr.adapters.sqs",),
    "s3": ("angzarr.adapters.s3",),
    "fsspec": ("angzarr.adapters.fsspec",),
    "zstd": ("angzarr.adapters.zstd",),
    "schemas": ("angzarr.adapters.jsonschema",),
    "pubsub": ("angzarr.adapters.pubsub",),
    "encryption": ("angzarr.adapters.jose", "angzarr.adapters.cryptography"),
    "webhooks": ("angzarr.adapters.http",),
    "grpc": ("angzarr.adapters.grpc",),
    "coroutines": tuple(
        f"angzarr.adapters.celery.worker.{name}"
        for name in ("coroutines_pool", "delivery_greenlets", "loop_watch")
    ),
    "dashboard": ("angzarr.dashboard",),
    "prometheus": ("angzarr.adapters.prometheus",),
    "testing": ("angzarr.testing",),
}
#: Extra → what our modules import only when they use it.
CLIENTS = {
    "postgresql": ("psycopg",),
    "opentelemetry": ("opentelemetry.sdk.trace", "opentelemetry.sdk.metrics"),
    "prometheus": ("prometheus_client", "opentelemetry.sdk.metrics"),
    "testing": ("moto", "pytest"),
    "gevent": ("gevent",),
    "sqs": ("boto3", "pycurl"),
}


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory):
    """Run programs outside the checkout, with nothing of its environment."""
    folder = tmp_path_factory.mktemp("elsewhere")
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ANGZARR_", "CELERY_", "PYTHON", "VIRTUAL_ENV"))
    }

    def run(*command, check=True, **extra):
        done = subprocess.run(
            [str(one) for one in command],
            cwd=folder, env={**env, "TMPDIR": str(folder), **extra},
            capture_output=True, text=True, check=False, timeout=800,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done

    return run


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Make a folder by one of the processes that share these tests, and return it to all."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared

    def made(name, make):
        return downloads.filled(shared / f"release-{name}", make)

    return made


@pytest.fixture(scope="session")
def wheel(once) -> Path:
    def build(folder):
        hatch = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
        command = [*hatch, "--directory", folder]
        subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True)

    (found,) = once("wheel", build).glob("*.whl")
    return found


@pytest.fixture(scope="session")
def constraints(tmp_path_factory) -> Path:
    """What is pinned, without hashes."""
    pins = (CHECKOUT / "requirements/dev.txt").read_text()
    lines = re.findall(r"^[a-z0-9][^\\\n]*==[^\\\n]*", pins, re.MULTILINE)
    assert len(lines) > 100
    file = tmp_path_factory.mktemp("pins") / "constraints.txt"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.timeout(900)
def test_pip_installs_it_into_a_fresh_environment_where_the_demo_accounts_for_everything(
    tmp_path, elsewhere, uv, wheel, constraints
):
    elsewhere(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "fresh")
    bin_ = tmp_path / "fresh" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", bin_ / "python", "--disable-pip-version-check"]
    elsewhere(
        *pip, "install", "--quiet", "--no-compile", "-c", constraints,
        f"angzarr-workers[redis,kafka] @ {wheel.as_uri()}",
    )  # fmt: skip
    elsewhere(*pip, "check")
    shown = elsewhere(bin_ / "python", "-c", "import angzarr; print(angzarr.__file__)").stdout
    assert str(tmp_path) in shown, "the installed package, not the checkout"
    done = elsewhere(bin_ / "angzarr", "demo", "--count", "60")
    assert int(ACCOUNTED.search(done.stdout)[1]) > 100
    assert done.stderr == ""
    assert_modules(elsewhere(bin_ / "python", WALK).stdout, {"redis", "kafka"})


@pytest.fixture(scope="session")
def bare(elsewhere, once, uv, wheel, constraints):
    """An environment with the wheel and no extra; it is not changed. Returns its Python."""

    def make(folder):
        python = folder / "bin" / "python"
        elsewhere(uv, "venv", "--quiet", "--python", sys.executable, folder, "--allow-existing")
        wanted = f"angzarr-workers @ {wheel.as_uri()}"
        elsewhere(uv, "pip", "install", "--quiet", "--python", python, "-c", constraints, wanted)
        (folder / "modules.json").write_text(elsewhere(python, WALK).stdout)

    return once("bare", make) / "bin" / "python"


@pytest.fixture
def install(tmp_path, elsewhere, uv, bare, wheel, constraints):
    """Make an environment with the wheel and one extra, and return its Python.

    It begins as a copy of the bare one, in which everything is compiled already.
    """

    def made(extra):
        folder = tmp_path / "with"
        shutil.copytree(bare.parents[1], folder, symlinks=True, copy_function=_linked)
        python = folder / "bin" / "python"
        wanted = f"angzarr-workers[{extra}] @ {wheel.as_uri()}"
        elsewhere(uv, "pip", "install", "--quiet", "--python", python, "-c", constraints, wanted)
        told = elsewhere(python, "-c", "import angzarr; print(angzarr.__file__)").stdout
        assert str(folder) in told, "the copy, not what it was copied from"
        return python

    return made


def _linked(source, target):
    os.link(source, target, follow_symlinks=False)


def assert_modules(told: str, extras: set[str]) -> None:
    """All modules import but those of other extras, which miss what their own extra brings."""
    for name, why in json.loads(told).items():
        if owner(name) is None or owner(name) in extras:
            assert why == "", f"{name}: {why}"
        elif why:
            assert why.startswith(("ModuleNotFoundError: No module named", "MissingExtra: ")), why


def owner(module: str) -> str | None:
    """Return the extra that *module* is for, None if it needs none."""
    return next((extra for extra, names in BROUGHT.items() if module.startswith(names)), None)


def test_every_extra_says_what_it_brings():
    assert set(BROUGHT) | set(CLIENTS) == set(EXTRAS) - {"all"}


def test_without_any_extra_all_modules_import_that_are_for_none(bare):
    told = (bare.parents[1] / "modules.json").read_text()
    assert_modules(told, set())
    assert len(json.loads(told)) > 500


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"all"}))
def test_an_extra_alone_brings_all_that_its_modules_import(extra, install, elsewhere):
    python = install(extra)
    if extra in BROUGHT:
        assert_modules(elsewhere(python, WALK, *BROUGHT[extra]).stdout, {extra})
    for client in CLIENTS.get(extra, ()):
        elsewhere(python, "-c", f"import {client}")


# -- the steps of docs/how-to/release.md ---------------------------------------------------------


@pytest.fixture
def clone(tmp_path):
    """A clone of this checkout as it is now."""
    folder = tmp_path / "clone"
    git(CHECKOUT, "clone", "--quiet", "--no-hardlinks", CHECKOUT, folder)
    changed = git(CHECKOUT, "ls-files", "--modified", "--others", "--exclude-standard").split()
    for path in changed:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / path, folder / path)
    git(folder, "config", "user.name", "t")
    git(folder, "config", "user.email", "t@example.com")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "as it is now")
    for tag in git(folder, "tag").split():
        git(folder, "tag", "--delete", tag)
    return folder


def git(folder, *arguments) -> str:
    command = ["git", "-C", folder, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def in_clone(clone, tmp_path, elsewhere, release_python):
    """Run lines of a shell in the clone, where `make` has this checkout's environments."""
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(
        f"#!/bin/sh\nexec {shutil.which('make')} -o .venv/.dev -o build/release/.done"
        f' BIN={CHECKOUT / ".venv/bin"} RELEASE={release_python} "$@"\n'
    )
    make.chmod(0o755)
    path = f"{make.parent}:{os.environ['PATH']}"

    def run(lines, *, check=True):
        return elsewhere("sh", "-euc", f"cd '{clone}'\n{lines}", check=check, PATH=path)

    return run


def steps() -> list[str]:
    page = (CHECKOUT / "docs/how-to/release.md").read_text()
    found = re.findall(r"^ *```console\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in found]


@pytest.mark.timeout(900)
def test_the_steps_of_the_page_make_a_release_and_begin_the_next(clone, in_clone):
    release, _, begin = steps()
    told = in_clone(release).stdout
    number = re.search(r"^version (\S+), as tagged$", told, re.MULTILINE)[1]
    assert git(clone, "tag").split() == [f"v{number}"]
    made = {file.name: file.read_bytes() for file in (clone / "dist").iterdir()}
    assert sorted(made) == sorted(
        {
            f"angzarr_workers-{number}-py3-none-any.whl",
            f"angzarr_workers-{number}.tar.gz",
            f"angzarr-workers-{number}.cdx.json",
            f"angzarr-workers-image-{number}.cdx.json",
            "SHA256SUMS",
        }
    )
    in_clone("cd dist && sha256sum --check --quiet SHA256SUMS")

    in_clone("make dist")
    again = {file.name: file.read_bytes() for file in (clone / "dist").iterdir()}
    assert again == made, "the same commit, another time: the same bytes"

    git(clone, "commit", "--quiet", "--allow-empty", "--message", "on")
    refused = in_clone("make dist", check=False)
    assert refused.returncode != 0
    assert f"v{number} is out, and this is another commit: raise __version__" in refused.stderr
    in_clone(begin)
    assert "version 0.2.0, on its way" in in_clone("make dist").stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("touch src/angzarr/notes.orig", "notes.orig is of no kind that the package has"),
        ("rm src/angzarr/adapters/redis/*.lua", "its scripts in Redis would be lost"),
        ("git tag v9.9.9", "tag v9.9.9 is on this commit, whose version is"),
        (
            "sed -i 's/^click==.*/click==0.1 \\\\/' requirements/runtime.txt",
            "click is pinned to 0.1",
        ),
        ("rm -r .git", "a release is built from a commit"),
    ],
)
def test_what_is_not_fit_is_refused_in_a_sentence(in_clone, spoil, said):
    done = in_clone(f"{spoil}\nmake dist", check=False)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# -- without an extra ----------------------------------------------------------------------------

APP = "from angzarr import Angzarr\napp = Angzarr('shop', **__import__('json').loads('''{}'''))\n"


POSTGRESQL = "postgresql+psycopg://h/d"
LEDGER = {"ledger": "sqlite:///ledger.db"}
WORKER, ANALYZE = "celery worker -P solo", "angzarr dlq analyze"


@pytest.mark.parametrize(
    ("extra", "command", "options"),
    [
        ("redis", WORKER, {"broker": "redis://:hunter2@127.0.0.1:1"}),
        ("sqs", WORKER, {"broker": "sqs://", "store": POSTGRESQL}),
        ("redis", WORKER, {"store": "redis://:hunter2@127.0.0.1:1"}),
        ("postgresql", WORKER, {"store": POSTGRESQL}),
        ("postgresql", "angzarr dlq list", {"ledger": POSTGRESQL}),
        ("kafka", ANALYZE, {**LEDGER, "dlq": {"backend": "kafka", "kafka_brokers": "h:1"}}),
        ("sqs", ANALYZE, {**LEDGER, "dlq": {"backend": "sqs"}}),
        ("pubsub", ANALYZE, {**LEDGER, "dlq": {"backend": "pubsub", "pubsub_project": "proj-1"}}),
        ("dashboard", "angzarr dashboard serve", {}),
    ],
)
def test_without_an_extra_whoever_needs_it_is_told_which(
    extra, command, options, bare, elsewhere, tmp_path
):
    bin_ = bare.parent
    app = tmp_path / "bare_shop.py"
    app.write_text(APP.replace("{}", json.dumps({"broker": "memory://", **options})))
    program, *rest = command.split()
    unchanged = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = elsewhere(bin_ / program, "-A", "bare_shop", *rest, check=False, **unchanged)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert re.fullmatch(rf"Error: \S+ is not installed; .*'angzarr-workers\[{extra}\]'", last)
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr
