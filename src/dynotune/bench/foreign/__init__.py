"""Benches of commands that are not ours: whole processes, which report their tokens and seconds."""
