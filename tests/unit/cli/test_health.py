"""angzarr health: what it asks, and what it says where nothing can be asked."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from angzarr.cli.health import HOST, PORT, _place
from angzarr.cli.main import main


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    monkeypatch.delenv(PORT, raising=False)
    monkeypatch.delenv(HOST, raising=False)


def told(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["health", *words])
    return result.exit_code, result.output


def test_without_a_port_it_names_the_variable():
    assert told("live") == (
        1,
        f"Error: no port is set: set {PORT}, for the worker as well, or name its --url\n",
    )


@pytest.mark.parametrize("port", ["x", "0", "65536", "-1", "8081;rm", "٣"])
def test_a_port_that_is_none_is_told(monkeypatch, port):
    monkeypatch.setenv(PORT, port)
    assert told("live")[0] == 1
    assert "from 1 to 65535" in told("live")[1]


@pytest.mark.parametrize(
    "url", ["https://a", "a:1", "http://", "http://a:99999", "ftp://a", "[", "http://[::1"]
)
def test_a_url_that_is_none_is_told(url):
    assert told("ready", "--url", url)[1] == "Error: --url must be like http://127.0.0.1:8081\n"


@pytest.mark.parametrize(
    ("host", "asked"),
    [("", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.7", "10.0.0.7")],  # noqa: S104
)
def test_it_asks_where_the_worker_listens(monkeypatch, host, asked):
    monkeypatch.setenv(PORT, "8081")
    monkeypatch.setenv(HOST, host)
    assert _place(None) == (asked, 8081, "")


def test_a_url_may_hold_a_path():
    assert _place("http://localhost:90/pod/") == ("localhost", 90, "/pod")


def test_it_imports_neither_celery_nor_an_app():
    check = (
        "import sys; sys.argv = ['angzarr', 'health', 'live', '--url', 'http://127.0.0.1:1'];"
        "from angzarr.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code)\n"
        "print({'celery', 'pydantic', 'kombu', 'rich', 'angzarr.app.angzarr'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert said.stdout == "1\nset()\n"
