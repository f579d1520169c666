"""Shell completion: scripts for shells, ids from the ledger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, ZshComplete
from tests.unit.cli.ledger_app import held

from angzarr.cli.main import main


def complete(*words, typed=""):
    return [
        item.value
        for item in BashComplete(main, {}, "angzarr", "_ANGZARR_COMPLETE").get_completions(
            list(words), typed
        )
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_each_shell_gets_its_script(works, shell):
    assert f"_ANGZARR_COMPLETE={shell}_complete" in works("completion", shell)


def test_the_script_for_bash_is_valid_and_offers_commands():
    angzarr = Path(sys.executable).parent / "angzarr"
    script = subprocess.run(
        [angzarr, "completion", "bash"], check=True, capture_output=True, text=True
    ).stdout
    subprocess.run(["bash", "-n"], input=script, check=True, text=True)
    assert "_ANGZARR_COMPLETE=bash_complete" in script


def test_an_unknown_shell_is_refused_with_what_there_is(run, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "bash, zsh, fish" in run("completion").output


def test_commands_and_values_of_options_are_completed(app):
    assert "skip" in complete("dlq", typed="sk")
    assert complete("dlq", "list", "--status", typed="hel") == ["held"]


def test_ids_of_entries_are_completed_from_the_ledger(app, ledger):
    entry = held(ledger)
    held(ledger, "e2")
    found = complete("-A", "shop_for_test", "dlq", "show", typed=entry.id[:6])
    assert found == [entry.id[:12]]


def test_a_hostile_name_adds_no_line_to_what_the_shell_reads(app, ledger):
    held(ledger, handler="x\nplain\n$(touch /tmp/pwn)\n_")
    root = ZshComplete(main, {}, "angzarr", "_ANGZARR_COMPLETE")
    found = root.get_completions(["-A", "shop_for_test", "dlq", "show"], "")
    assert found
    assert all(root.format_completion(one).count("\n") == 2 for one in found)


def test_a_ledger_that_cannot_be_asked_offers_nothing_and_says_nothing(capsys):
    assert complete("-A", "no_such_module", "dlq", "show", typed="abc") == []
    assert capsys.readouterr() == ("", "")
