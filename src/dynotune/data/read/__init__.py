"""Files to records: strict, streaming, one reader a file type."""
