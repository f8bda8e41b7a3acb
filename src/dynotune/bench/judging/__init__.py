"""From what was measured to what may be said: comparisons, verdicts, targets, sentences."""
