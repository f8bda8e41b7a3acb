"""A run of ours, watched from inside."""
