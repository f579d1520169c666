"""Images without an engine: archives of folders and files, as `docker save` writes them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layout import PAUSE, Layout


@dataclass(frozen=True)
class Image:
    """A name and what is run under it; *config* has Docker's own words."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)


def write_pause(place: Layout) -> Path:
    """Write the image that holds a pod's namespaces open, and return its archive."""
    layer = place.home / "pause-layer.tar"
    with tarfile.open(layer, "w") as content:
        content.add(place.programs / "pause", "pause")
    archive = place.home / "pause.tar"
    held = Image(PAUSE, {"Entrypoint": ["/pause"], "User": "65535:65535"})
    write_archive(archive, [layer], [held])
    return archive


def write_archive(archive: Path, layers: Sequence[Path], images: Sequence[Image]) -> None:
    """Write to *archive* the *images*, which all are of the same *layers*, tar files."""
    digests = [_digest(layer) for layer in layers]
    stored = [f"{digest}/layer.tar" for digest in digests]
    manifest = []
    with tarfile.open(archive, "w") as saved:
        for layer, name in zip(layers, stored, strict=True):
            saved.add(layer, name)
        for image in images:
            described = json.dumps(_description(image, digests)).encode()
            named = f"{hashlib.sha256(described).hexdigest()}.json"
            _add(saved, named, described)
            manifest.append({"Config": named, "RepoTags": [image.name], "Layers": stored})
        _add(saved, "manifest.json", json.dumps(manifest).encode())


def _digest(layer: Path) -> str:
    with layer.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _description(image: Image, digests: Sequence[str]) -> dict[str, Any]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(image.config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{one}" for one in digests]},
    }


def _add(saved: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    saved.addfile(entry, io.BytesIO(content))
