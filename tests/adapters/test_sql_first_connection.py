"""A child that is forked while a thread connects for the first time can use the database."""

from __future__ import annotations

import os
import signal
import threading

from sqlalchemy import text

from angzarr.adapters.sql.engine.engine import build_engine, in_transaction


def test_a_child_forked_amid_the_first_connection_can_read(postgresql_url):
    engine = build_engine(postgresql_url)
    learning, learn = threading.Event(), engine.dialect.initialize

    def slowly(connection):
        learning.set()
        threading.Event().wait(0.5)  # what a slow server takes
        learn(connection)

    engine.dialect.initialize = slowly
    thread = threading.Thread(target=ask, args=(engine,))
    thread.start()
    assert learning.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # a lock that nobody lets go of
        os._exit(0 if answers(engine) else 1)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    engine.dispose()


def ask(engine):
    reading = engine.execution_options(isolation_level="REPEATABLE READ")
    return in_transaction(reading, lambda connection: connection.execute(text("select 1")).scalar())


def answers(engine):
    try:
        return ask(engine) == 1
    except BaseException:
        return False
