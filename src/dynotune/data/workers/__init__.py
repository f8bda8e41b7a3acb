"""Rows are tokenised in other processes, where there are enough of them to be worth the start."""
