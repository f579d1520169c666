"""SQL adapters: SQLite embedded, PostgreSQL in production."""
