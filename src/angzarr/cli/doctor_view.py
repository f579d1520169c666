"""The doctor's findings for people: by severity, the worst first."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from angzarr.cli.dlq.entry_view import console, safe
from angzarr.doctor.finding import Check, Finding, Severity
from angzarr.doctor.report import Report

_COLOURS: Final = {
    Severity.CRITICAL: "bold red",
    Severity.ERROR: "red",
    Severity.WARNING: "yellow",
    Severity.INFO: "dim",
}


def print_report(report: Report) -> None:
    """Print what was found, and in one line how much."""
    out = console()
    for severity, those in groupby(report.findings, key=lambda one: one.severity):
        for finding in those:
            out.print(_title(severity, finding))
            out.print(Padding(_told(finding), (0, 0, 1, 2), expand=False))
    counts = ", ".join(f"{number} {name}" for name, number in report.counts().items() if number)
    looked = ", ".join(report.servers) or "no server"
    out.print(safe(f"{report.app}: {counts or 'nothing found'} ({report.seconds:.1f} s)"))
    out.print(safe(f"looked at: {looked}", "dim"))


def print_checks(checks: Iterable[Check]) -> None:
    """Print every check there is."""
    table = Table("id", "severity", "area", "looks at", "--fix")
    for one in checks:
        table.add_row(
            safe(one.id),
            safe(one.severity, _COLOURS[one.severity]),
            safe(one.area),
            safe(one.looks_at),
            "yes" if one.fixable else "",
        )
    console().print(table)


def _title(severity: Severity, finding: Finding) -> Text:
    known = severity.value.upper() if finding.known else "UNKNOWN"
    return Text.assemble(
        (known, _COLOURS[severity]), " ", (finding.check.id, "bold"), " ", safe(finding.at)
    )


def _told(finding: Finding) -> Table:
    rows = Table.grid(padding=(0, 1))
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row(safe("seen", "dim"), safe(finding.seen))
    rows.add_row(safe("why", "dim"), safe(finding.check.why))
    change = safe(finding.change)
    if finding.fix is not None:
        change.append(" [--fix does it]", style="green")
    rows.add_row(safe("change" if finding.known else "by hand", "dim"), change)
    return rows
