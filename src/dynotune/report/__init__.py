"""Loss curves and the model card."""
