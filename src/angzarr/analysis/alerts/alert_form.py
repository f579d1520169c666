"""How urgent an alert is, and in which form a receiver wants it: what the settings say of alerts.

Every process reads settings, so this imports nothing else of the analysis.
"""

from __future__ import annotations

from enum import StrEnum


class AlertSeverity(StrEnum):
    """How urgent an alert is; also the level of its log line."""

    WARNING = "warning"
    ERROR = "error"


class BodyFormat(StrEnum):
    """What a receiver of webhooks understands."""

    GENERIC = "generic"
    SLACK = "slack"
