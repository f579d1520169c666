"""How queues are declared that RabbitMQ must drop nothing from, whatever its release."""

from __future__ import annotations

import pytest

from angzarr.dead_letters.names import arguments_for, release_of


@pytest.mark.parametrize(
    ("version", "release"), [("4.1.0", 4), ("3.13.7", 3), ("", 0), ("x.1", 0), ("²", 0)]
)
def test_a_server_may_say_any_version(version, release):
    assert release_of({"version": version}) == release
    assert release_of({}) == 0


@pytest.mark.parametrize(
    ("version", "limit"),
    [("4.1.0", {"x-delivery-limit": -1}), ("3.13.7", {}), ("x.1", {}), ("", {})],
)
def test_only_a_release_with_a_limit_of_its_own_is_told_that_there_is_none(version, limit):
    assert arguments_for({"version": version}) == {"x-queue-type": "quorum", **limit}
