"""Stand-ins for official images that no engine can fetch here, made of Debian's packages."""

from __future__ import annotations

import tarfile
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


def archive() -> Path:
    """Return the archive of all stand-ins, made once a machine; that takes a minute or two."""
    recipe = f"{DEBIAN} {INCLUDED} {SERVERS}".encode() + ENTRY.read_bytes()
    return downloads.once("stand-ins", recipe, _fill) / "images.tar"


def _fill(into: Path) -> None:
    packages.ensure("debootstrap", "debootstrap")
    root = into / "root"
    downloads.run(["debootstrap", "--variant=minbase", f"--include={INCLUDED}", DEBIAN, root])
    (root / "data").mkdir()
    (root / "stand-in").write_bytes(ENTRY.read_bytes())
    (root / "stand-in").chmod(0o755)
    layer = into / "layer.tar"
    with tarfile.open(layer, "w") as content:
        content.add(root, "", filter=_kept)
    write_archive(into / "images.tar", layer, [_image(*one) for one in SERVERS.items()])
    layer.unlink()
    downloads.run(["rm", "--recursive", "--one-file-system", root])


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what fetching packages left, and devices: a container has its own."""
    left = entry.name.startswith(("var/cache/apt/archives/", "var/lib/apt/lists/", "dev/"))
    return None if left or entry.isdev() else entry


def _image(name: str, server: str) -> Image:
    return Image(name, {"Entrypoint": ["/stand-in"], "Env": [f"STAND_IN={server}", f"PATH={PATH}"]})


if __name__ == "__main__":
    print(archive())
