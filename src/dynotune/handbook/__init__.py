"""Pages of the documentation, and the schema, made from keys, fates and speed-ups."""
