"""Rows to examples: token ids and labels, in batches."""
