"""angzarr policy: which backoff policies there are, which one a failure gets, and why (spec D3)."""

from __future__ import annotations

import importlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from angzarr.cli.application import load_application
from angzarr.cli.policy import view as policy_view
from angzarr.cli.policy.view import Explanation
from angzarr.cli.terminal import JSON, console, print_json
from angzarr.delivery.handlers import Handler
from angzarr.events.event import Priority
from angzarr.resilience.policy_rules import PolicyCase, explain
from angzarr.resilience.retry_after import LONGEST
from angzarr.resilience.taxonomy import Category, Classification, Verdict, classify, verdict_for
from angzarr.wiring.operations import Operations

_UNITS: Final = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
_PRIORITIES: Final = [one.value for one in Priority]
_CATEGORIES: Final = [one.value for one in Category]


class _Span(click.ParamType[timedelta]):
    """Seconds, or a number with a unit: 500ms, 30s, 5m, 2h, 1d."""

    name = "span"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """The span."""
        found = _SPAN.fullmatch(str(value).strip())
        try:
            return timedelta(seconds=float(found[1]) * _UNITS[found[2]])  # type: ignore[index]
        except (TypeError, OverflowError):
            self.fail(f"{value!r} is not a span: write 30, 500ms, 30s, 5m, 2h or 1d", param, ctx)


@click.group()
def policy() -> None:
    """Backoff policies: see them, and why a failure gets which."""


@policy.command("list")
@JSON
@click.pass_obj
def list_(app_name: str | None, *, as_json: bool) -> None:
    """List every policy, and the rules in the order in which they are tried."""
    rules = load_application(app_name).context.policy_rules
    policies = sorted(rules.policies.values(), key=lambda one: one.name)
    if as_json:
        told = [policy_view.rule_json(rule) for rule in rules.ranked()]
        print_json({"policies": list(map(policy_view.policy_json, policies)), "rules": told})
    else:
        console().print(policy_view.policies_table(policies))
        console().print(policy_view.rules_table(rules.ranked()))


@policy.command("explain")
@click.option("--handler", metavar="NAME", help="The handler's task name.")
@click.option("--event-type", metavar="TYPE", help="Default: the handler's.")
@click.option("--operation", metavar="NAME", help="Default: the handler's.")
@click.option("--domain", metavar="NAME", help="Default: the handler's.")
@click.option("--tenant", metavar="ID")
@click.option("--priority", type=click.Choice(_PRIORITIES), default=Priority.DEFAULT.value)
@click.option("--category", type=click.Choice(_CATEGORIES), help="What kind of error it is.")
@click.option("--error", metavar="CLASS", help="Instead: its class, like httpx.ConnectTimeout.")
@click.option("--time-left", type=_Span(), help="Until the message expires, like 30s.")
@click.option("--retry-after", type=_Span(), help="What the other side asks for, like 30s.")
@JSON
@click.pass_obj
def explain_(app_name: str | None, /, *, as_json: bool, **asked: Any) -> None:
    """Tell which policy a failure would get and why, and draw its schedule."""
    ops = load_application(app_name)
    found = _explanation(ops, **asked)
    if as_json:
        print_json(policy_view.explanation_json(found))
    else:
        policy_view.print_explanation(found)


def _explanation(
    ops: Operations,
    *,
    handler: str | None,
    event_type: str | None,
    operation: str | None,
    category: str | None,
    error: str | None,
    domain: str | None,
    tenant: str | None,
    priority: str,
    time_left: timedelta | None,
    retry_after: timedelta | None,
) -> Explanation:
    known = ops.find_handler(handler) if handler else None
    if handler and known is None:
        click.echo(f"{handler} is not registered here: its own policy is not known", err=True)
    sample = None if error is None else _sample(error)
    event_type = event_type or _type_of(handler, known)
    seen = _seen(ops, known, category, sample, event_type)
    case = PolicyCase(
        handler=handler or "",
        operation=operation or (known.operation if known else None),
        event_type=event_type,
        tenant=tenant,
        category=seen.category if seen else None,
        domain=domain or (known.domain if known else None),
        priority=priority,
        time_left=time_left,
    )
    rules = ops.context.policy_rules.of(
        case.handler,
        operation=case.operation,
        own=known.policy if known else None,
        by_type=known.policies if known else {},
    )
    tried = explain(rules, case)
    policy = next(one.rule for one in tried if one.missed is None).policy
    named = policy.names(sample)
    least = retry_after or (seen.retry_after if seen else None)
    return Explanation(
        case=case,
        tried=tried,
        least=least and min(least, LONGEST),
        seen=seen,
        error=sample,
        verdict=None if seen is None else _verdict(ops, known, seen, case.event_type, named),
    )


def _type_of(name: str | None, handler: Handler | None) -> str:
    """The type of event that a handler takes; empty: it takes several, or none is named."""
    if handler is not None and handler.order is not None:
        return handler.event_type or ""
    return (handler.event_type if handler else None) or name or ""


def _verdict(
    ops: Operations,
    handler: Handler | None,
    seen: Classification,
    event_type: str,
    named: bool,  # noqa: FBT001 - as `verdict_for` calls it
) -> Verdict:
    return verdict_for(
        seen.category,
        (*ops.context.verdicts, *(handler.verdicts if handler else ())),
        event_type=event_type,
        idempotent=handler is None or handler.idempotent,
        named=named,
    )


def _seen(
    ops: Operations,
    handler: Handler | None,
    category: str | None,
    sample: BaseException | None,
    event_type: str,
) -> Classification | None:
    if category is not None and sample is not None:
        msg = "say either --category or --error: an error has one category"
        raise click.UsageError(msg)
    if category is not None:
        return Classification(category=Category(category), reason="--category")
    if sample is None:
        return None
    return classify(
        sample,
        handler.rules if handler else (),
        ops.context.rules,
        now=datetime.now(UTC),
        handler=handler.name if handler else "",
        event_type=event_type,
    )


def _sample(path: str) -> BaseException:
    """An error of the class that *path* names, which says nothing but its class."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module or "builtins"), name)
        if issubclass(found, BaseException):
            return found.__new__(found)  # type: ignore[no-any-return]
    except (ImportError, AttributeError, TypeError, ValueError):
        pass
    msg = f"--error {path}: there is no exception class of this name here, like httpx.ReadTimeout"
    raise click.UsageError(msg)
