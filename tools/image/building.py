"""The image built from the Dockerfile by buildah, which needs no engine, on a base made here.

No registry is asked: the base is Debian's own release and Python of the same versions as the
official image's, made by mmdebstrap once a machine. All that is built lies in `build/image`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from private_server import server_module

CHECKOUT = Path(__file__).resolve().parents[2]
HOME = CHECKOUT / "build" / "image"
IMAGE = "localhost/angzarr-workers:checked"
BASE = "localhost/angzarr-base"

#: What is copied into the build, and what says how; a change of it is a new image.
INPUTS = (
    "Dockerfile", ".dockerignore", "LICENSE", "README.md", "pyproject.toml",
    "requirements/build.txt", "requirements/image.txt", "src", "examples",
)  # fmt: skip

#: Debian's release, and what the official image of Python on it has beside the minimum. The venv in
#: /usr/local puts `python` and `pip` where that image has them.
_BASE_OPTIONS = (
    "--variant=minbase", "--include=ca-certificates,netbase,tzdata,python3,python3-venv",
    "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
    '--customize-hook=chroot "$1" python3 -m venv /usr/local',
    "trixie",
)  # fmt: skip
_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Copies the files of image $1 to folder $2. In a mount namespace of its own, as is all that
#: buildah does: what it mounts ends with it, and `make clean` can remove the folder.
_EXPORT = """
container=$($BUILDAH from --pull-never "$1")
cp -a "$($BUILDAH mount "$container")" "$2"
$BUILDAH rm "$container" >/dev/null
"""

downloads: Any = server_module("downloads")
packages: Any = server_module("packages")
CannotStart: Any = server_module("server").CannotStart


@dataclass(frozen=True)
class Built:
    """An image on this disk: its files below *root*, and what the engine would be told of it."""

    key: str
    root: str
    config: Mapping[str, Any]
    #: Bytes of the files, of the base's alone, and of each layer as a registry keeps it.
    size: int
    base_size: int
    layers: tuple[int, ...]


def build() -> Built:
    """Build the image, unless nothing that goes into it has changed; return what came out."""
    wanted = key()
    if (built := current()) and built.key == wanted:
        return built
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _note().unlink(missing_ok=True)  # until it is true again, whatever ends us meanwhile
        built = _made(wanted)
        _note().write_text(json.dumps(asdict(built)))
    return built


def ensure_base() -> None:
    """Have buildah, and the base that images are built on."""
    for program in ("buildah", "mmdebstrap"):
        packages.ensure(program, program)
    if not (_has(BASE) and _base_size().exists()):
        _import_base()


def _made(wanted: str) -> Built:
    ensure_base()
    build_image(CHECKOUT, IMAGE, VERSION="checked", REVISION=wanted)
    return _brought_out(wanted)


def current() -> Built | None:
    """Return what was built last; where its key is not `key()` it is of other sources."""
    if not _note().exists():
        return None
    told = json.loads(_note().read_text())
    return Built(**told | {"layers": tuple(told["layers"])})


def build_image(context: Path, tag: str, **arguments: str) -> None:
    """Build the Dockerfile in *context* as an engine would, with our base for Python's image."""
    given = {"PYTHON_IMAGE": BASE, **arguments}
    options = [f"--build-arg={name}={value}" for name, value in given.items()]
    # The authorities that this machine trusts: there may be a proxy that answers for the registry.
    trusted = "--volume=/etc/ssl/certs:/etc/ssl/certs:ro"
    _buildah(
        "build", "--isolation=chroot", "--layers", "--format=docker", "--pull-never", trusted,
        *options, f"--tag={tag}", str(context),
    )  # fmt: skip


def bring_out(tag: str, root: Path) -> None:
    """Copy the files of an image to *root*, which must not exist."""
    command = ["unshare", "--mount", "sh", "-euc", _EXPORT, "export", tag, str(root)]
    _run(command, {"BUILDAH": " ".join(_command())})


def save(tag: str, archive: Path, name: str) -> None:
    """Write an image to *archive*, a file as `docker save` writes it, under *name*."""
    _buildah("push", "--quiet", tag, f"docker-archive:{archive}:{name}")


def config_of(tag: str) -> Mapping[str, Any]:
    """Return what an image tells an engine: user, command, health check, labels."""
    told: Mapping[str, Any] = json.loads(_buildah("inspect", "--type=image", tag))["Docker"]
    return told["config"]


def _brought_out(wanted: str) -> Built:
    root = HOME / "root"
    shutil.rmtree(root, ignore_errors=True)
    bring_out(IMAGE, root)
    return Built(
        key=wanted,
        root=str(root),
        config=config_of(IMAGE),
        size=_bytes(root),
        base_size=int(_base_size().read_text()),
        layers=_layers(),
    )


def _layers() -> tuple[int, ...]:
    """Return the sizes of the layers, gzipped, the base's first."""
    folder = HOME / "pushed"
    shutil.rmtree(folder, ignore_errors=True)
    _buildah("push", "--quiet", IMAGE, f"oci:{folder}:latest")
    blobs = folder / "blobs" / "sha256"
    index = json.loads((folder / "index.json").read_text())
    manifest = json.loads((blobs / _digest(index["manifests"][0])).read_text())
    shutil.rmtree(folder)
    return tuple(layer["size"] for layer in manifest["layers"])


def _digest(told: Mapping[str, str]) -> str:
    return told["digest"].removeprefix("sha256:")


def _import_base() -> None:
    recipe = "\n".join(_BASE_OPTIONS).encode()
    tar = downloads.once("image-base", recipe, _fill_base) / "base.tar"
    container = _buildah("from", "scratch").strip()
    _buildah("add", "--quiet", container, str(tar), "/")
    _buildah("config", f"--env=PATH={_PATH}", "--cmd=python", container)
    _buildah("commit", "--quiet", "--rm", container, BASE)
    root = HOME / "base"
    shutil.rmtree(root, ignore_errors=True)
    bring_out(BASE, root)
    _base_size().write_text(str(_bytes(root)))
    shutil.rmtree(root)


def _fill_base(folder: Path) -> None:
    downloads.run(["mmdebstrap", "--quiet", *_BASE_OPTIONS, folder / "base.tar"])


def _has(tag: str) -> bool:
    return (
        subprocess.run([*_command(), "inspect", tag], capture_output=True, check=False).returncode
        == 0
    )


def _buildah(*arguments: str) -> str:
    return _run(["unshare", "--mount", *_command(), *arguments], {})


def _command() -> list[str]:
    return ["buildah", f"--root={HOME / 'storage'}", f"--runroot={HOME / 'run'}"]


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if done.returncode:
        raise CannotStart(f"{command[2]} failed: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout


def _bytes(root: Path) -> int:
    """Return what the files below *root* take, each once however many names it has."""
    seen = {(about.st_dev, about.st_ino): about.st_size for about in _files(root)}
    return sum(seen.values())


def _files(root: Path) -> Iterator[os.stat_result]:
    for folder, _, names in os.walk(root):
        yield from ((Path(folder) / name).lstat() for name in names)


def key() -> str:
    """Return a name for the content of all that the image is made of."""
    told = hashlib.sha256()
    for path in sorted(_inputs()):
        told.update(f"{path.relative_to(CHECKOUT)} {path.stat().st_mode:o}\n".encode())
        told.update(hashlib.sha256(path.read_bytes()).digest())
    told.update("\n".join(_BASE_OPTIONS).encode())
    return told.hexdigest()[:16]


def _inputs() -> Iterator[Path]:
    for name in INPUTS:
        place = CHECKOUT / name
        files = place.rglob("*") if place.is_dir() else [place]
        yield from (file for file in files if file.is_file() and "__pycache__" not in file.parts)


def _base_size() -> Path:
    return HOME / "base-size"


def _note() -> Path:
    return HOME / "built.json"
