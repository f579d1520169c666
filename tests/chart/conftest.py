"""The chart's tests need helm, promtool and the schemas; `make chart` brings them."""

from __future__ import annotations

import os

import pytest

from chart.rendering import TOOLS, Rendered, rendered


@pytest.fixture(autouse=True, scope="session")
def chart_tools() -> None:
    """Skip on a machine where `make chart` never ran; in CI that is an error."""
    if TOOLS.exists():
        return
    reason = "the chart's tools are missing: run `make chart`"
    if os.environ.get("CI") == "true" or os.environ.get("ANGZARR_REQUIRE_SERVERS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def minimal() -> Rendered:
    return rendered("minimal")
