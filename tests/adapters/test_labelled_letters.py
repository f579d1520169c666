"""The labelled letters stay true: some failures provoked anew against the real servers.

Whoever changes what a letter says, or takes a client's next release, sees here that the recorded
ones are out of date: run ``make corpus``.
"""

from __future__ import annotations

import sys
from functools import cache

import pytest
from tools.corpus.lines import letter_of, line_of, read, scenarios
from tools.corpus.workshop import provoke

#: The stack of another Python has other frames, and so another group.
RECORDED_WITH = (3, 11)

NAMES = [
    "http_down.refused",
    "http_down.unavailable",
    "http_down.truncated_httpx",
    "http_refusals.customer_not_found",
    "tls_and_names.unknown_authority",
    "mail.server_full",
    "network.reset",
    "redis_calls.wrong_password",
    "redis_calls.full",
    "sql.deadlock",
    "sql_refusals.order_exists",
    "sql.unknown_table_sqlalchemy",
    "sql.wrong_password",
    "rabbitmq_calls.access_refused",
    "rabbitmq_calls.other_arguments",
    "rabbitmq_calls.given_back_too_often",
    "kafka_calls.unknown_topic",
    "aws_calls.no_such_bucket",
    "grpc_calls.unavailable",
    "files.disk_full",
    "data.cut_off",
    "data.one_id_two_bodies",
    "settings.missing_variable",
    "code.none_has_no_percent",
    "mysql_calls.deadlock",
    "mysql_calls.wrong_password_sqlalchemy",
    "aiohttp_calls.hung_up",
    "google_calls.unavailable",
    "sockets.imap_login",
]


@cache
def _all():
    return scenarios()


@cache
def _recorded():
    return {line["scenario"]: line for line in read()}


def test_the_file_has_the_scenarios_and_the_labels_of_the_code():
    recorded = {line["scenario"]: {**line, "letter": None} for line in read()}
    told = {name: line_of(one, None) for name, one in scenarios().items()}
    assert recorded.keys() == told.keys()
    assert not [name for name in told if told[name] != recorded[name]]


def _marked(name: str):
    needs = _all()[name].needs
    return pytest.param(name, marks=[pytest.mark.server(needs)] if needs else [])


@pytest.mark.parametrize("name", [_marked(name) for name in NAMES])
def test_a_recorded_letter_is_what_the_failure_still_writes(name):
    recorded = letter_of(_recorded()[name])
    now = provoke(_all()[name])
    assert _said(now) == _said(recorded)
    if sys.version_info[:2] == RECORDED_WITH:
        assert now.fingerprint == recorded.fingerprint


def _said(letter):
    return (
        letter.reason, letter.category, letter.error_type, letter.error_code, letter.error_message,
    )  # fmt: skip
