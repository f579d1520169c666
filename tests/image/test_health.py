"""The image's HEALTHCHECK, as an engine would run it beside each role that it is meant for."""

from __future__ import annotations

import pytest

from polling import wait_until

ROLES = {"worker": (), "analysis": ("angzarr", "dlq", "analyze", "--domain", "thing")}


@pytest.fixture
def check(image, make, site):
    """Run the image's check once and return its exit code and what it said."""

    def checked() -> tuple[int, str]:
        kind, *command = image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        port = site.environment["ANGZARR_HEALTH__PORT"]
        return make(*command, environment={"ANGZARR_HEALTH__PORT": port}).finished()

    return checked


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_healthy_from_its_start_to_its_end(worker, site, check, role):
    site.environment["ANGZARR_LEDGER"] = "sqlite:////tmp/ledger.db"
    code, said = check()
    assert code == 1, "nothing runs yet"
    assert len(said.splitlines()) == 1
    one = worker(*ROLES[role])
    wait_until(lambda: check()[0] == 0, f"the {role} is healthy")
    assert one.stop() == 0
    assert check()[0] == 1
