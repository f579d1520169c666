"""Import the modules of the installed package that begin as the arguments say, all without any.

Writes as JSON what could not be imported, and why.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

import angzarr

#: Run only by Alembic, and only by the demo's own worker.
WITH_THEIR_CALLER = ("angzarr.adapters.sql.migrations.env", "angzarr.demo.app")

found: dict[str, str] = {}
for module in pkgutil.walk_packages(angzarr.__path__, "angzarr.", onerror=lambda _: None):
    wanted = module.name.startswith(tuple(sys.argv[1:]) or "")
    if not wanted or module.name in WITH_THEIR_CALLER or ".examples" in module.name:
        continue
    try:
        importlib.import_module(module.name)
        found[module.name] = ""
    except Exception as error:
        found[module.name] = f"{type(error).__name__}: {error}"
sys.stdout.write(json.dumps(found))
