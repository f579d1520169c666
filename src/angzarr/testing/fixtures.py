"""The fixtures. A conftest.py asks for them: ``pytest_plugins = ["angzarr.testing"]``.

This module imports little, because pytest imports it at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from angzarr.testing.clock import FakeClock

if TYPE_CHECKING:
    from angzarr.app.angzarr import Angzarr
    from angzarr.testing.cloud import Aws
    from angzarr.testing.letters import DeadLetters, LedgerInTest
    from angzarr.testing.settled import FactsSeen
    from angzarr.testing.worker import InProcessWorker

T = TypeVar("T")

#: The ini option that names the app under test.
OPTION = "angzarr_app"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option ``angzarr_app``."""
    parser.addini(OPTION, "The app under test, as celery -A takes it: module or module:name.")


@pytest.fixture(scope="session")
def app_under_test(pytestconfig: pytest.Config) -> Angzarr:
    """The app under test, as in production: override it, or set the ini option."""
    from angzarr.cli.application import load_angzarr

    name = str(pytestconfig.getini(OPTION) or "")
    if not name:
        pytest.fail(
            "no app to test: set angzarr_app in pytest's options, e.g. angzarr_app = orders:app,"
            " or override the fixture app_under_test",
            pytrace=False,
        )
    try:
        found: Any = load_angzarr(name)
    except Exception as error:
        if not hasattr(error, "message"):
            raise
        why = error.message
    else:
        return _checked(found)
    # Out of the except, or pytest would show the sentence once more as the cause.
    pytest.fail(f"angzarr_app = {name}: {why}", pytrace=False)


def _enter(doors: ExitStack, context: AbstractContextManager[T]) -> T:
    """Enter *context*; what a user must change is one sentence, without a traceback."""
    from angzarr.errors import ConfigurationError

    try:
        return doors.enter_context(context)
    except ConfigurationError as error:
        why = str(error)
    # Out of the except, or pytest would show the sentence once more for each of its causes.
    pytest.fail(why, pytrace=False)


def _checked(app: object) -> Angzarr:
    from angzarr.app.angzarr import Angzarr

    if not isinstance(app, Angzarr):
        pytest.fail(f"the app under test is not an Angzarr but {app!r}", pytrace=False)
    return app


@pytest.fixture
def angzarr_settings() -> Mapping[str, Any]:
    """Settings put over those of the app, as in its YAML file: override it."""
    return {}


@pytest.fixture
def angzarr_chance() -> Callable[[], float]:
    """What draws chance, in [0, 1): always 0, so that jitter adds nothing. Override it."""
    return lambda: 0.0


@pytest.fixture
def fake_clock() -> FakeClock:
    """The clock that `angzarr_app` goes by; it stands still until it is moved."""
    return FakeClock()


@pytest.fixture
def angzarr_app(
    app_under_test: Angzarr,
    angzarr_settings: Mapping[str, Any],
    angzarr_chance: Callable[[], float],
    fake_clock: FakeClock,
    tmp_path: Path,
) -> Iterator[Angzarr]:
    """The app, with a broker, claims, books and dead letters of this test alone."""
    from angzarr.testing.staging import staged

    app = _checked(app_under_test)
    stage = staged(app, tmp_path, fake_clock, settings=angzarr_settings, chance=angzarr_chance)
    with ExitStack() as doors:
        doors.enter_context(pytest.MonkeyPatch.context()).chdir(tmp_path)
        _enter(doors, stage)
        yield app


@pytest.fixture
def angzarr_worker(angzarr_app: Angzarr, fake_clock: FakeClock) -> Iterator[InProcessWorker]:
    """A worker of the app, which handles what was published when the test says so."""
    from angzarr.testing.worker import open_in_process

    with ExitStack() as doors:
        yield _enter(doors, open_in_process(angzarr_app, fake_clock))


@pytest.fixture
def running_worker(angzarr_worker: InProcessWorker) -> Iterator[InProcessWorker]:
    """A worker that runs on a thread and handles whatever is published, at once."""
    with angzarr_worker.running():
        yield angzarr_worker


@pytest.fixture
def dead_letters(angzarr_app: Angzarr) -> DeadLetters:
    """What could not be handled."""
    from angzarr.adapters.memory.dead_letters import MemoryDeadLetterQueue
    from angzarr.testing.letters import DeadLetters
    from angzarr.wiring.dead_letters import channel_of

    return DeadLetters(MemoryDeadLetterQueue(channel_of(angzarr_app.ops.broker_url)))


@pytest.fixture
def facts(angzarr_app: Angzarr) -> FactsSeen:
    """What was told of each delivery."""
    from angzarr.adapters.memory.facts import shared
    from angzarr.testing.settled import FactsSeen

    return FactsSeen(shared(str(angzarr_app.settings.facts.url)))


@pytest.fixture
def ledger(
    angzarr_app: Angzarr, angzarr_worker: InProcessWorker, dead_letters: DeadLetters
) -> Iterator[LedgerInTest]:
    """The analysis of dead letters, when the test says so."""
    from angzarr.testing.letters import open_ledger

    with open_ledger(angzarr_app, angzarr_worker, dead_letters) as opened:
        yield opened


@pytest.fixture
def localstack() -> Aws:
    """An empty account of the LocalStack that ANGZARR_TEST_SQS_ENDPOINT or AWS_ENDPOINT_URL names.

    Without one the test is skipped; in CI it fails.
    """
    from angzarr.testing.cloud import open_localstack

    return open_localstack()


@pytest.fixture
def aws() -> Iterator[Aws]:
    """SQS, SNS and S3 in this process, empty and of this test alone, with the clients of it."""
    from angzarr.testing.cloud import open_moto

    with ExitStack() as doors:
        yield _enter(doors, open_moto())
