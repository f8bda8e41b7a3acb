"""Tokenised rows for other trainers."""
