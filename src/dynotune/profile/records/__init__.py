"""What was observed of a run, and as a file."""
