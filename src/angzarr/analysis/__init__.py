"""The DLQ-analysis worker: read, understand, decide, replay."""
