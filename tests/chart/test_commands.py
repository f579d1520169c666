"""What containers run are commands that there are: each is read by its own parser."""

from __future__ import annotations

import re

import click
import pytest

from chart.rendering import (
    CHART,
    CHECKOUT,
    SETS,
    changed,
    containers,
    pool,
    render,
    rendered,
    values_of,
)


def read(command: click.Command, arguments: list[str], parent: click.Context | None = None) -> None:
    """Parse *arguments* as click would, down to the last command, and run nothing."""
    with click.Context(
        command, info_name=command.name, parent=parent, **command.context_settings
    ) as ctx:
        command.parse_args(ctx, list(arguments))
        if not isinstance(command, click.Group):
            return
        rest = [*ctx._protected_args, *ctx.args]
        name, found, rest = command.resolve_command(ctx, rest)
        assert found is not None, name
        read(found, rest, ctx)


def commands(name: str) -> list[list[str]]:
    found = [one["args"] for _, pod in rendered(name).pod_templates() for one in containers(pod)]
    return sorted({tuple(one): list(one) for one in found}.values())


@pytest.mark.parametrize("name", SETS)
def test_every_container_runs_a_command_that_exists(name, monkeypatch):
    from celery.bin import celery as celery_door

    from angzarr.cli.main import main
    from angzarr.cli.worker import worker

    seen = set()
    for program, *arguments in commands(name):
        assert all(isinstance(one, str) for one in arguments)
        option, app, *rest = arguments
        assert (option, app) in {("-A", "orders"), ("-A", "shop.app:app")}
        if program == "celery":
            _read_celery(celery_door.celery.commands[rest[0]], rest[1:])
        else:
            assert program == "angzarr"
            read(main, arguments)
        if (program, rest[0]) == ("angzarr", "worker"):
            others = worker.make_context("worker", rest[1:]).params["others"]
            _read_celery(celery_door.celery.commands["worker"], [*others])
        seen.add(rest[0])
    assert "worker" in seen


def _read_celery(command: click.Command, arguments: list[str]) -> None:
    """Parse without the app, which Celery's own context would import."""
    from celery import Celery
    from celery.bin.base import CLIContext

    context = click.Context(command, info_name=command.name)
    context.obj = CLIContext(app=Celery("x", set_as_current=False), no_color=True, workdir=None)
    with context:
        command.parse_args(context, list(arguments))
        assert context.args == []


def test_a_command_that_does_not_exist_is_found():
    from angzarr.cli.main import main

    with pytest.raises(click.UsageError):
        read(main, ["-A", "x", "dlq", "analyse"])
    with pytest.raises(click.UsageError):
        read(main, ["-A", "x", "dashboard", "serve", "--hosts", "x"])


def test_an_option_that_celery_does_not_know_is_found():
    from celery.bin import celery as celery_door

    with pytest.raises(click.UsageError):
        _read_celery(celery_door.celery.commands["worker"], ["--prefetch", "1"])


def worker_args(name: str, pool: str) -> list[str]:
    found = rendered(name).one("Deployment", f"worker-{pool}")
    args: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


@pytest.mark.parametrize(
    ("says", "runs"),
    [
        ({}, ["angzarr", "--processes", "4"]),
        ({"concurrency": 2}, ["angzarr", "--processes", "2"]),
        ({"processes": 3, "threads": 8}, ["angzarr", "--processes", "3", "--threads", "8"]),
        ({"processes": 1, "coroutines": 9}, ["angzarr", "--processes", "1", "--coroutines", "9"]),
        (
            {"autoscale": {"least": 1, "most": 5}, "threads": 2},
            ["angzarr", "--autoscale", "1,5", "--threads", "2"],
        ),
        ({"pool": "threads"}, ["angzarr", "--processes", "1", "--threads", "4"]),
        (
            {"pool": "threads", "processes": 2, "concurrency": 8},
            ["angzarr", "--processes", "2", "--threads", "8"],
        ),
        ({"pool": "solo"}, ["angzarr", "--processes", "1"]),
        (
            {"pool": "gevent", "concurrency": 99},
            ["celery", "--pool", "gevent", "--concurrency", "99"],
        ),
        ({"pool": "prefork"}, ["celery", "--pool", "prefork", "--concurrency", "4"]),
    ],
)  # fmt: skip
def test_a_pod_has_the_processes_and_threads_that_its_pool_says(says, runs):
    chart = render(changed(values_of("minimal"), pools=pool(**says)))
    (worker,) = chart.one("Deployment", "worker-default")["spec"]["template"]["spec"]["containers"]
    program, app, name, work, log, level, *rest = worker["args"]
    assert (app, name, work, log, level) == ("-A", "orders", "worker", "--loglevel", "INFO")
    assert [program, *rest] == [*runs, "--queues", "celery", "--prefetch-multiplier", "1"]


def test_a_pools_values_are_its_workers_options():
    assert worker_args("many-pools", "pool-0") == [
        "celery", "-A", "shop.app:app", "worker", "--loglevel", "WARNING", "--pool", "prefork",
        "--concurrency", "4", "--queues", "q0a,q0b", "--prefetch-multiplier", "1",
        "--max-tasks-per-child", "1000000",
    ]  # fmt: skip


def test_the_test_of_a_release_asks_the_doctor_and_the_fleet():
    pod = rendered("minimal").one("Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert [one["args"][3:] for one in containers(pod)] == [
        ["doctor", "--fail-on", "error"],
        ["fleet", "list"],
    ]


def told() -> set[str]:
    """Return every command of ours that pages and alerts tell people to give."""
    pages = [
        CHECKOUT / "docs" / "runbooks" / "alerts.md",
        CHECKOUT / "docs" / "how-to" / "deploy-with-helm.md",
        CHART / "templates" / "NOTES.txt",
        CHART / "files" / "alerts.yaml",
    ]
    found = re.findall(r"\bangzarr ((?:[a-z-]+ ?)+)", "\n".join(one.read_text() for one in pages))
    return {one.strip() for one in found}


def test_every_command_that_people_are_told_to_give_exists():
    from angzarr.cli.main import _COMMANDS, main

    said = {one for one in told() if one.split()[0] in _COMMANDS}
    assert len(said) > 10
    for line in said:
        command: click.Command = main
        for word in line.split():
            if not isinstance(command, click.Group):
                break
            found = command.get_command(click.Context(command), word)
            assert found is not None, line
            command = found
