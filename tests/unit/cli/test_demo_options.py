"""Options of `angzarr demo --example` that cannot work are told in a sentence, before anything."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from angzarr.cli.main import main

REDIS = ("--broker", "redis://:s3cret@127.0.0.1:1/0")


def said(*options):
    done = CliRunner().invoke(main, ["demo", *options])
    assert done.exit_code != 0
    return done.output.strip().splitlines()[-1]


def test_a_bad_name_is_told_with_the_examples_there_are():
    refused = "Error: there is no example 'whist': use billing, orders, poker"
    assert said("--example", "whist") == refused


@pytest.mark.parametrize("books", [(), ("--books", "sqlite:///b.db"), ("--books", "memory://")])
def test_workers_on_a_real_broker_want_books_that_they_share(books):
    sentence = said("--example", "poker", *REDIS, *books)
    assert "say --books postgresql+psycopg://" in sentence
    assert "s3cret" not in sentence


@pytest.mark.parametrize("option", [("--kill",), ("--books", "sqlite:///b.db")])
def test_what_is_for_an_example_is_refused_without_one(option):
    assert said(*option) == "Error: --books and --kill are for an --example"


def test_the_demos_own_process_is_not_killed():
    assert "--kill needs a worker process" in said("--example", "poker", "--kill")


def test_an_example_takes_no_events_of_a_file(tmp_path):
    file = tmp_path / "events.jsonl"
    file.touch()
    sentence = said("--example", "orders", "--events", str(file))
    assert sentence.startswith("Error: --events and --example exclude each other")
