"""A solo worker of `redis_control_app` in a process of its own, and apps that steer it."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

from celery import Celery

import warm_process
from redis_servers import wait_until


class Site:
    """A worker process on one side, and an app to steer it from either."""

    def __init__(
        self, url: str, name: str, log: Path, *, journal: str = "", **options: object
    ) -> None:
        self.url, self.name, self.log, self.journal = url, name, log, journal or url
        self.options = options
        self.host = f"w@{name}"

    @contextmanager
    def worker(self, side: str):
        environment = {
            **os.environ,
            "CONTROL_BROKER": self.url,
            "CONTROL_NAME": self.name,
            "CONTROL_TRANSPORT": side,
            "CONTROL_JOURNAL": self.journal,
            "CONTROL_OPTIONS": json.dumps(self.options),
        }
        command = [
            "celery", "-A", "redis_control_app", "worker", "--pool", "solo",
            "--loglevel", "INFO", "--hostname", self.host, "--without-mingle", "--without-gossip",
        ]  # fmt: skip
        self.log.write_bytes(b"")
        folder = Path(__file__).parent
        process = warm_process.begin(command, folder=folder, environment=environment, log=self.log)
        try:
            wait_until(lambda: " ready." in self.text() or process.poll() is not None, "the worker")
            assert process.poll() is None, self.text()
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)
        assert "Traceback" not in self.text(), self.text()

    @contextmanager
    def app(self, side: str):
        app = Celery(self.name, broker=self.url)
        app.conf.update(
            broker_transport=side,
            broker_transport_options={"global_keyprefix": f"{self.name}:", **self.options},
            task_default_queue="tasks",
        )
        try:
            yield app
        finally:
            app.close()

    def text(self) -> str:
        return self.log.read_text(errors="replace")
