"""A certificate authority of a test's own, and certificates signed by it, made with `openssl`."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from programs import require

#: Elliptic keys: an RSA key takes a second of a busy machine, these a few milliseconds.
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """Files of a server on 127.0.0.1, and of the authority that a client must trust."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """Write a new authority and a certificate for 127.0.0.1 and localhost into *folder*.

    Valid for two days. Without `openssl` the test is skipped on a laptop and fails in CI.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority, authority_key = folder / "authority.pem", folder / "authority.key"
    certificate, key, request = folder / "server.pem", folder / "server.key", folder / "server.csr"
    names = folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    _openssl(
        "req", "-x509", *KEY, "-keyout", authority_key, "-out", authority, "-days", "2",
        "-subj", f"/CN=authority of {folder.name}",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    _openssl("req", "-new", *KEY, "-keyout", key, "-out", request, "-subj", "/CN=127.0.0.1")
    _openssl(
        "x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority_key,
        "-CAcreateserial", "-out", certificate, "-days", "2", "-extfile", names,
    )  # fmt: skip
    return Certificates(authority, certificate, key)


def _openssl(*arguments: str | Path) -> None:
    command = [require("openssl", "openssl"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {result.stderr.strip()[-400:]}")
