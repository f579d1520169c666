"""angzarr breaker."""
