"""Learning from preferences: the losses of pairs, and what is logged of them."""
