"""A run in several processes: what they know of each other, agree on and add up."""
