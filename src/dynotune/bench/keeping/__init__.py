"""Results that were kept: the history, what it says of speed-ups, and results held against one another."""
