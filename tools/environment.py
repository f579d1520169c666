"""Fills a virtual environment with what is pinned: `python tools/environment.py FOLDER FILE…`.

uv does it, with a sixth of pip's work; it compiles nothing, so that only what is imported is
compiled. Every file's packages are compared with its hashes. Where uv does not get through, pip
tries: it knows of mirrors, proxies and certificates from its own configuration. The folder's
environment is made by the Python that runs this, unless it is there.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[1]
PINS: Final = CHECKOUT / "requirements" / "uv.txt"
#: Its pip installs uv, and serves environments that have none.
UV_FOLDER: Final = CHECKOUT / "build" / "uv"


def fill(folder: Path, files: list[Path]) -> None:
    """Install what *files* pin into *folder*; raises CalledProcessError if nothing can."""
    uv = have_uv()
    if not (folder / "bin" / "python").exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    wanted: list[str | Path] = ["install", "--quiet", "--require-hashes"]
    for file in files:
        wanted += ["--requirement", file]
    python = folder / "bin" / "python"
    if subprocess.run([uv, "pip", *wanted, "--python", python], check=False).returncode:
        sys.stderr.write("uv could not install it: trying pip\n")
        subprocess.run([*_pip(), "--python", python, *wanted], check=True)


def have_uv() -> Path:
    """Return the path of uv, which is installed unless this checkout has what is pinned."""
    uv, done = UV_FOLDER / "bin" / "uv", UV_FOLDER / ".done"
    UV_FOLDER.mkdir(parents=True, exist_ok=True)
    with (UV_FOLDER / ".lock").open("w") as lock:  # several steps may ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (uv.exists() and done.exists() and done.read_bytes() == PINS.read_bytes()):
            subprocess.run([sys.executable, "-m", "venv", UV_FOLDER], check=True)
            install = ["install", "--quiet", "--require-hashes", "--requirement", PINS]
            subprocess.run([*_pip(), *install], check=True)
            done.write_bytes(PINS.read_bytes())
    return uv


def _pip() -> list[str | Path]:
    return [UV_FOLDER / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]


if __name__ == "__main__":
    try:
        if len(sys.argv) > 1:
            fill(Path(sys.argv[1]), [Path(file) for file in sys.argv[2:]])
        else:
            have_uv()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{Path(error.cmd[0]).name} failed; what it said stands above")
