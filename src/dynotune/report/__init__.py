"""Loss curves, the model card, and runs and benches as pages."""
