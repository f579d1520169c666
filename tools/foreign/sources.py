"""The tests of other projects, from their source distributions: pinned, hashed, and kept."""

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "servers"))

import downloads  # noqa: E402 - found in the folder above
from server import CHECKOUT, CannotStart  # noqa: E402 - the same

PINS = CHECKOUT / "requirements" / "dev.txt"
CANNOT_BE_HAD = 3


def tests_of(package: str, wanted: re.Pattern[str]) -> Path:
    """Return the folder with the members that *wanted* matches, by its first group.

    They are fetched on first use; raises CannotStart.
    """
    pin = pin_of(package)

    def fill(folder: Path) -> None:
        written = folder / "pin.txt"
        written.write_text(pin)
        # Even a download asks setup.py for its metadata; the environment has what that needs.
        downloads.run([
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--no-binary", package, "--no-build-isolation", "--require-hashes",
            "--dest", folder, "--requirement", written,
        ])  # fmt: skip
        (archive,) = folder.glob(f"{package}-*.tar.gz")
        with tarfile.open(archive) as packed:
            for member in packed:
                if found := wanted.fullmatch(member.name):
                    packed.extract(member.replace(name=found[1]), folder, filter="data")

    return downloads.once(f"{package}-tests", f"{pin}\n{wanted.pattern}".encode(), fill)


def pin_of(package: str) -> str:
    """Return the lines of the requirements that pin *package*, with all its hashes."""
    found = re.search(rf"^{package}==.*(?:(?<=\\)\n.*)+", PINS.read_text(), re.MULTILINE)
    if found is None:
        msg = f"{PINS.name} does not pin {package}"
        raise CannotStart(msg)
    return found[0]
