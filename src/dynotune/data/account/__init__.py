"""The ledger and the quarantine: what became of every row."""
