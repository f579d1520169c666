"""Two apps on one broker: their letters do not mix, and neither do those of earlier releases."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import journal
import warm_process
from angzarr.adapters.rabbitmq.dead_letters import RabbitMQDeadLetterQueue
from angzarr.adapters.sql.engine.engine import build_engine
from angzarr.adapters.sql.ledger.database import LedgerDatabase
from angzarr.adapters.sql.ledger.store import SqlLedger
from angzarr.analysis.ledger.entry import Entry, Status
from polling import PATIENCE, wait_until
from system.conftest import HERE, PATH, stop

TASKS = 2
pytestmark = pytest.mark.timeout(600)


class Pair:
    """Two apps of one task, each with a worker, an analysis worker and a ledger of its own."""

    def __init__(self, folder: Path, name: str, broker: str, store: str, letters: str) -> None:
        self.folder = folder
        #: Each is the default domain of that app's letters.
        self.apps = (f"shop-{name}", f"blog-{name}")
        (folder / "journal").touch()
        self._common = {
            "TWO_FOLDER": str(folder), "TWO_BROKER": broker, "TWO_STORE": store,
            "TWO_LETTERS": letters, "PYTHONPATH": PATH,
        }  # fmt: skip

    def _environment(self, app: str, **more: str) -> dict[str, str]:
        inherited = {one: text for one, text in os.environ.items() if "DEFAULT_DOMAIN" not in one}
        return {**inherited, **self._common, "TWO_NAME": app, **more}

    @contextmanager
    def process(self, app: str, *words: str, ready: str, **more: str):
        """Run a command of *app* until the block is left."""
        log = self.folder / f"{app}-{words[-1]}.log"
        log.touch()
        process = warm_process.begin(
            words[:-1], folder=HERE, environment=self._environment(app, **more), log=log
        )
        try:
            wait_until(lambda: ready in log.read_text(errors="replace"), f"{words} of {app}")
            yield
        finally:
            stop(process)

    def worker(self, app: str, **more: str):
        return self.process(
            app, "celery", "-A", "two_apps", "worker", "--concurrency", "1", "--loglevel", "INFO",
            "--without-mingle", "--without-gossip", "--hostname", f"{app}@%h", "worker",
            ready=" ready.", **more,
        )  # fmt: skip

    def analyst(self, app: str):
        return self.process(
            app, "angzarr", "-A", "two_apps", "dlq", "analyze", "analyst", ready="reads"
        )

    def say(self, app: str, *words: str) -> None:
        """Run a command of *app* to its end."""
        done = warm_process.run(
            words, folder=HERE, environment=self._environment(app), timeout=PATIENCE
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def fail_tasks(self) -> None:
        """Send tasks of both apps and wait until each has failed once."""
        for app in self.apps * TASKS:
            sent = ("call", "tasks.charge", "--args", json.dumps([app]))
            self.say(app, "celery", "-A", "two_apps", *sent)
        wait_until(lambda: len(self.runs()) == 2 * TASKS, "all to fail")

    def runs(self) -> list[tuple[str, str]]:
        """In which app each run was, and of which it is."""
        return [(one["ran_in"], one["of"]) for one in journal.records(self.folder / "journal")]

    def entries(self, app: str, status: Status | None = None) -> list[Entry]:
        ledger = SqlLedger(LedgerDatabase(build_engine(f"sqlite:///{self.folder / app}.db")))
        try:
            return list(ledger.get_failed_events(status=status).entries)
        finally:
            ledger.close()

    def wait_entries(self, app: str, number: int, status: Status | None = None) -> list[Entry]:
        what = f"{number} entries of {app}, {status or 'any'}"
        wait_until(lambda: len(self.entries(app, status)) == number, what)
        return self.entries(app, status)

    def replay_all(self) -> None:
        """Fix the task, replay what each app has, and see that it ran where it belongs."""
        (self.folder / "fixed").touch()
        for app in self.apps:
            for entry in self.wait_entries(app, TASKS, Status.HELD):
                self.say(app, "angzarr", "-A", "two_apps", "dlq", "replay", entry.id, "--yes")
        for app in self.apps:
            self.wait_entries(app, TASKS, Status.RESOLVED)
        once = sorted((app, app) for app in self.apps for _ in range(TASKS))
        assert sorted(self.runs()) == sorted(2 * once)


@pytest.fixture(params=["redis", "rabbitmq"])
def pair(request, tmp_path, unique_name, redis_url, amqp_url):
    letters = RabbitMQDeadLetterQueue(amqp_url)
    while found := letters.receive(["unknown"], limit=100, wait=timedelta()):
        letters.done(found)  # other tests' letters
    letters.close()
    broker = {"redis": redis_url, "rabbitmq": amqp_url}[request.param]
    return Pair(tmp_path, unique_name.lower().replace("_", "-")[-12:], broker, redis_url, amqp_url)


def test_each_app_files_and_replays_its_own_letters_alone(pair):
    with ExitStack() as running:
        for app in pair.apps:
            running.enter_context(pair.worker(app))
            running.enter_context(pair.analyst(app))
        pair.fail_tasks()
        for app in pair.apps:
            found = pair.wait_entries(app, TASKS, Status.HELD)
            assert {entry.domain for entry in found} == {app}
        pair.replay_all()
    for app in pair.apps:
        assert len(pair.entries(app)) == TASKS


def test_letters_of_earlier_releases_reach_the_app_that_wrote_them(pair):
    with ExitStack() as running:
        for app in pair.apps:  # as earlier releases did, both put theirs into one queue
            running.enter_context(pair.worker(app, ANGZARR_DLQ__DEFAULT_DOMAIN="unknown"))
        pair.fail_tasks()
        shop, blog = pair.apps
        running.enter_context(pair.analyst(shop))  # alone, it reads the other's letters as well
        pair.wait_entries(shop, TASKS, Status.HELD)
        pair.wait_entries(shop, TASKS, Status.ARCHIVED)  # kept here, and given on
        running.enter_context(pair.analyst(blog))
        assert {entry.domain for entry in pair.wait_entries(blog, TASKS)} == {"unknown"}
        pair.replay_all()
        assert len(pair.entries(shop, Status.ARCHIVED)) == TASKS
