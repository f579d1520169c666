"""Stand-ins for official images that no engine can fetch here, made of Debian's packages."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import downloads
import packages
from images import Image, write_archive

#: Which server's image is stood in for by which.
SERVERS = {
    "docker.io/library/redis:8.2.2-bookworm": "redis",
    "docker.io/library/rabbitmq:4.1.4-management": "rabbitmq",
    "docker.io/library/postgres:17.6-bookworm": "postgres",
}
DEBIAN = "bookworm"
INCLUDED = "redis-server,rabbitmq-server,postgresql"
ENTRY = Path(__file__).with_name("stand-in")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def write(archive: Path) -> None:
    """Write all stand-ins to *archive*; what they are made of is fetched once a machine."""
    packages_layer = downloads.once("stand-ins", f"{DEBIAN} {INCLUDED}".encode(), _fill)
    with tempfile.TemporaryDirectory() as folder:
        entry_layer = Path(folder) / "entry.tar"
        with tarfile.open(entry_layer, "w") as content:
            content.add(ENTRY, "stand-in", filter=_executable)
        layers = [packages_layer / "layer.tar", entry_layer]
        write_archive(archive, layers, [_image(*one) for one in SERVERS.items()])


def _fill(into: Path) -> None:
    """Install the packages below a folder and keep it as a tar file; takes a minute or two."""
    packages.ensure("debootstrap", "debootstrap")
    root = into / "root"
    downloads.run(["debootstrap", "--variant=minbase", f"--include={INCLUDED}", DEBIAN, root])
    (root / "data").mkdir()
    with tarfile.open(into / "layer.tar", "w") as content:
        content.add(root, "", filter=_kept)
    downloads.run(["rm", "--recursive", "--one-file-system", root])


def _executable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode = 0o755
    entry.uid = entry.gid = 0
    return entry


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what fetching packages left, and devices: a container has its own."""
    left = entry.name.startswith(("var/cache/apt/archives/", "var/lib/apt/lists/", "dev/"))
    return None if left or entry.isdev() else entry


def _image(name: str, server: str) -> Image:
    return Image(name, {"Entrypoint": ["/stand-in"], "Env": [f"STAND_IN={server}", f"PATH={PATH}"]})
