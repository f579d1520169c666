"""Facts in SQL: their table, rows, log and spool."""
