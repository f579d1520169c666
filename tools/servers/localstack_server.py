"""LocalStack (SQS, SNS, S3) in an environment of its own: it pins another boto3 than we use."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import downloads
import probes
from processes import Process, spawn
from server import CHECKOUT, LOOPBACK, CannotStart, Place, Server

REQUIREMENTS = CHECKOUT / "requirements" / "localstack.txt"
#: Tried in this order: the release was tested with the first.
PYTHONS = ("python3.11", "python3.12", "python3.13")

#: LocalStack gives its IPv4 server the port and forgets the host: it would listen everywhere.
LOOPBACK_ONLY = f"""
import functools, runpy
from twisted.internet import endpoints
endpoints.TCP4ServerEndpoint = functools.partial(
    endpoints.TCP4ServerEndpoint, interface="{LOOPBACK}"
)
runpy.run_module("localstack.runtime.main", run_name="__main__")
"""


def _environment_folder() -> Path:
    python = _python()
    version = subprocess.check_output([python, "--version"])
    return downloads.once(
        "localstack", REQUIREMENTS.read_bytes() + version, lambda folder: _fill(folder, python)
    )


def _fill(folder: Path, python: str) -> None:
    downloads.run([python, CHECKOUT / "tools/environment.py", folder / "venv", REQUIREMENTS])


def _python() -> str:
    for name in (*PYTHONS, sys.executable):
        path = shutil.which(name)
        if path and _works(path):
            return path
    raise CannotStart("LocalStack needs a Python from 3.11 to 3.13")


def _works(python: str) -> bool:
    """Run it: a version manager's shim stands in the path even where its version does not."""
    check = "import sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))"
    return subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0


def _launch(place: Place) -> list[Process]:
    for folder in ("tmp", "cache"):
        (place.folder / folder).mkdir(exist_ok=True)
    scripts = place.folder / "etc" / "localstack" / "init"  # where it looks below its root
    shutil.copytree(CHECKOUT / "localstack", scripts, dirs_exist_ok=True)
    python = _environment_folder() / "venv" / "bin" / "python"
    return [spawn([python, "-c", LOOPBACK_ONLY], log=place.log, env=_settings(place))]


def _settings(place: Place) -> dict[str, str]:
    gateway = f"{LOOPBACK}:{place.port}"
    return {
        "SERVICES": "sqs,sns,s3",
        "STRICT_SERVICE_LOADING": "1",
        "GATEWAY_LISTEN": gateway,
        "LOCALSTACK_HOST": gateway,
        "SQS_ENDPOINT_STRATEGY": "path",
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DNS_ADDRESS": "0",
        "OVERRIDE_IN_DOCKER": "0",
        "FILESYSTEM_ROOT": str(place.folder),
        "XDG_CACHE_HOME": str(place.folder / "cache"),
        "TMPDIR": str(place.folder / "tmp"),
    }


SERVER = Server(
    name="localstack",
    addresses=lambda place: {"ANGZARR_TEST_SQS_ENDPOINT": f"http://{LOOPBACK}:{place.port}"},
    ports=1,
    install=lambda: _environment_folder() and None,
    launch=_launch,
    ready=lambda place: probes.http(f"http://{LOOPBACK}:{place.port}/_localstack/health"),
    patience=60,
    compose_ports=("ANGZARR_LOCALSTACK_PORT",),
)
