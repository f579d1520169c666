"""Catalogue: every check there is, in the order of the pages."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from angzarr.doctor import (
    celery_rules,
    database_rules,
    fleet_rules,
    letter_rules,
    payload_rules,
    rabbitmq_rules,
    redis_rules,
    refusal_rules,
    server_rules,
    sqs_rules,
    stock_rules,
    time_rules,
)
from angzarr.doctor.finding import Check

CHECKS: Final[tuple[Check, ...]] = (
    *server_rules.CHECKS,
    *refusal_rules.CHECKS,
    *celery_rules.CHECKS,
    *stock_rules.CHECKS,
    *time_rules.CHECKS,
    *redis_rules.CHECKS,
    *rabbitmq_rules.CHECKS,
    *sqs_rules.CHECKS,
    *letter_rules.CHECKS,
    *payload_rules.CHECKS,
    *database_rules.CHECKS,
    *fleet_rules.CHECKS,
)
IDS: Final = frozenset(check.id for check in CHECKS)


def misspelt(ids: Collection[str]) -> list[str]:
    """Return those of *ids* that no check has, sorted."""
    return sorted(set(ids) - IDS)
