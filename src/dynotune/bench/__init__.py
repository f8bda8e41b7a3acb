"""Paired measurements: what a change does to speed and memory, shown only where the updates stay the same."""
