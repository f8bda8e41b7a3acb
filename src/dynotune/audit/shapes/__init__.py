"""Shapes of a fault that are files of their own: each yields findings of the one rule that names it."""
