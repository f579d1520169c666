from __future__ import annotations

import json
from pathlib import Path

import pytest
from angzarr_aws import names
from angzarr_aws.description import RETENTION, Mistake, checked, read
from hypothesis import given
from hypothesis import strategies as st
from kombu.transport.SQS import Channel

from angzarr.adapters.sqs.queues import FIFO_SUFFIX
from angzarr.adapters.sqs.queues import RETENTION as OURS
from angzarr.dead_letters.names import MAX_NAME_LENGTH, queue_name
from angzarr.dead_letters.queue import NAME_PREFIX
from angzarr.errors import AngzarrError
from angzarr.events.event import check_domain
from angzarr.settings.dead_letters import DeadLetterSettings

FILE = Path(__file__).resolve().parents[3] / "localstack" / "angzarr.json"


@given(st.text(max_size=120) | st.from_regex(r"[a-z][a-z0-9.-]{0,90}", fullmatch=True))
def test_queues_of_letters_are_called_as_the_code_calls_them(domain):
    assert names.letters(domain) == queue_name(domain)
    assert names.letters(domain, fifo=True) == queue_name(domain, FIFO_SUFFIX)


@given(
    st.text(st.characters(codec="ascii"), min_size=1, max_size=60), st.sampled_from(["", "shop-"])
)
def test_task_queues_are_called_as_kombu_calls_them(queue, prefix):
    kombus = Channel.entity_name(None, prefix + queue)
    assert names.tasks(queue, prefix) == kombus


@given(st.text(max_size=70))
def test_domains_are_what_the_code_takes_for_domains(name):
    try:
        is_domain = check_domain(name) == name
    except AngzarrError:
        is_domain = False
    assert names.is_domain(name) == is_domain


def test_the_numbers_are_the_codes():
    assert (names.PREFIX, names.LONGEST, RETENTION) == (NAME_PREFIX, MAX_NAME_LENGTH, OURS)
    assert read(FILE).visibility == DeadLetterSettings().aws_visibility.total_seconds()


def test_a_redriven_fifo_queue_is_fifo():
    assert names.redriven("a.fifo") == "a-redriven.fifo"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "the description must be an object"),
        ({}, "domains must be a list"),
        ({"domains": []}, "domains must be a list"),
        ({"domains": ["Order"]}, "'Order' is no domain"),
        ({"domains": ["a.b", "a-b"]}, "'a-b' and 'a.b' would share the queue angzarr-dlq-a-b"),
        ({"domains": ["undelivered"]}, "what SNS could not deliver"),
        ({"domains": ["a"], "fifo": "yes"}, "fifo must be true or false"),
        ({"domains": ["a"], "queues": {}}, "the description knows no queues; it knows domains"),
        ({"domains": ["a"], "visibility": 0}, "visibility must be a whole number from 1 to 43200"),
        ({"domains": ["a"], "topics": True, "encryption": "alias/aws/sqs"}, "SNS may not use"),
        ({"domains": ["a"], "encryption": ""}, "encryption must be sse-sqs, none"),
        ({"domains": ["a"], "task_queues": []}, "task_queues must be an object"),
        ({"domains": ["a"], "task_queues": {"q": 1}}, "task_queues.q must be an object"),
        (
            {"domains": ["a"], "task_queues": {"q": {"max_receives": 1001}}},
            "task_queues.q.max_receives must be a whole number from 1 to 1000",
        ),
        ({"domains": ["a"], "bucket": {"name": "A_b"}}, "bucket.name: 'A_b' is none"),
        ({"domains": ["a"], "bucket": {}}, "bucket.name: '' is none"),
        ({"domains": ["a"], "bucket": {"name": "a-b", "prefix": 1}}, "bucket.prefix must be a"),
        ({"domains": ["a"], "task_queue_prefix": 5}, "task_queue_prefix must be a text"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_key(given, said):
    with pytest.raises(Mistake) as raised:
        checked(given)
    assert said in str(raised.value)


def test_a_file_that_is_none_is_named(tmp_path):
    file = tmp_path / "wanted.json"
    with pytest.raises(Mistake, match="cannot be read"):
        read(file)
    file.write_text("{")
    with pytest.raises(Mistake, match=r"wanted\.json is no JSON"):
        read(file)
    file.write_text(json.dumps({"domains": [1]}))
    with pytest.raises(Mistake, match=r"wanted\.json: 1 is no domain"):
        read(file)
