"""Clocks, and numbers read off the device late."""
