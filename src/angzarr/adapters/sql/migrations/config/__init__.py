"""One module a revision; each is frozen and knows nothing of today's tables."""
