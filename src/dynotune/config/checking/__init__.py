"""Values to a configuration, or every mistake at once with its remedy."""
