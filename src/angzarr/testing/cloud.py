"""Cloud: SQS, SNS and S3 for tests, played by moto in this process or by a LocalStack."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from angzarr.errors import MissingExtra

#: Where a LocalStack may be named, the first that is set.
VARIABLES: Final = ("ANGZARR_TEST_SQS_ENDPOINT", "AWS_ENDPOINT_URL")
REGION: Final = "us-east-1"
#: Seconds in which a LocalStack answers that is there.
_PATIENCE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Aws:
    """A stand-in for AWS at `endpoint_url`; keys are of no consequence there."""

    endpoint_url: str
    region: str = REGION

    @property
    def dlq(self) -> dict[str, Any]:
        """Settings ``dlq`` under which dead letters go there; add ``backend``."""
        return {
            "aws_endpoint_url": self.endpoint_url,
            "aws_region": self.region,
            "aws_options": {"aws_access_key_id": "test", "aws_secret_access_key": "test"},
        }

    @property
    def broker_url(self) -> str:
        """The URL of a broker there, for ``Angzarr(broker=…)``."""
        return f"sqs://test:test@{self.endpoint_url.partition('://')[2]}"

    @property
    def broker_transport_options(self) -> dict[str, Any]:
        """What Celery's transport needs to find it."""
        return {"region": self.region, "is_secure": False, "polling_interval": 0.05}

    def client(self, service: str) -> Any:
        """Return boto3's client of ``sqs``, ``sns`` or ``s3``."""
        import boto3

        session: Any = boto3.session.Session("test", "test", region_name=self.region)
        return session.client(service, endpoint_url=self.endpoint_url)


@contextmanager
def open_moto() -> Iterator[Aws]:
    """Give an empty AWS on a free port of this machine; raises MissingExtra without moto."""
    try:
        from moto.server import ThreadedMotoServer
    except ModuleNotFoundError as error:
        raise MissingExtra("moto", "testing") from error
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = Aws(endpoint_url=f"http://{host}:{port}")
    try:
        _reset(found)
        yield found
        _reset(found)
    finally:
        server.stop()


def _reset(found: Aws) -> None:
    """Empty it: moto's servers of one process share what is in them."""
    request = urllib.request.Request(f"{found.endpoint_url}/moto-api/reset", method="POST")  # noqa: S310 - our own server
    urllib.request.urlopen(request, timeout=_PATIENCE).close()  # noqa: S310


def localstack_address() -> str:
    """Return where LocalStack is; skips the test without one, and fails it in CI."""
    named = next((name for name in VARIABLES if os.environ.get(name)), None)
    if named is None:
        _do_without(f"no LocalStack: start one and name it, {VARIABLES[0]}=http://localhost:4566")
    address = os.environ[str(named)].rstrip("/")
    if not address.startswith(("http://", "https://")):
        _do_without(f"{named} is no URL: {address}; e.g. http://localhost:4566")
    try:
        urllib.request.urlopen(f"{address}/_localstack/health", timeout=_PATIENCE).close()  # noqa: S310 - checked above
    except (urllib.error.URLError, OSError) as error:
        _do_without(f"no LocalStack answers at {address} ({error}): start it, or unset {named}")
    return address


def _do_without(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (in CI it must be there)", pytrace=False)
    pytest.skip(reason)
