"""The doctor: from what was seen of a set-up to what it would lose. Pure."""
