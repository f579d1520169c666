"""OpenTelemetry hooks."""
