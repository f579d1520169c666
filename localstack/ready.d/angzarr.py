"""Run by LocalStack once it is ready: makes what ../angzarr.json describes, see ../angzarr_aws.

The domains may stand in ANGZARR_DOMAINS instead, separated by commas.
"""

from __future__ import annotations

import os
import sys

from localstack import config  # type: ignore[import-not-found]  # LocalStack's own Python runs this

sys.path.insert(0, str(config.dirs.init))
try:
    from angzarr_aws.command import main
finally:
    sys.path.pop(0)

PORT = (os.environ.get("GATEWAY_LISTEN") or "127.0.0.1:4566").rpartition(":")[2]

if code := main(["--endpoint-url", f"http://127.0.0.1:{PORT}"]):
    message = f"angzarr's queues were not made (exit code {code}); the lines before say why"
    raise RuntimeError(message)
