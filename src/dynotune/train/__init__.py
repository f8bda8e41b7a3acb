"""The loop and what it works with: updates, metrics, evaluation, checkpoints, the run folder."""
