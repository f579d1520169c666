"""Facts: what happened to each delivery, and what it cost, appended and never changed (spec F1)."""
