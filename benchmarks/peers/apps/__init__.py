"""One small app a peer. Each runs in its peer's own environment, which has no angzarr."""
