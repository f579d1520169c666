"""A child is not forked with a module locked by a thread that it does not have."""

import subprocess
import sys
import threading
import time

import pytest

from angzarr.runtime import processes as forks

_FORKING = """
import os, signal, sys, threading, time
{guard}
threading.Thread(target=lambda: __import__("slow"), daemon=True).start()
while "slow" not in sys.modules:
    time.sleep(0.001)
child = os.fork()
if not child:
    signal.alarm(2)  # what hangs is killed
    import slow
    os._exit(0 if slow.whole else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0)
"""


@pytest.mark.parametrize(
    ("guard", "hangs"),
    [("from angzarr.runtime import processes as forks; forks.guard()", False), ("", True)],
)
def test_a_child_can_import_what_a_thread_of_its_parent_imported_at_the_fork(
    tmp_path, guard, hangs
):
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.2)\nwhole = True\n")
    script = tmp_path / "forking.py"
    script.write_text(_FORKING.format(guard=guard))
    done = subprocess.run([sys.executable, str(script)], check=False, timeout=60)
    assert bool(done.returncode) is hangs


def test_a_fork_waits_for_no_import_for_ever(tmp_path, monkeypatch):
    (tmp_path / "endless_import.py").write_text(
        "import threading\nimport sys\nsys.modules['gate_of_endless_import'].wait(20)\n"
    )
    gate = threading.Event()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "gate_of_endless_import", gate)
    importing = threading.Thread(target=lambda: __import__("endless_import"))
    importing.start()
    try:
        while "endless_import" not in sys.modules:
            time.sleep(0.001)
        assert not forks.wait_for_imports(0.05)
    finally:
        gate.set()
        importing.join()
        sys.modules.pop("endless_import")
    assert forks.wait_for_imports(0.05)


def test_an_import_of_the_forking_thread_itself_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "forks_amid_import.py").write_text(
        "from angzarr.runtime import processes as forks\n"
        "waited_well = forks.wait_for_imports(0.05)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert __import__("forks_amid_import").waited_well
    sys.modules.pop("forks_amid_import")
