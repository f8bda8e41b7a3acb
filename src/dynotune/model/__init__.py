"""Loading, precision, adapters, the tokenizer, merging."""
