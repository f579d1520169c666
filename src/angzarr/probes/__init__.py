"""What probes are told: whether a process is alive, and whether it is ready."""
