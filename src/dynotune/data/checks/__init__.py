"""What is remarkable about a row: one named check a function."""
