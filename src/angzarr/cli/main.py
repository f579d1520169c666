"""The `angzarr` command. Commands are imported when they are called, so that --help is quick."""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any, Final

import click

from angzarr._version import __version__
from angzarr.errors import AngzarrError
from angzarr.facts.act import ActOrigin, acting_from
from angzarr.runtime.text import printable

#: Command → where it is defined.
_COMMANDS: Final = {
    "books": "angzarr.cli.database:books",
    "breaker": "angzarr.cli.breaker:breaker",
    "completion": "angzarr.cli.application:completion",
    "cost": "angzarr.cli.cost:cost",
    "config": "angzarr.cli.configuration:config",
    "dashboard": "angzarr.cli.dashboard:dashboard",
    "database": "angzarr.cli.database:database",
    "demo": "angzarr.demo.command:demo",
    "dlq": "angzarr.cli.dlq.main:dlq",
    "doctor": "angzarr.cli.doctor:doctor",
    "fact": "angzarr.cli.fact.main:fact",
    "fleet": "angzarr.cli.fleet:fleet",
    "flow": "angzarr.cli.flow:flow",
    "health": "angzarr.cli.health:health",
    "ledger": "angzarr.cli.ledger:ledger",
    "payload": "angzarr.cli.payload:payload",
    "policy": "angzarr.cli.policy.main:policy",
    "projection": "angzarr.cli.projection.main:projection",
    "saga": "angzarr.cli.saga:saga",
    "worker": "angzarr.cli.worker:worker",
}


class Doors(click.Group):
    """Imports a command when it is needed and shows our own errors as one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The command, imported now."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with acting_from(ActOrigin.CLI):
                return super().invoke(ctx)
        except AngzarrError as error:
            raise click.ClickException(_shown(error)) from error
        except click.ClickException as error:  # may repeat what stands in a letter
            error.message = _shown(error.message)  # type: ignore[misc]  # each kind tells its own
            raise


def _spell_out_what_no_terminal_writes() -> None:
    """Let a terminal that is not of UTF-8 show a character that it lacks as its number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _shown(said: object) -> str:
    return printable(said, keep="\n\t")


@click.group(cls=Doors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="angzarr")
@click.option(
    "-A",
    "--app",
    "app_name",
    envvar="ANGZARR_APP",
    metavar="APP",
    help="The Angzarr app, named as for celery -A: module, module:attribute, package.",
)
@click.pass_context
def main(ctx: click.Context, app_name: str | None) -> None:
    """Celery workers that lose nothing."""
    _spell_out_what_no_terminal_writes()
    ctx.obj = app_name
