"""PID 1 of the image, and the worker behind it: signals, orphans, health."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

from polling import wait_until

#: Leaves an orphan that soon ends, and stays.
WITH_AN_ORPHAN = "( ( sleep 0.1; : > /tmp/gone ) & ); exec sleep 60"


def states(container) -> list[str]:
    """The state letters of all processes of a container."""
    found = []
    for pid in container.processes():
        with suppress(OSError):  # it has just gone
            found.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    return found


def handled(site) -> Counter:
    return Counter(line["n"] for line in site.ran("handled"))


def wait_ready(site, times=1):
    wait_until(lambda: site.text().count(" ready.") >= times, "the worker to be ready")


def test_what_an_orphan_leaves_is_reaped(make, tmp_path):
    tmp_path.chmod(0o1777)
    container = make("sh", "-c", WITH_AN_ORPHAN, tmp=tmp_path)
    wait_until((tmp_path / "gone").exists, "the orphan ended")
    wait_until(lambda: len(container.processes()) == 2, "PID 1 and its child are all")
    assert "Z" not in states(container)


def test_without_tini_it_would_stay_for_ever(make, tmp_path):
    """The control: else the test above could not fail."""
    tmp_path.chmod(0o1777)
    container = make("sh", "-c", WITH_AN_ORPHAN, tmp=tmp_path, entrypoint=())
    wait_until((tmp_path / "gone").exists, "the orphan ended")
    wait_until(lambda: "Z" in states(container), "it is a zombie")


def test_sigterm_ends_a_worker_under_load_in_time_and_nothing_is_lost(worker, site):
    """As `docker stop` does; one handler outlasts the grace and is cut, the rest is given back."""
    site.app.publish(site.module.Thing(n=0, fate="long", seconds=300, times=1), id=f"{site.name}-0")
    first = worker()
    wait_ready(site)
    site.wait_ran("handle")
    for n in range(1, 60):
        site.app.publish(site.module.Thing(n=n, fate="slow", seconds=0.2))
    site.wait_ran("handled", 3)
    assert first.stop() == 0, site.text()[-3000:]
    assert len(handled(site)) < 59, "it was under load"
    second = worker()
    wait_until(lambda: set(range(60)) <= set(handled(site)), "the next one to handle the rest")
    assert second.stop() == 0
    assert handled(site) == dict.fromkeys(range(60), 1)
    attempts = {line["attempt"] for line in site.ran("handle") if line["n"] == 0}
    assert attempts == {1}, "what was cut used no attempt"


def test_a_worker_is_all_that_tini_has_to_look_after(worker, site):
    one = worker()
    wait_ready(site)
    tini, supervisor, *others = one.processes()
    assert Path(f"/proc/{tini}/comm").read_text() == "tini\n"
    said = Path(f"/proc/{supervisor}/cmdline").read_text()
    assert "python" in said, "no shell between them"
    assert "angzarr" in said
    assert others
    assert one.stop() == 0
