"""What is in the image, and what is not."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.image.building import CHECKOUT

from angzarr import __version__
from angzarr.cli.main import _COMMANDS

#: What makes machine code, and what fetches more of it.
NOT_IN_IT = {
    "as", "c++", "cc", "clang", "cpp", "easy_install", "g++", "gcc", "git", "go", "ld", "make",
    "pip", "pip3", "rustc", "uv",
}  # fmt: skip
#: Folders that everybody may write to wherever a root file system may be written; none is ours.
SHARED = {"/tmp", "/var/tmp", "/run/lock"}

INSTALLED = """
import json
from importlib.metadata import distributions
print(json.dumps({one.metadata["Name"]: one.version for one in distributions()}))
"""
#: Imports what the processes import, and says what of it would be compiled at every start.
UNCOMPILED = """
import os, sys
import angzarr.wiring.analysis_worker, angzarr.cli.dashboard, angzarr.dashboard.site
import celery.bin.celery
import celery.apps.beat, celery.apps.worker, celery.concurrency.prefork, angzarr.app.angzarr
import angzarr.adapters.redis.transport, angzarr.adapters.rabbitmq.transport, psycopg, uvicorn
about = {name: getattr(module, "__spec__", None) for name, module in sys.modules.items()}
compiled = {name: spec.cached for name, spec in about.items() if spec and spec.cached}
assert len(compiled) > 1000, len(compiled)
print([name for name, file in compiled.items() if not os.path.exists(file)])
"""
#: All in one process, and so quicker than by the door.
HELPED = """
import json
from click.testing import CliRunner
from angzarr.cli.main import _COMMANDS, main
ended = {name: CliRunner().invoke(main, [name, "--help"]) for name in _COMMANDS}
print(json.dumps({name: one.exit_code for name, one in ended.items()}))
"""
#: Bit 0: by hash. Bit 1: which is compared (PEP 552).
FLAGS = """
import angzarr.app.angzarr, kombu.message
print([open(one.__cached__, "rb").read(8)[4] for one in (angzarr.app.angzarr, kombu.message)])
"""
#: Every folder that can be written to, but for what the kernel shows.
LOOK_FOR_PLACES = "find / -path /proc -prune -o -type d -writable -print 2>/dev/null | sort"


def test_it_runs_as_a_user_of_its_own_behind_tini(image):
    assert image.config["User"] == "10001:10001"
    assert image.config["Entrypoint"] == ["/usr/bin/tini", "--"]
    assert image.config["StopSignal"] == "SIGTERM"
    assert image.config["WorkingDir"] == "/app"
    assert image.config["Healthcheck"]["Test"] == ["CMD", "angzarr", "health", "live"]


def test_its_labels_say_what_it_is_and_what_it_was_made_of(image):
    labels = image.config["Labels"]
    told = {
        name.removeprefix("org.opencontainers.image."): value
        for name, value in labels.items()
        if name.startswith("org.opencontainers.image.")
    }
    assert set(told) == {
        "title", "description", "licenses", "version", "revision", "created", "source",
    }  # fmt: skip
    assert told["revision"] == image.key, "arguments of the build reach the labels"


def test_neither_a_compiler_nor_pip_is_left(image, run):
    found = {
        str(path.relative_to(image.root))
        for folder in ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "opt/angzarr/bin")
        for path in Path(image.root, folder).iterdir()
        if path.name in NOT_IN_IT or path.name.startswith(("pip", "gcc-", "x86_64-linux-gnu-gcc"))
    }
    assert found == set()
    for python in ("/opt/angzarr/bin/python", "/usr/local/bin/python"):
        code = "import importlib.util; print(importlib.util.find_spec('pip'))"
        assert run(python, "-c", code) == "None\n"


def test_exactly_what_was_pinned_is_installed(run):
    installed = {
        canonicalize_name(name): version
        for name, version in json.loads(run("python", "-c", INSTALLED)).items()
    }
    where = {"python_full_version": "3.13.5", "python_version": "3.13"}
    lines = (CHECKOUT / "requirements" / "image.txt").read_text().splitlines()
    pins = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalpha()]
    pinned = {
        canonicalize_name(pin.name): next(iter(pin.specifier)).version
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(where)
    }
    assert installed == pinned | {"angzarr-workers": __version__}


def test_nothing_is_compiled_when_a_process_starts(run):
    assert run("python", "-c", UNCOMPILED) == "[]\n"


def test_compiled_modules_are_taken_whatever_time_a_rebuild_gives_their_sources(run):
    assert run("python", "-c", FLAGS) == "[1, 1]\n", "by hash, and not compared"


def test_its_user_owns_nothing_in_it_and_may_write_to_nothing(image):
    mine, open_to_all = [], []
    for folder, folders, names in os.walk(image.root):
        if folder == image.root:
            folders.remove("dev")  # an engine brings its own
        for name in (*folders, *names):
            path = Path(folder, name)
            about = path.lstat()
            if 10001 in (about.st_uid, about.st_gid):
                mine.append(path)
            if about.st_mode & stat.S_IWOTH and not stat.S_ISLNK(about.st_mode):
                open_to_all.append(f"/{path.relative_to(image.root)}")
    assert mine == []
    assert set(open_to_all) <= SHARED


def test_only_tmp_can_be_written(run):
    assert run("sh", "-c", LOOK_FOR_PLACES) == "/dev/shm\n/tmp\n"
    assert run("sh", "-c", "echo kept > /tmp/it && cat /tmp/it") == "kept\n"


def test_a_container_has_no_capability_and_gets_none(run):
    said = run("sh", "-c", "id -u; grep -E 'Cap|NoNewPrivs' /proc/self/status").split()
    assert said[0] == "10001"
    assert set(said[2::2]) == {"0000000000000000", "1"}


def test_without_an_app_one_sentence_says_what_is_missing(make):
    code, said = make().finished()
    assert code == 2
    assert said == (
        "/bin/sh: 1: ANGZARR_APP: is not set: name your module in it, e.g. ANGZARR_APP=orders\n"
    )


def test_an_app_that_is_not_there_is_named(make):
    code, said = make(environment={"ANGZARR_APP": "nowhere"}).finished()
    assert code == 2
    assert "nowhere" in said
    assert "Traceback" not in said


def test_every_command_is_there(run):
    assert json.loads(run("python", "-c", HELPED)) == dict.fromkeys(_COMMANDS, 0)
    assert __version__ in run("angzarr", "--version")


@pytest.mark.parametrize(
    "module", ["redis", "psycopg", "confluent_kafka", "boto3", "grpc", "gevent", "pycurl"]
)
def test_every_client_finds_its_libraries(run, module):
    assert run("python", "-c", f"import {module}; print('there')") == "there\n"


def test_the_whole_road_works_on_a_read_only_root(run):
    said = run("angzarr", "demo", "--count", "20", seconds=110)
    assert "Every pair is accounted for" in said
