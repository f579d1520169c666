"""What is worth an alert, and how alerts are told."""
