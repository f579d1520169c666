"""The one composition root: from settings to adapters and workers."""
