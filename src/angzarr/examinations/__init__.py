"""Examinations: what the doctor looks at, from an app and its settings to findings."""
