"""One file a speed-up."""
