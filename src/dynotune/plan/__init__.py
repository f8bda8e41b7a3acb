"""The epoch planned ahead: truncation, order, steps."""
