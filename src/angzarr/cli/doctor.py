"""angzarr doctor: checks a running set-up, of any Celery app, for what loses messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final

import click
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from angzarr.cli.application import load_celery
from angzarr.cli.terminal import YES, Seconds, console, print_json, safe
from angzarr.doctor.finding import Check, Finding, Fix, Severity
from angzarr.doctor.report import CHECKS, IDS, DoctorReport, as_json, misspelt
from angzarr.errors import AngzarrError, ConfigurationError
from angzarr.runtime.text import printable

_NEVER: Final = "never"
_FORMS: Final = ("text", "json")


def _known(_ctx: click.Context, _option: click.Parameter, ids: tuple[str, ...]) -> Sequence[str]:
    if wrong := misspelt(ids):
        msg = f"there is no check {wrong[0]!r}; `angzarr doctor --list` names all {len(IDS)}"
        raise click.BadParameter(msg)
    return ids


def _failing(_ctx: click.Context, _option: click.Parameter, said: str) -> Severity | None:
    return None if said == _NEVER else Severity(said)


def _address(_ctx: click.Context, _option: click.Parameter, said: str | None) -> str | None:
    if said:
        from angzarr.adapters.rabbitmq.doctor import Management

        try:
            Management(said, "/", timeout=1)
        except ConfigurationError as error:
            raise click.BadParameter(str(error)) from error
    return said or None


@click.command()
@click.option(
    "--fail-on",
    type=click.Choice([*(one.value for one in Severity), _NEVER]),
    default=Severity.ERROR.value,
    show_default=True,
    callback=_failing,
    help="Exit code 1 from this severity on.",
)
@click.option("--format", "form", type=click.Choice(_FORMS), default="text", show_default=True)
@click.option("--only", multiple=True, metavar="ID", callback=_known, help="This check; again.")
@click.option("--skip", multiple=True, metavar="ID", callback=_known, help="Not this check; again.")
@click.option("--fix", is_flag=True, help="Offer to make the changes that can lose nothing.")
@YES
@click.option("--list", "listing", is_flag=True, help="Print all checks; no app is needed.")
@click.option("--grace", type=Seconds(), help="terminationGracePeriodSeconds of the workers.")
@click.option("--longest-delay", type=Seconds(), help="The longest countdown or eta, e.g. 2h.")
@click.option(
    "--management",
    envvar="RABBITMQ_MANAGEMENT_URL",
    metavar="URL",
    callback=_address,
    help="RabbitMQ's, http://user:password@host:15672; guessed for a broker without TLS.",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default="4s",
    show_default=True,
    help="How long one server may take to answer.",
)
@click.pass_obj
def doctor(app_name: str | None, /, *, listing: bool, form: str, **said: Any) -> None:
    """Check a set-up for what loses messages: settings, brokers, stores, databases, letters.

    The app may be an Angzarr or any Celery app. Nothing is changed without --fix.
    Exit code 0: nothing is as bad as --fail-on; 1: something is; 2: wrong usage.
    """
    if listing:
        _print_checks(form)
        return
    if said["yes"] and not said["fix"]:
        msg = "--yes answers for --fix, which was not given"
        raise click.UsageError(msg)
    _examine(app_name, form, **said)


def _examine(  # the options by their names
    app_name: str | None,
    form: str,
    *,
    fail_on: Severity | None,
    only: Sequence[str],
    skip: Sequence[str],
    fix: bool,
    yes: bool,
    **known: Any,
) -> None:
    from angzarr.doctor_probes import DoctorTarget
    from angzarr.doctor_probes.run import examine

    target = DoctorTarget(app=load_celery(app_name), **known)
    report = examine(target, only=only, skip=skip)
    fixed = _apply_fixes(target, report, yes=yes) if fix else []
    if any(one["done"] for one in fixed):
        report = examine(target, only=only, skip=skip)
    _print(report, form, fail_on, fixed)
    if report.fails(fail_on):
        sys.exit(1)


@contextmanager
def _recorded(app: Any, what: str) -> Iterator[Callable[[], None]]:
    """Say in the facts that *what* is fixed, and then that it was; a plain Celery app has none."""
    from angzarr.facts.act import ActKind
    from angzarr.wiring.analysis_worker import person

    if not hasattr(app, "ops"):
        yield lambda: None
        return
    with app.ops.acts.recording(ActKind.SETUP_FIXED, what, by=person()) as act:
        yield lambda: act.done({"fixed": [what]})


def _apply_fixes(target: Any, report: DoctorReport, *, yes: bool) -> list[dict[str, Any]]:
    """Make the fixes that a person, or --yes, agrees to; report each on stderr."""
    fixes = {(one.kind, one.at, one.arguments): one for one in map(_fix_of, report.findings) if one}
    if not fixes:
        click.echo("--fix can fix none of the findings", err=True)
    return [_make(target, one, yes=yes) for one in fixes.values()]


def _fix_of(finding: Finding) -> Fix | None:
    return finding.fix


def _make(target: Any, fix: Fix, *, yes: bool) -> dict[str, Any]:
    from angzarr.doctor_probes.run import apply_fix

    what = printable(fix.what)
    if not yes and not _agrees(what):
        return {"what": fix.what, "done": False, "left": "not wanted"}
    try:
        with _recorded(target.app, fix.what) as done:
            left = apply_fix(target, fix)
            done()
    except Exception as error:  # noqa: BLE001 - whatever a server's client raises, the others go on
        why = str(error) if isinstance(error, AngzarrError) else type(error).__name__
        click.echo(f"not done: {what}: {printable(why)}", err=True)
        return {"what": fix.what, "done": False, "left": why}
    click.echo(f"done: {what}{f'; {printable(left)}' if left else ''}", err=True)
    return {"what": fix.what, "done": True, "left": left}


def _agrees(what: str) -> bool:
    """Ask for confirmation; without a terminal the answer is no."""
    try:
        return click.confirm(f"{what}?", default=False, err=True)
    except click.Abort:
        click.echo("no answer: nothing is changed (--yes does not ask)", err=True)
        return False


def _print(
    report: DoctorReport, form: str, fail_on: Severity | None, fixed: Sequence[dict[str, Any]]
) -> None:
    if form == "json":
        print_json(as_json(report, fail_on, fixed))
        return
    from angzarr.cli.doctor import print_report

    print_report(report)


def _print_checks(form: str) -> None:
    if form == "json":
        print_json(
            [
                {
                    "id": one.id,
                    "severity": one.severity.value,
                    "area": one.area.value,
                    "looks_at": one.looks_at,
                    "why": one.why,
                    "fixable": one.fixable,
                }
                for one in CHECKS
            ]
        )
        return
    from angzarr.cli.doctor import print_checks

    print_checks(CHECKS)


_COLOURS: Final = {
    Severity.CRITICAL: "bold red",
    Severity.ERROR: "red",
    Severity.WARNING: "yellow",
    Severity.INFO: "dim",
}


def print_report(report: DoctorReport) -> None:
    """Print the findings, and in one line how many there are."""
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
