"""Reference log-probabilities: computed once, kept by pair, checked before they are used again."""
