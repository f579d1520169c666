"""Snapshots of processes in files: living ones, killed ones, and what is no snapshot."""

from __future__ import annotations

import os
import signal

from angzarr.adapters.prometheus.folder import _PREFIX, Folder, sweep
from angzarr.adapters.prometheus.snapshot import COUNTER, GAUGE, MetricsSnapshot, Series


def measured(count: float) -> MetricsSnapshot:
    return MetricsSnapshot(
        {
            "done": Series(COUNTER, "", points={(): [count]}),
            "age": Series(GAUGE, "", points={(): [count]}),
        }
    )


def numbers(folder: Folder) -> dict[str, float]:
    return {name: one.points[()][0] for name, one in folder.total().series.items()}


class Child:
    """A process that leaves snapshots as it is told."""

    def __init__(self, folder: Folder) -> None:
        order, self._order = os.pipe()
        self._done, done = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            while said := os.read(order, 1):
                folder.leave(measured(said[0]))
                os.write(done, b"x")
            os._exit(0)
        os.close(order)
        os.close(done)

    def leave(self, count: int) -> None:
        os.write(self._order, bytes([count]))
        assert os.read(self._done, 1) == b"x"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._order)
        os.close(self._done)


def test_counts_of_a_killed_process_stay_and_its_gauges_go(tmp_path):
    folder = Folder(str(tmp_path))
    one, other = Child(folder), Child(folder)
    one.leave(3)
    other.leave(4)
    assert numbers(folder) == {"done": 7, "age": 4}
    one.leave(5)
    assert numbers(folder) == {"done": 9, "age": 5}
    one.kill()
    for _ in range(2):
        assert numbers(folder) == {"done": 9, "age": 4}
    successor = Child(folder)
    successor.leave(1)
    assert numbers(folder) == {"done": 10, "age": 4}
    other.kill()
    successor.kill()
    assert numbers(folder) == {"done": 10}
    assert list(folder.path.iterdir()) == [], "files of the dead are no burden"


def test_a_file_that_is_no_snapshot_costs_no_other(tmp_path, caplog):
    folder = Folder(str(tmp_path))
    child = Child(folder)
    child.leave(3)
    (folder.path / "nonsense.json").write_bytes(b"\xff{")
    (folder.path / "1-2.json").write_bytes(b"[]")
    assert numbers(folder)["done"] == 3
    assert "metrics_unreadable" in caplog.text
    assert not (folder.path / "nonsense.json").exists()
    child.kill()


def test_what_a_process_half_wrote_goes_with_it(tmp_path):
    folder = Folder(str(tmp_path))
    child = Child(folder)
    child.leave(3)
    (half,) = (file.with_suffix(".new") for file in folder.path.iterdir())
    half.write_bytes(b'{"done": ["cou')
    assert numbers(folder)["done"] == 3
    assert half.exists(), "it may be written still"
    child.kill()
    assert numbers(folder)["done"] == 3
    assert list(folder.path.iterdir()) == []


def test_the_folder_is_private_and_goes_with_its_process(tmp_path):
    folder = Folder(str(tmp_path))
    assert folder.path.stat().st_mode & 0o777 == 0o700
    pid = os.fork()
    if pid == 0:
        folder.remove()
        os._exit(0)
    os.waitpid(pid, 0)
    assert folder.path.exists(), "a child removes nothing"
    folder.remove()
    assert not folder.path.exists()


def test_what_killed_workers_left_is_swept(tmp_path):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    dead = tmp_path / f"{_PREFIX}{child}-x"
    earlier = tmp_path / f"{_PREFIX}{os.getpid()}-earlier"
    living = tmp_path / f"{_PREFIX}{os.getppid()}-x"
    foreign = tmp_path / f"{_PREFIX}notes"
    for path in (dead, earlier, living, foreign):
        path.mkdir()
    sweep(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted([living, foreign])
