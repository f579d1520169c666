"""The Celery app that the examples share: `angzarr -A application worker` runs them all.

Where its servers are stands in the environment (CELERY_BROKER_URL, ANGZARR_STORE, …) or in the file
that ANGZARR_CONFIG names; see docs/tutorial.md.
"""

from __future__ import annotations

from angzarr import Angzarr

app = Angzarr("examples", include=["orders", "poker", "anything", "stocktaking"])
