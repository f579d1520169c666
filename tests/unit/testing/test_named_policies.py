"""What a handler names is looked up when it is needed: a test's settings hold for it, too."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from angzarr import Angzarr


class Placed(BaseModel):
    n: int = 1


app = Angzarr(
    "policies",
    broker="memory://",
    retry={"policies": {"quick": {"base": 0.2, "max_delay": 1, "max_attempts": 5}}},
)


@app.task(name="task", policy="quick")
def task():
    raise ConnectionError("down")


@app.handler(Placed, name="handler", policy="quick")
def handler(event: Placed):
    raise ConnectionError("down")


@pytest.fixture
def app_under_test():
    return app


@pytest.fixture
def angzarr_settings():
    return {"retry": {"policies": {"quick": {"max_attempts": 2}}}}


@pytest.mark.parametrize("send", [task.delay, lambda: app.publish(Placed())])
def test_a_policy_that_a_handler_names_is_the_tests(angzarr_worker, send):
    send()
    done = angzarr_worker.run_until_settled()
    assert [one.outcome for one in done] == ["retried", "dead_lettered"]
