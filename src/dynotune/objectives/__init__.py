"""What is minimised, and nothing about how."""
