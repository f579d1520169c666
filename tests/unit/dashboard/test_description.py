"""Schemathesis asks the API all that its description allows, and some of what it forbids."""

from __future__ import annotations

from datetime import timedelta

import httpx
import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.specs.openapi import checks

from angzarr.aggregates.book import Address
from angzarr.analysis.replay.job import JobPlan, Selection
from angzarr.dashboard.api.route import PREFIX
from angzarr.settings.dashboard import Role
from contracts.ledger import letter_of
from contracts.waiting_events import step_of
from dashboard_caller import HOST, api
from dashboard_world import SALES, World
from endurance import longer

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


@pytest.fixture(scope="module")
def client():
    """A client of a site that has something to find in every place."""
    world = World()
    entries = world.ledger.add_failed_events([letter_of(f"e{n}") for n in range(3)])
    world.jobs.begin(Selection(entry_ids=(entries[0].id,)), JobPlan(), by="ada", job_id="j1")
    world.breakers.isolate("crm", by="ada")
    world.hold_up()
    world.lanes.move(step_of(SALES.lane(Address("order", "o-2")), 0))
    world.reject()
    world.clock.sleep(timedelta(seconds=1))
    return api(world, Role.APPROVER)


@hypothesis.settings(
    max_examples=longer(6, 40),
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def check(case, client):
    case.validate_response(ask(client, case), checks=CHECKS)


def test_the_api_is_what_its_description_says(client, subtests):
    # Schemathesis' own marker makes the cases while pytest collects: seconds in each process.
    schema = schemathesis.openapi.from_dict(client.get(f"{PREFIX}/openapi.json").json())
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 30
    for operation in operations:
        with subtests.test(operation.label):
            test = build_operation_test(
                config=schema.config,
                operation=operation,
                test_func=check,
                given_kwargs={},
                feedback=FeedbackSources(),
            )
            test(client=client)


def ask(client, case):
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
    return client.ask(case.method, path, headers=headers, params=params, **sent)


def pairs(params):
    """Return names and values as they would stand in an address; a container is one of each."""
    for name, value in params.items():
        for one in value if isinstance(value, dict | list | tuple) else [value]:
            if one is not None:
                yield name, one
