"""The Dockerfile that docs/how-to/build-an-image.md shows, built from our image and run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tools.image.building import CHECKOUT, IMAGE, bring_out, build_image, config_of
from tools.image.container import Container

from programs import lacking

PAGE = CHECKOUT / "docs" / "how-to" / "build-an-image.md"
HADOLINT = CHECKOUT / "build" / "hadolint" / "bin" / "hadolint"
#: A package that the image does not have; its pin and hashes are those of the developers' list.
PACKAGE = "pika"
TAG = "localhost/shop-orders:checked"

APP = """
from pydantic import BaseModel

import pika
from angzarr import Angzarr

app = Angzarr("orders", broker="memory://")


class Placed(BaseModel):
    n: int


@app.handler(Placed)
def place(event: Placed) -> None: ...
"""


def shown() -> str:
    (found,) = re.findall(r"```dockerfile\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return found


def pinned(package: str) -> str:
    lines = (CHECKOUT / "requirements" / "dev.txt").read_text()
    return re.search(rf"^{package}==(.*\\\n)*.*\n", lines, re.MULTILINE).group()


@pytest.fixture(scope="module")
def yours(image, tmp_path_factory):
    """The image's config and its files, in a folder that is removed afterwards: it is large."""
    context = tmp_path_factory.mktemp("shop")
    (context / "Dockerfile").write_text(shown())
    (context / "requirements.txt").write_text(pinned(PACKAGE))
    (context / "orders.py").write_text(APP)
    (context / "orders.yaml").write_text("prefix: shop\n")
    build_image(context, TAG, ANGZARR_IMAGE=IMAGE)
    root = context / "root"
    bring_out(TAG, root)
    yield config_of(TAG), root
    shutil.rmtree(root)


def said_by(yours, *command: str) -> str:
    config, root = yours
    with Container(root, config, command) as container:
        code, said = container.finished()
    assert code == 0, said
    return said


def test_hadolint_finds_nothing_in_what_the_page_shows():
    if not HADOLINT.exists():
        lacking("no hadolint: run `make image-check`")
    done = subprocess.run(
        [HADOLINT, "-"], input=shown(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_it_has_what_ours_has_and_its_own(yours):
    config, root = yours
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["/usr/bin/tini", "--"]
    assert config["Healthcheck"]["Test"] == ["CMD", "angzarr", "health", "live"]
    assert (
        said_by(yours, "python", "-c", "import orders; print(orders.app.settings.prefix)")
        == "shop\n"
    )
    assert (root / "opt" / "shop" / PACKAGE).is_dir()


def test_the_command_line_knows_its_app(yours):
    assert "orders.place" in said_by(
        yours, "angzarr", "policy", "explain", "--handler", "orders.place"
    )


def test_our_pins_are_in_it_to_pin_yours_by(image):
    ours = (CHECKOUT / "requirements" / "image.txt").read_bytes()
    assert Path(image.root, "opt", "angzarr", "requirements.txt").read_bytes() == ours
