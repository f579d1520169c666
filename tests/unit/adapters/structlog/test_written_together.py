"""Several records in few writes: the same text as that of as many single ones."""

from __future__ import annotations

import io
import logging
import select
from logging.handlers import WatchedFileHandler

import pytest

from angzarr.adapters.structlog.logs import formatter
from angzarr.adapters.structlog.written_together import handle_all, takes_json, write_json


class Stream(io.StringIO):
    """Keeps what each write was given."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return super().write(text)


class Full(Stream):
    """A disk that is full."""

    def write(self, text: str) -> int:
        raise OSError(28, "no space")


@pytest.fixture
def logger():
    logger = logging.getLogger("tests.lines")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers, logger.filters, logger.parent = [], [], logging.getLogger()


def records(*texts: object) -> list[logging.LogRecord]:
    return [logging.LogRecord("lines", logging.INFO, __file__, 1, text, (), None) for text in texts]


def handler_of(stream, kind=logging.StreamHandler):
    handler = kind(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    return handler


def test_lines_that_fit_are_one_write(logger):
    logger.handlers = [handler_of(Stream()), handler_of(Stream())]
    handle_all(logger, records("one", "two", "three"))
    for handler in logger.handlers:
        assert handler.stream.writes == ["INFO one\nINFO two\nINFO three\n"]


def test_no_write_is_larger_than_a_pipe_takes_as_a_whole(logger):
    logger.handlers = [handler_of(Stream())]
    lines = [str(n) * 300 for n in range(10)] * 5
    handle_all(logger, records(*lines))
    stream = logger.handlers[0].stream
    assert stream.getvalue() == "".join(f"INFO {line}\n" for line in lines)
    assert all(len(one) <= select.PIPE_BUF for one in stream.writes)
    assert 1 < len(stream.writes) < len(lines) / 5


def test_a_handler_gets_what_its_level_and_those_of_loggers_above_let_through(logger):
    above, deaf = logging.getLogger("tests.above"), handler_of(Stream())
    above.handlers, logger.parent, logger.propagate = [handler_of(Stream())], above, True
    above.propagate = False
    deaf.setLevel(logging.WARNING)
    logger.handlers = [deaf]
    handle_all(logger, records("one", "two"))
    assert deaf.stream.writes == []
    assert above.handlers[0].stream.writes == ["INFO one\nINFO two\n"]


class Counting(logging.StreamHandler):
    """A handler of a user's own."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream.write(f"<{record.getMessage()}>")


def test_a_handler_or_a_filter_of_ones_own_gets_each_record(logger):
    logger.handlers = [handler_of(Stream(), Counting), handler_of(Stream())]
    handle_all(logger, records("one", "two"))
    assert logger.handlers[0].stream.writes == ["<one>", "<two>"]
    logger.handlers = [handler_of(Stream())]
    logger.addFilter(lambda record: record.getMessage() != "two")
    handle_all(logger, records("one", "two"))
    assert logger.handlers[0].stream.getvalue() == "INFO one\n"


def test_each_line_that_a_stream_does_not_take_is_lost_by_itself(logger):
    logger.handlers, lost = [handler_of(Full()), handler_of(Stream())], []
    logger.handlers[0].handleError = lost.append
    both = records("one", "two")
    handle_all(logger, both)
    assert lost == both
    assert logger.handlers[1].stream.getvalue() == "INFO one\nINFO two\n"


class Unshown:
    def __str__(self) -> str:
        raise LookupError("a value's own code")


def test_a_line_that_cannot_be_made_keeps_no_other(logger):
    logger.handlers, lost = [handler_of(Stream())], []
    logger.handlers[0].handleError = lost.append
    given = records("one", Unshown(), "two")
    handle_all(logger, given)
    assert lost == [given[1]]
    assert logger.handlers[0].stream.getvalue() == "INFO one\nINFO two\n"


def test_a_file_that_was_moved_away_is_opened_anew(logger, tmp_path):
    file = tmp_path / "log"
    handler = WatchedFileHandler(file)
    logger.handlers = [handler]
    try:
        handle_all(logger, records("one", "two"))
        file.rename(tmp_path / "old")
        handle_all(logger, records("three", "four"))
    finally:
        handler.close()
    assert file.read_text() == "three\nfour\n"
    assert (tmp_path / "old").read_text() == "one\ntwo\n"


INFO = logging.INFO


def our_handler(stream, kind=logging.StreamHandler):
    handler = kind(stream)
    handler.setFormatter(formatter(json=True))
    return handler


def test_lines_of_json_are_written_together_by_level(logger):
    deaf = our_handler(Stream())
    deaf.setLevel(logging.WARNING)
    logger.handlers = [our_handler(Stream()), deaf]
    assert takes_json(logger)
    write_json(logger, [(INFO, "{1}"), (logging.ERROR, "{2}"), (INFO, "{3}")])
    assert logger.handlers[0].stream.writes == ["{1}\n{2}\n{3}\n"]
    assert deaf.stream.writes == ["{2}\n"]


def test_no_write_of_json_is_larger_than_a_pipe_takes_as_a_whole(logger):
    logger.handlers = [our_handler(Stream())]
    lines = [str(n) * 300 for n in range(10)] * 5
    write_json(logger, [(INFO, line) for line in lines])
    stream = logger.handlers[0].stream
    assert stream.getvalue() == "".join(f"{line}\n" for line in lines)
    assert all(len(one) <= select.PIPE_BUF for one in stream.writes)
    assert 1 < len(stream.writes) < len(lines) / 5


def test_each_line_of_json_that_a_stream_does_not_take_is_lost_by_itself(logger):
    logger.handlers, lost = [our_handler(Full()), our_handler(Stream())], []
    logger.handlers[0].handleError = lost.append
    write_json(logger, [(INFO, "{1}"), (INFO, "{2}")])
    assert [record.getMessage() for record in lost] == ["{1}", "{2}"]
    assert logger.handlers[1].stream.getvalue() == "{1}\n{2}\n"


class Own(logging.Logger):
    """A user's class."""

    def handle(self, record: logging.LogRecord) -> None:
        super().handle(record)


def test_json_goes_to_nothing_that_would_do_more_with_a_record(logger, monkeypatch):
    logger.handlers = [our_handler(Stream())]
    assert takes_json(logger)
    for spoil in (
        lambda: setattr(logger, "handlers", [handler_of(Stream())]),
        lambda: setattr(logger, "handlers", [our_handler(Stream(), Counting)]),
        lambda: logger.addFilter(lambda record: True),
        lambda: monkeypatch.setattr(logging, "_logRecordFactory", lambda *a, **o: None),
    ):
        spoil()
        assert not takes_json(logger)
        monkeypatch.undo()
        logger.handlers, logger.filters = [our_handler(Stream())], []
        assert takes_json(logger)
    own = Own("own")
    own.handlers = logger.handlers
    assert not takes_json(own)
