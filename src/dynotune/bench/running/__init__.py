"""Runs a bench: who lives where, warm-up, rounds of blocks, and what happened to device and host meanwhile."""
