"""Results of benches: what they hold, where they are kept, which of them may be compared, in which words."""
