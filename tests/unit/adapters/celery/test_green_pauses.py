from __future__ import annotations

import sys
import time
from types import SimpleNamespace

from angzarr.adapters.celery.worker.pools import patch_pauses


def test_who_has_the_real_sleep_gets_the_one_that_took_its_place(monkeypatch):
    real = time.sleep
    theirs = SimpleNamespace(sleep=real)
    own = SimpleNamespace(sleep=print)
    ours = SimpleNamespace(sleep=real)
    for name, module in {"kombu.x": theirs, "celery.x": own, "shop": ours}.items():
        monkeypatch.setitem(sys.modules, name, module)

    def green(seconds: float) -> None:
        """Let others go on."""

    patch_pauses()
    assert theirs.sleep is real, "nothing is patched here"
    monkeypatch.setattr(time, "sleep", green)
    try:
        patch_pauses()
        assert (theirs.sleep, own.sleep, ours.sleep) == (green, print, real)
    finally:
        monkeypatch.setattr(time, "sleep", real)
        for name, module in list(sys.modules.items()):
            if (
                name.startswith(("kombu", "celery", "amqp", "vine"))
                and vars(module).get("sleep") is green
            ):
                module.sleep = real
