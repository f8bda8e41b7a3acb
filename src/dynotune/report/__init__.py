"""What is told of a run: its loss curves, its page, the model card."""
