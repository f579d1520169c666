"""One value a process: made once however many threads ask, and anew after a fork."""

from __future__ import annotations

import os
import threading
import time

from angzarr.runtime.per_process import OncePerProcess


def test_many_threads_get_the_same_value():
    made = []

    def make():
        time.sleep(0.01)  # a slow connect: all threads arrive meanwhile
        made.append(object())
        return made[-1]

    once = OncePerProcess(make)
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(once.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert set(seen) == set(made)


def test_a_forgotten_value_is_returned_once_and_made_anew():
    once = OncePerProcess(object)
    first = once.get()
    assert once.forget() is first
    assert once.forget() is None
    assert once.get() is not first


def test_a_child_makes_its_own_even_if_its_parent_held_the_lock():
    once = OncePerProcess(os.getpid)
    parent = once.get()
    reader, writer = os.pipe()
    with once._lock:
        child = os.fork()
        if child == 0:
            os.write(writer, str(once.get()).encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    told = int(os.read(reader, 20))
    os.close(reader)
    assert told == child != parent


def test_an_app_that_is_closed_lets_go_what_it_opened(make_app):
    app = make_app()
    opened = (app.road, app.flow, app.facts)
    app.close()
    anew = (app.road, app.flow, app.facts)
    assert not any(one is other for one, other in zip(opened, anew, strict=True))
    app.close()
    app.close()


def test_what_is_set_aside_has_made_nothing_and_is_afterwards_what_it_was():
    kept = OncePerProcess(object)
    first = kept.get()
    with kept.set_aside():
        assert kept.made() is None
        assert kept.get() is not first
    assert kept.get() is first
