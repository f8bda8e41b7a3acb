"""Speed-ups: what they are, which are there, which are chosen, and whether they were seen to run."""
