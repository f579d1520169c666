"""The ledger of dead letters in SQL."""
