"""Build what a release consists of into dist/ and refuse what is not fit: `make dist`."""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release import bill, building, checkout, contents, licences, pins, telling, version
from release.problem import NotFit, refuse

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "angzarr-workers"


def main() -> int:
    """Do it and return the exit code; every step tells a line."""
    arguments = _parser().parse_args()
    try:
        _release(arguments.root.resolve(), arguments.environment)
    except NotFit as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def _release(root: Path, environment: Path) -> None:
    number = _version(root)
    dist = root / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    epoch = checkout.commit_time(root)
    built = building.build(root, dist, epoch)
    _contents(root, built)
    _again(built, epoch)
    _rendered(built)
    _bills(root, built, number, environment, int(epoch))
    _sums(dist)


def _version(root: Path) -> str:
    number = version.declared((root / "src/angzarr/_version.py").read_text())
    here = checkout.tags(root, "--points-at", "HEAD")
    changelog = (root / "CHANGELOG.md").read_text()
    refuse(version.wrongs(number, changelog, here, checkout.tags(root)))
    changes = checkout.changes(root)
    if here:
        refuse([f"a release is of its tag, and this is not committed: {one}" for one in changes])
    state = "as tagged" if here else "on its way, no tag on this commit"
    print(f"version {number}, {state}{', with changes' if changes else ''}")
    return number


def _contents(root: Path, built: building.Built) -> None:
    sources = checkout.sources(root)
    wheel, sdist = building.wheel_files(built.wheel), building.sdist_files(built.sdist)
    refuse(
        contents.wrongs("the wheel", contents.in_wheel(sources), wheel)
        + contents.wrongs("the sdist", contents.in_sdist(sources), sdist)
        + contents.strays(wheel)
        + contents.unmet(wheel, contents.NEEDED)
    )
    print(f"{built.wheel.name}: {len(wheel)} files, all of the package and no other")
    print(f"{built.sdist.name}: {len(sdist)} files")


def _again(built: building.Built, epoch: str) -> None:
    """Build from the sdist, in another folder: other bytes would depend on the place."""
    with tempfile.TemporaryDirectory() as folder:
        source = building.unpacked(built.sdist, Path(folder))
        second = building.build(source, Path(folder) / "again", epoch)
        refuse(
            [
                f"{one.name} built from the sdist differs from the one built here"
                for one, other in zip(built, second, strict=True)
                if not filecmp.cmp(one, other, shallow=False)
            ]
        )
    print("built again from the sdist, elsewhere: the same bytes")


def _rendered(built: building.Built) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, built)],
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode:
        raise NotFit(f"twine refuses the metadata: {told.stdout.strip()} {told.stderr.strip()}")
    print("metadata and description as an index wants them (twine check --strict)")


def _bills(root: Path, built: building.Built, number: str, environment: Path, epoch: int) -> None:
    markers = pins.target((root / "Dockerfile").read_text())
    metadata = building.described(built.wheel)
    told = telling.told_of(environment)
    own = _own(built.wheel, number)
    image = {
        "type": "container",
        "bom-ref": f"{PACKAGE}-image@{number}",
        "name": f"{PACKAGE}-image",
        "version": number,
    }

    def made(requirements: str, extra: str) -> bill.Json:
        pinned = pins.pins(root / "requirements" / requirements, markers)
        needed = pins.needs(metadata, extra, markers)
        return bill.bill(told, pinned, own, needed, epoch)

    of_wheel, of_image = made("runtime.txt", ""), bill.within(image, made("image.txt", "all"))
    for name, one in ((PACKAGE, of_wheel), (f"{PACKAGE}-image", of_image)):
        file = built.wheel.parent / f"{name}-{number}.cdx.json"
        file.write_text(telling.checked(bill.numbered(one)))
        print(f"{file.name}: {len(one['components'])} components, fits its schema")
    _licences(bill.licences(of_image))


def _licences(declared: dict[str, list[str]]) -> None:
    wrongs = [licences.wrong(name, words) for name, words in sorted(declared.items())]
    refuse([why for why in wrongs if why])
    asking = licences.obligations(declared)
    print(f"licences of {len(declared)} components: all looked at, {len(asking)} ask for more:")
    for line in asking:
        print(f"  {line}")


def _own(wheel: Path, number: str) -> bill.Json:
    url = f"pkg:pypi/{PACKAGE}@{number}"
    return {
        "type": "library",
        "bom-ref": url,
        "name": PACKAGE,
        "version": number,
        "purl": url,
        "licenses": [{"license": {"id": "Apache-2.0", "acknowledgement": "declared"}}],
        "hashes": [{"alg": "SHA-256", "content": _sum(wheel)}],
    }


def _sums(dist: Path) -> None:
    files = sorted(dist.iterdir())
    (dist / "SHA256SUMS").write_text("".join(f"{_sum(one)}  {one.name}\n" for one in files))
    print(f"SHA256SUMS: {len(files)} files")


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument(
        "--environment",
        type=Path,
        required=True,
        help="the Python with everything that requirements/image.txt pins: .venv/bin/python",
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to be released")
    return parser


if __name__ == "__main__":
    sys.exit(main())
