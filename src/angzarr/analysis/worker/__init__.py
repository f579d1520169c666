"""The DLQ-analysis worker: it takes letters in and carries decisions out."""
