"""Records to rows in normal form: one recogniser a format."""
