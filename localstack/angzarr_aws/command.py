"""The command: python localstack/angzarr_aws, on LocalStack and on AWS."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from angzarr_aws.calls import Dry, Live
from angzarr_aws.creating import Creating
from angzarr_aws.description import Description, Mistake, checked, read
from angzarr_aws.policies import of_roles

DEFAULT = Path(__file__).resolve().parents[1] / "angzarr.json"
#: What there is besides 0: a mistake, and something that is there and otherwise.
MISTAKE, DIFFERS = 1, 3
#: LocalStack's, and that of a dry run, which cannot know yours.
ACCOUNT = "000000000000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given)
    except Mistake as error:
        _err(str(error))
        return MISTAKE


def _run(given: argparse.Namespace) -> int:
    wanted = _description(given)
    region = _region(given)
    if given.policies:
        if given.account == ACCOUNT and not given.endpoint_url:
            raise Mistake("--policies name your account: say --account, twelve digits")
        _out(json.dumps(of_roles(wanted, region, given.account), indent=2))
        return 0
    call = (
        Dry(_out, region, given.account)
        if given.dry_run
        else Live(_out, region, given.endpoint_url, given.profile)
    )
    creating = Creating(call, wanted, region, _err)
    creating.run()
    return DIFFERS if creating.differences else 0


def _description(given: argparse.Namespace) -> Description:
    wanted = read(Path(given.description))
    if named := os.environ.get("ANGZARR_DOMAINS"):
        domains = tuple(filter(None, map(str.strip, named.split(","))))
        checked({"domains": [*domains]})
        wanted = replace(wanted, domains=domains)
    return wanted


def _region(given: argparse.Namespace) -> str:
    region = given.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region and not given.endpoint_url:
        raise Mistake("no AWS region is known: say --region, or set AWS_DEFAULT_REGION")
    return str(region or "us-east-1")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="angzarr_aws",
        description="Make the queues, topics, subscriptions and the bucket that angzarr needs."
        " What exists is left as it is; where it is otherwise, that is told, with exit code 3.",
    )
    add = parser.add_argument
    add("description", nargs="?", default=str(DEFAULT), help="what is wanted, as JSON")
    add("--endpoint-url", help="of LocalStack, e.g. http://localhost:4566; else it is AWS")
    add("--region", help="else AWS_REGION or AWS_DEFAULT_REGION")
    add("--profile", help="of ~/.aws/config")
    add("--account", default=ACCOUNT, help="your account's number, for --dry-run and --policies")
    add("--dry-run", action="store_true", help="print every call, make none; no credentials needed")
    add("--policies", action="store_true", help="print the IAM policies of the roles; make nothing")
    return parser


def _out(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _err(line: str) -> None:
    sys.stderr.write(f"{line}\n")
