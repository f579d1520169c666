"""Schemathesis asks the API all that its description allows, and some of what it forbids."""

from __future__ import annotations

from datetime import timedelta

import httpx
import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from angzarr.aggregates.book import Address
from angzarr.analysis.replay.job import JobPlan, Selection
from angzarr.dashboard.api.route import PREFIX
from angzarr.settings.dashboard import Role
from contracts.ledger import letter_of
from contracts.waiting_events import step_of
from dashboard_caller import HOST, api
from dashboard_world import SALES, World

WORLD = World()
CLIENT = api(WORLD, Role.APPROVER)
SCHEMA = schemathesis.openapi.from_dict(CLIENT.get(f"{PREFIX}/openapi.json").json())
TOKENS = ("X-API-Key", "Authorization")
#: The longest path and query, as they are sent, that there is a client for: httpx refuses more.
LONGEST = 65_536
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]


@pytest.fixture(autouse=True, scope="module")
def _something_to_find():
    entries = WORLD.ledger.add_failed_events([letter_of(f"e{n}") for n in range(3)])
    WORLD.jobs.begin(Selection(entry_ids=(entries[0].id,)), JobPlan(), by="ada", job_id="j1")
    WORLD.breakers.isolate("crm", by="ada")
    WORLD.hold_up()
    WORLD.lanes.move(step_of(SALES.lane(Address("order", "o-2")), 0))
    WORLD.reject()
    WORLD.clock.sleep(timedelta(seconds=1))


@SCHEMA.parametrize()
@hypothesis.settings(
    max_examples=12,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_the_api_is_what_its_description_says(case):
    case.validate_response(ask(case), checks=CHECKS)


def ask(case):
    """Send *case* with our token in place of those that it made up."""
    options = case.as_transport_kwargs(base_url=HOST)
    headers = {
        name: str(text).encode("latin-1", "replace")
        for name, text in options["headers"].items()
        if name not in TOKENS
    }
    sent = {"json": options["json"]} if "json" in options else {}
    if isinstance(body := options.get("data"), str | bytes):
        sent = {"content": body}
    path, params = options["url"].removeprefix(HOST), list(pairs(options.get("params") or {}))
    hypothesis.assume(max(len(path), len(str(httpx.QueryParams(params)))) <= LONGEST)
    return CLIENT.ask(case.method, path, headers=headers, params=params, **sent)


def pairs(params):
    """Return names and values as they would stand in an address; a container is one of each."""
    for name, value in params.items():
        for one in value if isinstance(value, dict | list | tuple) else [value]:
            if one is not None:
                yield name, one
