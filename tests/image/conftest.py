"""The image that `make image-check` built, and containers of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tools.image.building import Built, current, key
from tools.image.container import Container

from polling import PATIENCE
from programs import lacking
from system.conftest import Site

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def image() -> Built:
    if os.geteuid():
        lacking("only root can run an image without an engine")
    built = current()
    if built is None or built.key != key():
        lacking("there is no image of these sources: run `make image-check`")
    return built


@pytest.fixture
def make(image: Built) -> Iterator[Callable[..., Container]]:
    """Make a container of the image that runs *command*; it ends with the test."""
    with ExitStack() as stack:

        def made(*command: str, **more) -> Container:
            one = Container(Path(image.root), image.config, command, **more)
            return stack.enter_context(one)

        yield made


@pytest.fixture
def run(make) -> Callable[..., str]:
    """Run *command* in a container to its end and return what it said; it must not fail."""

    def ran(*command: str, seconds: float = 3 * PATIENCE, **more) -> str:
        code, said = make(*command, **more).finished(seconds)
        assert code == 0, said
        return said

    return ran


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def site(tmp_path, monkeypatch, unique_name, redis_site_environment, free_port) -> Iterator[Site]:
    """The app of the tests of workers, in /app of containers, whose /tmp is the site's folder."""
    folder, code = tmp_path / "tmp", tmp_path / "app"
    for made in (folder, code):
        made.mkdir()
    folder.chmod(0o1777)
    for name in ("tests/system/road_app.py", "tools/journal.py"):
        shutil.copy(CHECKOUT / name, code)
    environment = {
        **redis_site_environment,
        "ROAD_PREFIX": unique_name,
        "ROAD_ASYNC": "0",
        "ROAD_GRACE": "1",
        # Of this machine, as its network is here the containers' too.
        "ANGZARR_HEALTH__PORT": str(free_port),
    }
    site = Site(folder, environment, monkeypatch)
    site.journal.chmod(0o666)
    yield site
    site.close()


@pytest.fixture
def redis_site_environment(redis_url, amqp_url):
    letters = json.dumps({"backend": "amqp", "amqp_url": amqp_url})
    return {
        "ROAD_BROKER": redis_url,
        "ROAD_BACKEND": redis_url,
        "ANGZARR_STORE": redis_url,
        "ROAD_DLQ": letters,
    }


@pytest.fixture
def worker(make, site, tmp_path) -> Callable[..., Container]:
    """Make a container that runs what the image runs by itself: a worker of the site's app."""

    def made(*command: str, **more) -> Container:
        environment = {
            **site.environment, "ANGZARR_APP": "road_app", "ROAD_JOURNAL": "/tmp/journal",
        }  # fmt: skip
        return make(
            *command, environment=environment, app=tmp_path / "app", tmp=site.journal.parent,
            log=site.log, **more,
        )  # fmt: skip

    return made
