"""From what was observed to what it means: rows of time, what was found, what would help, what to expect."""
