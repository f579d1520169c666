"""gRPC: commands to aggregates behind a network.

gRPC survives a fork only if its setting is made before the import, so it is made here first.
"""

import os

from angzarr.errors import MissingExtra

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")

try:
    import grpc as _grpc  # noqa: F401 - all that is in this folder needs it
except ModuleNotFoundError as error:
    if error.name != "grpc":
        raise
    raise MissingExtra("grpcio", "grpc") from error
