"""`tools/environment.py` installs what is pinned, by uv or by pip, and nothing else."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import environment


@pytest.fixture
def pinned(tmp_path):
    """A file that pins one package, which lies beside it."""
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "NAME = 'tiny'\n")
        about = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        archive.writestr("tiny-1.0.dist-info/METADATA", about)
        kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("tiny-1.0.dist-info/WHEEL", kind)
        names = ("tiny.py", "tiny-1.0.dist-info/METADATA", "tiny-1.0.dist-info/WHEEL")
        archive.writestr("tiny-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in names))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    file = tmp_path / "requirements.txt"
    links = f"--no-index\n--find-links {tmp_path}\n"
    file.write_text(f"{links}tiny==1.0 --hash=sha256:{digest}\n")
    return file


def name_in(folder: Path) -> str:
    command = [folder / "bin" / "python", "-c", "import tiny; print(tiny.NAME)"]
    return subprocess.check_output(command, text=True).strip()


def test_an_environment_is_made_with_what_is_pinned(uv, pinned, tmp_path):
    environment.fill(tmp_path / "env", [pinned])
    assert name_in(tmp_path / "env") == "tiny"


def test_pip_tries_where_uv_does_not_get_through(uv, pinned, tmp_path, monkeypatch, capfd):
    cut_off = tmp_path / "uv"
    cut_off.write_text(f'#!/bin/sh\ntest "$1" = venv && exec {uv.resolve()} "$@"\nexit 2\n')
    cut_off.chmod(0o755)
    monkeypatch.setattr(environment, "have_uv", lambda: cut_off)
    environment.fill(tmp_path / "env", [pinned])
    assert name_in(tmp_path / "env") == "tiny"
    assert "uv could not install it: trying pip" in capfd.readouterr().err


def test_what_has_another_hash_is_refused_by_both(uv, pinned, tmp_path):
    text = pinned.read_text()
    pinned.write_text(text[: text.index("sha256:")] + f"sha256:{'0' * 64}\n")
    command = [sys.executable, environment.__file__, tmp_path / "env", pinned]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "python failed; what it said stands above"
    assert not list((tmp_path / "env").rglob("tiny.py"))
