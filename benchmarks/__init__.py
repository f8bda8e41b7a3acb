"""Measurements as commands that write JSON."""
