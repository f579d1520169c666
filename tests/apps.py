"""Apps that are closed when the test ends."""

from __future__ import annotations

import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from angzarr import Angzarr


@contextmanager
def apps(
    prepare: Callable[[Angzarr], object] = lambda _app: None, **defaults: Any
) -> Iterator[Callable[..., Angzarr]]:
    """Yield a maker of apps: with *defaults*, a queue of its own each, then *prepare*d."""
    with ExitStack() as opened:

        def make(name: str = "shop", **options: Any) -> Angzarr:
            app = Angzarr(name, **(defaults | options))
            opened.callback(app.close)
            app.conf.task_default_queue = f"q{uuid.uuid4().hex}"
            prepare(app)
            return app

        yield make


def module_with(**content: Any) -> types.ModuleType:
    """Return a module with *content*, for `sys.modules`, where a command finds its app."""
    module = types.ModuleType("module_of_a_test")
    vars(module).update(content)
    return module
