"""No decoder makes a verdict on the message of what its machine lacks: it raises that as it is.

A new decoder that answers errors with a verdict belongs into the table.
"""

from __future__ import annotations

import errno
import struct
from types import SimpleNamespace

import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from tests.contracts.ledger import letter_of
from tests.unit.dead_letters.test_protection import CIPHER, protection, secret_letter

from angzarr.adapters.jose import jwe as jose
from angzarr.adapters.kafka import letter_consumer
from angzarr.adapters.rabbitmq import py_amqp as frames
from angzarr.adapters.redis import damaged
from angzarr.adapters.sql.ledger import tables as ledger_rows
from angzarr.adapters.sqs.transport import SqsChannel
from angzarr.analysis.replay import job_runner
from angzarr.analysis.replay import job_view as edit_review
from angzarr.dead_letters import codec
from angzarr.dead_letters import foreign_replay as foreign_pages
from angzarr.dead_letters import protection as sealing
from angzarr.dead_letters.record import ForeignRecord, wrapped
from angzarr.errors import DecodeError
from angzarr.runtime.failures import is_machine_fault

FAULTS = [
    MemoryError(),
    OSError(errno.EMFILE, "Too many open files"),
    ProtobufDecodeError("Error parsing message with type 'a.B': Arena alloc failed"),
]


def sealed():
    return protection()(secret_letter())


def wrapped_as_letters_are(fault):
    outer = DecodeError("its edit cannot be read")
    outer.__cause__ = fault
    return outer


def open_sealed_message(patch, fail):
    letter = sealed()
    patch.setattr(sealing, "read_message", fail)
    sealing.opened(letter, CIPHER)


def decrypt(patch, fail):
    letter = sealed()

    def wrap(*_given):
        try:
            fail()
        except Exception as error:
            raise ValueError("it cannot be decrypted") from error

    patch.setattr(jose, "_opened_by", wrap)
    CIPHER.open(letter.message.body, letter.id)


def read_pages_of_others(patch, fail):
    patch.setattr(foreign_pages, "_from_binary", fail)
    foreign_pages.read_book(b"\x0a")


def read_a_letter(patch, fail):
    patch.setattr(codec, "_read_json", fail)
    codec.decode(b"{}")


def read_an_envelope_on_redis(_patch, fail):
    damaged.read(b'{"__type__": 1}', fail)


def read_an_envelope_on_sqs(patch, fail):
    channel = SqsChannel.__new__(SqsChannel)
    patch.setattr(SqsChannel, "_prepare_json_payload", fail)
    channel._message_to_python({"Body": "{}", "ReceiptHandle": "r"}, "q", "http://q")


def read_properties_on_rabbitmq(patch, fail):
    patch.setattr(frames, "decode_properties_basic", fail)
    on_frame = frames.frame_handler(SimpleNamespace(bytes_recv=0), lambda *_: None)
    on_frame((1, 1, struct.pack(">HH", 60, 60)))
    on_frame((2, 1, b"\xff" * 40))


def read_a_table_on_rabbitmq(patch, fail):
    patch.setattr(frames, "loads", fail)
    table = struct.pack(">I", 2) + b"\x01a"
    frames.readable(struct.pack(">HHQH", 60, 0, 0, 0x2000) + table)


def read_the_edit_of_a_job(_patch, fail):
    runner = object.__new__(job_runner.JobRunner)
    runner.work = SimpleNamespace(job_edit=fail)
    runner._order(SimpleNamespace(edit="e", id="1"), letter_of())


def look_at_the_edit_of_a_job(_patch, fail):
    edit_review._edit_of(SimpleNamespace(job_edit=fail), SimpleNamespace(id="1"))


def read_a_filed_letter(patch, fail):
    patch.setattr(ledger_rows, "decode", lambda *_: codec.decode(b"{}"))
    patch.setattr(codec, "_read_json", fail)
    ledger_rows.failure_from(SimpleNamespace(body=b"{}", content_type="", problem=None))


DECODERS = [
    open_sealed_message, decrypt, read_pages_of_others, read_a_letter, read_an_envelope_on_redis,
    read_an_envelope_on_sqs, read_properties_on_rabbitmq, read_a_table_on_rabbitmq,
    read_the_edit_of_a_job, look_at_the_edit_of_a_job, read_a_filed_letter,
]  # fmt: skip


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("wrap", [lambda one: one, wrapped_as_letters_are], ids=["bare", "wrapped"])
def test_what_the_machine_lacks_is_raised_and_is_no_verdict(monkeypatch, decode, fault, wrap):
    def fail(*_given, **_options):
        raise wrap(fault)

    with pytest.raises(Exception) as raised:
        decode(monkeypatch, fail)
    assert is_machine_fault(raised.value)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: type(one).__name__)
def test_a_record_on_kafka_that_there_is_no_memory_for_is_read_again(monkeypatch, fault):
    def fail(*_given, **_options):
        raise fault

    monkeypatch.setattr(letter_consumer, "read_receipt", fail)
    consumer = letter_consumer.LetterConsumer.__new__(letter_consumer.LetterConsumer)
    consumer._progress, consumer._domains = {}, {"t": "order"}
    said = {"topic": "t", "partition": 0, "offset": 0, "key": None, "timestamp": (0, 0)}
    headers = [(letter_consumer.CONTENT_TYPE, b"application/json")]
    said |= {"value": b"{}", "headers": headers}
    message = SimpleNamespace(**{name: lambda value=value: value for name, value in said.items()})
    receipt = consumer._receipt(consumer._placed(message))
    assert (receipt.to_read_again, receipt.raw) == (True, b"{}")
    assert receipt.content_type == "application/json"


def test_a_record_that_there_is_no_memory_to_unwrap_is_read_again_and_whole(monkeypatch):
    record = ForeignRecord(broker="kafka", place={"topic": "t"}, is_unique=True)
    raw = wrapped(b"its own bytes", "text/plain", record)
    unwrapped, kind = codec.unwrapped, codec.RECORD_CONTENT_TYPE

    def fail(_raw):
        raise MemoryError

    monkeypatch.setattr(codec, "unwrapped", fail)
    first = codec.read_receipt("order", raw, kind, "handle")
    assert (first.to_read_again, first.raw, first.content_type) == (True, raw, kind)
    monkeypatch.setattr(codec, "unwrapped", unwrapped)
    again = codec.read_receipt("order", first.raw, first.content_type, "handle")
    assert (again.raw, again.content_type, again.record) == (b"its own bytes", "text/plain", record)
